-- Inputs of attribution.sql for one run. Input: access_row, job_row, and
-- run_part(role, segment_id) with role access | job; run_grace(grace_us); one window from the accesses.
CREATE OR REPLACE TEMP TABLE att_access AS
SELECT a.access_id, a.time_ns // 1000 AS time_us, a.remote_ip AS address,
  a.job_cluster || '.' || a.job_id AS job_name,
  CASE WHEN a.job_by = 'conflict' THEN 1 ELSE 0 END AS conflict
FROM access_row AS a JOIN run_part AS p ON p.segment_id = a.segment_id AND p.role = 'access';

-- A run that was listed while it ran and again when it had ended is one run, with an end.
CREATE OR REPLACE TEMP TABLE att_run AS
SELECT j.job_key, min(j.start_ns) // 1000 AS start_us, max(j.end_ns) // 1000 + min(g.grace_us) AS stop_us
FROM job_row AS j JOIN run_part AS p ON p.segment_id = j.segment_id AND p.role = 'job' CROSS JOIN run_grace AS g
WHERE j.step IS NULL AND j.start_ns IS NOT NULL
GROUP BY j.job_key;

-- Runs are cut to the time of the accesses, which also closes those that still run.
CREATE OR REPLACE TEMP TABLE att_bound AS
SELECT coalesce(min(time_us), 0) AS low, coalesce(max(time_us), 0) + 1 AS high FROM att_access;

CREATE OR REPLACE TEMP TABLE att_job AS
SELECT DISTINCT r.job_key, j.cluster || '/' || unnest(string_split(j.nodes, ',')) AS node,
  greatest(r.start_us, b.low) AS start_us, least(coalesce(r.stop_us, b.high), b.high) AS stop_us
FROM att_run AS r JOIN job_row AS j USING (job_key)
JOIN run_part AS p ON p.segment_id = j.segment_id AND p.role = 'job' CROSS JOIN att_bound AS b
WHERE j.step IS NULL AND j.nodes IS NOT NULL;

CREATE OR REPLACE TEMP TABLE att_name AS
SELECT DISTINCT r.job_key, j.cluster || '.' || unnest([j.job_raw, j.job_id]) AS job_name,
  r.start_us, least(coalesce(r.stop_us, b.high), b.high) AS stop_us
FROM att_run AS r JOIN job_row AS j USING (job_key)
JOIN run_part AS p ON p.segment_id = j.segment_id AND p.role = 'job' CROSS JOIN att_bound AS b
WHERE j.step IS NULL;
