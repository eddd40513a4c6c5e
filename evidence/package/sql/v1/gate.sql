SELECT r.seq, r.kind, r.event_ns AS time_ns, strftime(make_timestamp(r.event_ns // 1000), '%Y-%m-%dT%H:%M:%SZ') AS time_utc,
  r.in_window, r.public ->> '$.link' AS link, r.public ->> '$.endpoint' AS endpoint, r.public ->> '$.reason' AS reason,
  r.public ->> '$.epoch' AS epoch, r.public ->> '$.seq' AS order_seq
FROM record AS r WHERE r.kind IN ('permit', 'close', 'reopen', 'violation') ORDER BY r.scope, r.seq
