SELECT r.seq, r.event_ns AS time_ns, r.in_window, r.public ->> '$.link' AS link, r.public ->> '$.rotation' AS rotation,
  r.public ->> '$.end' AS ended, coalesce(r.public ->> '$.why_code', r.public ->> '$.why') AS why,
  r.public ->> '$.old_key_ids' AS old_key_ids, r.public ->> '$.new_key_ids' AS new_key_ids,
  CAST(r.public ->> '$.frames_lost' AS BIGINT) AS frames_lost, CAST(r.public ->> '$.elapsed_ms' AS BIGINT) AS elapsed_ms
FROM record AS r WHERE r.kind = 'rotation_end' ORDER BY r.scope, r.seq
