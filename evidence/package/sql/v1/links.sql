-- A verdict is in the window when any of its interval is, whatever event time its record has.
SELECT r.seq, CASE WHEN r.in_window = 1 OR (CAST(r.public ->> '$.begin' AS BIGINT) < p.to_ns
    AND CAST(r.public ->> '$.end' AS BIGINT) > p.from_ns) THEN 1 ELSE 0 END AS in_window, r.public ->> '$.link' AS link,
  CAST(r.public ->> '$.begin' AS BIGINT) AS begin_ns, CAST(r.public ->> '$.end' AS BIGINT) AS end_ns,
  r.public ->> '$.encrypted' AS encrypted, r.public ->> '$.reason' AS reason,
  coalesce(r.public ->> '$.key_id', r.public ->> '$.key_ids') AS key_ids,
  CAST(r.public ->> '$.samples' AS BIGINT) AS samples, r.public ->> '$.counters_digest' AS counters_digest,
  r.public ->> '$.faults_enabled' AS faults_enabled
FROM record AS r CROSS JOIN param AS p WHERE r.kind = 'link_verdict' ORDER BY r.scope, r.seq
