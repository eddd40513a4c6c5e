-- Every access row, with the result of the latest attribution run that looked at it.
WITH runs AS (
  SELECT r.public ->> '$.run_id' AS segment_id, max(r.seq) AS seq FROM record AS r
  WHERE r.kind = 'attribution_run' GROUP BY 1
), latest AS (
  SELECT a.*, row_number() OVER (PARTITION BY a.access_id ORDER BY u.seq DESC, a.segment_id, a.row) AS newest
  FROM attribution_row AS a JOIN runs AS u USING (segment_id)
)
SELECT a.access_id, a.event_id, a.time_ns,
  strftime(make_timestamp(a.time_ns // 1000), '%Y-%m-%dT%H:%M:%SZ') AS time_utc,
  CASE WHEN a.time_ns >= p.from_ns AND a.time_ns < p.to_ns THEN 1 ELSE 0 END AS in_window,
  CAST(row_number() OVER (PARTITION BY a.event_id ORDER BY a.access_id) - 1 AS BIGINT) AS repeat,
  a.bucket, a.key, a.operation, a.status, a.bytes_sent, a.requester, a.remote_ip, a.request_id, a.tls_version,
  a.cipher, coalesce(t.method, 'not-attributed') AS method, t.reason, t.job_key, t.node,
  t.direct_own + t.direct_rivals AS direct_candidates, t.interval_own + t.interval_rivals AS interval_candidates,
  t.direct_rivals + t.interval_rivals AS not_shown, t.agrees
FROM access_row AS a CROSS JOIN param AS p
LEFT JOIN latest AS t ON t.access_id = a.access_id AND t.newest = 1
ORDER BY a.access_id
