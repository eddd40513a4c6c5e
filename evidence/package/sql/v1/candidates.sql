SELECT
  *
FROM (
  SELECT
    *
  FROM (
    SELECT
      "t15"."access_id",
      "t15"."job_key",
      'direct' AS "how"
    FROM (
      SELECT DISTINCT
        *
      FROM (
        SELECT
          "t11"."access_id",
          "t5"."job_key"
        FROM (
          SELECT
            *
          FROM "att_access" AS "t0"
          WHERE
            "t0"."conflict" = 0
        ) AS "t11"
        INNER JOIN "att_name" AS "t5"
          ON "t11"."job_name" = "t5"."job_name"
          AND "t11"."time_us" >= "t5"."start_us"
          AND "t11"."time_us" < "t5"."stop_us"
      ) AS "t13"
    ) AS "t15"
  ) AS "t18"
  UNION ALL
  SELECT
    *
  FROM (
    SELECT
      "t25"."access_id",
      "t25"."job_key",
      'interval' AS "how"
    FROM (
      SELECT DISTINCT
        *
      FROM (
        SELECT
          "t23"."access_id",
          "t17"."job_key"
        FROM (
          SELECT
            "t21"."access_id",
            "t21"."time_us",
            "t21"."node",
            CAST(FLOOR((
              "t21"."time_us"
            ) / (
              3600000000
            )) AS BIGINT) AS "bucket"
          FROM (
            SELECT
              "t4"."access_id",
              "t4"."time_us",
              "t20"."node"
            FROM "att_access" AS "t4"
            INNER JOIN (
              SELECT
                "t14"."access_id",
                CASE
                  WHEN (
                    "t14"."leases" = 1
                  ) AND (
                    "t14"."any_shared" = 0
                  )
                  THEN 'covered'
                  ELSE 'shared'
                END AS "lease_state",
                CASE
                  WHEN (
                    "t14"."leases" = 1
                  ) AND (
                    "t14"."any_shared" = 0
                  )
                  THEN "t14"."node"
                  ELSE CAST(NULL AS TEXT)
                END AS "node",
                CASE
                  WHEN (
                    "t14"."leases" = 1
                  ) AND (
                    "t14"."any_shared" = 0
                  )
                  THEN "t14"."lease_from_us"
                  ELSE CAST(NULL AS BIGINT)
                END AS "lease_from_us",
                CASE
                  WHEN (
                    "t14"."leases" = 1
                  ) AND (
                    "t14"."any_shared" = 0
                  )
                  THEN "t14"."lease_until_us"
                  ELSE CAST(NULL AS BIGINT)
                END AS "lease_until_us"
              FROM (
                SELECT
                  "t12"."access_id",
                  COUNT(DISTINCT "t12"."node") AS "leases",
                  MAX("t12"."shared") AS "any_shared",
                  MIN("t12"."node") AS "node",
                  MAX("t12"."from_us") AS "lease_from_us",
                  MIN("t12"."until_us") AS "lease_until_us"
                FROM (
                  SELECT
                    "t8"."access_id",
                    "t8"."time_us",
                    "t8"."address",
                    "t6"."address" AS "address_right",
                    "t6"."node",
                    "t6"."from_us",
                    "t6"."until_us",
                    "t6"."shared"
                  FROM (
                    SELECT
                      "t0"."access_id",
                      "t0"."time_us",
                      "t0"."address"
                    FROM "att_access" AS "t0"
                  ) AS "t8"
                  INNER JOIN "att_lease" AS "t6"
                    ON "t8"."address" = "t6"."address"
                    AND "t8"."time_us" >= "t6"."from_us"
                    AND "t8"."time_us" < "t6"."until_us"
                ) AS "t12"
                GROUP BY
                  1
              ) AS "t14"
            ) AS "t20"
              ON "t4"."access_id" = "t20"."access_id"
          ) AS "t21"
          WHERE
            "t21"."node" IS NOT NULL
        ) AS "t23"
        INNER JOIN (
          SELECT
            "t10"."job_key",
            "t10"."node",
            "t10"."start_us",
            "t10"."stop_us",
            UNNEST(
              RANGE(
                CAST(FLOOR((
                  "t10"."start_us"
                ) / (
                  3600000000
                )) AS BIGINT),
                CAST(FLOOR((
                  "t10"."stop_us" - 1
                ) / (
                  3600000000
                )) AS BIGINT) + 1,
                1
              )
            ) AS "bucket"
          FROM (
            SELECT
              *
            FROM "att_job" AS "t2"
            WHERE
              "t2"."stop_us" > "t2"."start_us"
          ) AS "t10"
        ) AS "t17"
          ON "t23"."node" = "t17"."node"
          AND "t23"."bucket" = "t17"."bucket"
          AND "t23"."time_us" >= "t17"."start_us"
          AND "t23"."time_us" < "t17"."stop_us"
      ) AS "t24"
    ) AS "t25"
  ) AS "t26"
) AS "t27"
ORDER BY
  "t27"."access_id" ASC,
  "t27"."job_key" ASC,
  "t27"."how" ASC
