SELECT r.seq, r.in_window, r.public ->> '$.object_id' AS object_id, r.public ->> '$.source_name' AS source_name,
  r.public ->> '$.source_class' AS source_class, r.public ->> '$.time_means' AS time_means,
  CAST(r.public ->> '$.resolution_ns' AS BIGINT) AS resolution_ns, r.public ->> '$.uri' AS uri,
  r.public ->> '$.version_id' AS version_id, r.public ->> '$.etag' AS etag,
  r.public ->> '$.sha256_stored' AS sha256, CAST(r.public ->> '$.octets' AS BIGINT) AS octets,
  CAST(r.public ->> '$.lines' AS BIGINT) AS lines, CAST(r.public ->> '$.rows' AS BIGINT) AS rows,
  CAST(r.public ->> '$.duplicates' AS BIGINT) AS duplicates,
  CAST(r.public ->> '$.quarantined' AS BIGINT) AS quarantined, r.public ->> '$.parser_digest' AS parser_digest
FROM record AS r WHERE r.kind = 'source_object' ORDER BY r.scope, r.seq
