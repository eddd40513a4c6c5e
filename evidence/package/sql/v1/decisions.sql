SELECT r.seq, coalesce(r.event_ns, r.received_ns) AS time_ns,
  strftime(make_timestamp(coalesce(r.event_ns, r.received_ns) // 1000), '%Y-%m-%dT%H:%M:%SZ') AS time_utc,
  r.in_window, r.public ->> '$.decision_id' AS decision_id, r.public ->> '$.cluster' AS cluster,
  r.sensitive ->> '$.namespace' AS namespace, r.public ->> '$.kind' AS kind, r.sensitive ->> '$.name' AS name,
  r.public ->> '$.operation' AS operation, r.public ->> '$.dry_run' AS dry_run,
  r.public ->> '$.allowed' AS allowed,
  array_to_string(CAST(json_extract_string(r.public, '$.rules[*]') AS VARCHAR[]), ' ') AS rules,
  array_to_string(CAST(json_extract_string(r.sensitive, '$.reasons[*].text') AS VARCHAR[]), ' | ') AS reasons,
  r.public ->> '$.policy_digest' AS policy_digest, r.public ->> '$.input_digest' AS input_digest
FROM record AS r WHERE r.kind = 'decision' ORDER BY r.scope, r.seq
