SELECT scope, seq, kind, version, event_ns AS event_time_ns, received_ns AS received_time_ns,
  strftime(make_timestamp(coalesce(event_ns, received_ns) // 1000), '%Y-%m-%dT%H:%M:%SZ') AS time_utc,
  in_window, source, boot_id, source_seq, withheld AS sensitive_withheld
FROM record ORDER BY scope, seq
