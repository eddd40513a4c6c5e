-- Typed rows of imported logs. Input: segment_line(segment_id, row, line), one canonical JSON object a line.
CREATE OR REPLACE TEMP TABLE access_row AS
SELECT
  l.segment_id, l.row,
  l.segment_id || ':' || lpad(CAST(l.row AS VARCHAR), 9, '0') AS access_id,
  v.event_id, CAST(v.time_ns AS BIGINT) AS time_ns, v.remote_ip, v.requester, v.bucket, v.key, v.operation,
  v.request_id, v.status, v.error_code, CAST(v.bytes_sent AS BIGINT) AS bytes_sent, v.tls_version, v.cipher,
  v.job_by, v.job_cluster, v.job_id
FROM (
  SELECT x.segment_id, x.row, from_json(x.line, '{"event_id":"VARCHAR","time_ns":"VARCHAR","remote_ip":"VARCHAR",
    "requester":"VARCHAR","bucket":"VARCHAR","key":"VARCHAR","operation":"VARCHAR","request_id":"VARCHAR",
    "status":"BIGINT","error_code":"VARCHAR","bytes_sent":"VARCHAR","tls_version":"VARCHAR","cipher":"VARCHAR",
    "job_by":"VARCHAR","job_cluster":"VARCHAR","job_id":"VARCHAR"}') AS v
  FROM segment_line AS x JOIN segment AS s USING (segment_id) WHERE s.schema = 's3_access'
) AS l;

CREATE OR REPLACE TEMP TABLE job_row AS
SELECT
  l.segment_id, l.row,
  v.cluster || '/' || v.job_raw || '/' || CAST(CAST(v.submit_ns AS BIGINT) // 1000000000 AS VARCHAR)
    || '/' || CAST(v.restart AS VARCHAR) AS job_key,
  v.cluster, v.job_raw, v.job_id, CAST(v.submit_ns AS BIGINT) AS submit_ns, v.restart,
  CAST(v.start_ns AS BIGINT) AS start_ns, CAST(v.end_ns AS BIGINT) AS end_ns,
  v.state, v.nodes, v.account, v.user, v.step
FROM (
  SELECT x.segment_id, x.row, from_json(x.line, '{"cluster":"VARCHAR","job_raw":"VARCHAR","job_id":"VARCHAR",
    "submit_ns":"VARCHAR","restart":"BIGINT","start_ns":"VARCHAR","end_ns":"VARCHAR","state":"VARCHAR",
    "nodes":"VARCHAR","account":"VARCHAR","user":"VARCHAR","step":"VARCHAR"}') AS v
  FROM segment_line AS x JOIN segment AS s USING (segment_id) WHERE s.schema = 'slurm_sacct'
) AS l;

CREATE OR REPLACE TEMP TABLE attribution_row AS
SELECT l.segment_id, l.row, v.*
FROM (
  SELECT x.segment_id, x.row, from_json(x.line, '{"access_id":"VARCHAR","method":"VARCHAR","reason":"VARCHAR",
    "job_key":"VARCHAR","node":"VARCHAR","lease_from_us":"BIGINT","lease_until_us":"BIGINT",
    "lease_state":"VARCHAR","direct_own":"BIGINT","interval_own":"BIGINT","direct_rivals":"BIGINT",
    "interval_rivals":"BIGINT","agrees":"BIGINT"}') AS v
  FROM segment_line AS x JOIN segment AS s USING (segment_id) WHERE s.schema = 'attribution'
) AS l;
