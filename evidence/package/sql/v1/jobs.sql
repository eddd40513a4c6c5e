SELECT j.segment_id, j.row, j.job_key, j.cluster, j.job_raw, j.job_id, j.submit_ns, j.restart, j.start_ns, j.end_ns,
  j.state, j.nodes, j.account, j.user, j.step
FROM job_row AS j ORDER BY j.segment_id, j.row
