-- Accesses of the window by method. Only direct and interval-unique are matched.
SELECT m.method, count(a.access_id) AS accesses, CAST(coalesce(sum(a.bytes_sent), 0) AS BIGINT) AS bytes_sent,
  CAST(coalesce(sum(CASE WHEN a.agrees = 0 THEN 1 ELSE 0 END), 0) AS BIGINT) AS other_node
FROM (VALUES (1, 'direct'), (2, 'interval-unique'), (3, 'interval-ambiguous'), (4, 'unmatched'),
  (5, 'unattributable'), (6, 'not-attributed')) AS m (place, method)
LEFT JOIN accesses AS a ON a.method = m.method AND a.in_window = 1 AND a.repeat = 0
GROUP BY m.place, m.method ORDER BY m.place
