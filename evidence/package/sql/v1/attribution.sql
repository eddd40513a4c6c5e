WITH "t34" AS (
  SELECT DISTINCT
    *
  FROM (
    SELECT
      "t29"."access_id",
      "t19"."job_key"
    FROM (
      SELECT
        "t24"."access_id",
        "t24"."time_us",
        "t24"."node",
        CAST(FLOOR((
          "t24"."time_us"
        ) / (
          3600000000
        )) AS BIGINT) AS "bucket"
      FROM (
        SELECT
          "t6"."access_id",
          "t6"."time_us",
          "t23"."node"
        FROM "att_access" AS "t6"
        INNER JOIN (
          SELECT
            "t16"."access_id",
            CASE
              WHEN (
                "t16"."leases" = 1
              ) AND (
                "t16"."any_shared" = 0
              )
              THEN 'covered'
              ELSE 'shared'
            END AS "lease_state",
            CASE
              WHEN (
                "t16"."leases" = 1
              ) AND (
                "t16"."any_shared" = 0
              )
              THEN "t16"."node"
              ELSE CAST(NULL AS TEXT)
            END AS "node",
            CASE
              WHEN (
                "t16"."leases" = 1
              ) AND (
                "t16"."any_shared" = 0
              )
              THEN "t16"."lease_from_us"
              ELSE CAST(NULL AS BIGINT)
            END AS "lease_from_us",
            CASE
              WHEN (
                "t16"."leases" = 1
              ) AND (
                "t16"."any_shared" = 0
              )
              THEN "t16"."lease_until_us"
              ELSE CAST(NULL AS BIGINT)
            END AS "lease_until_us"
          FROM (
            SELECT
              "t14"."access_id",
              COUNT(DISTINCT "t14"."node") AS "leases",
              MAX("t14"."shared") AS "any_shared",
              MIN("t14"."node") AS "node",
              MAX("t14"."from_us") AS "lease_from_us",
              MIN("t14"."until_us") AS "lease_until_us"
            FROM (
              SELECT
                "t10"."access_id",
                "t10"."time_us",
                "t10"."address",
                "t7"."address" AS "address_right",
                "t7"."node",
                "t7"."from_us",
                "t7"."until_us",
                "t7"."shared"
              FROM (
                SELECT
                  "t1"."access_id",
                  "t1"."time_us",
                  "t1"."address"
                FROM "att_access" AS "t1"
              ) AS "t10"
              INNER JOIN "att_lease" AS "t7"
                ON "t10"."address" = "t7"."address"
                AND "t10"."time_us" >= "t7"."from_us"
                AND "t10"."time_us" < "t7"."until_us"
            ) AS "t14"
            GROUP BY
              1
          ) AS "t16"
        ) AS "t23"
          ON "t6"."access_id" = "t23"."access_id"
      ) AS "t24"
      WHERE
        "t24"."node" IS NOT NULL
    ) AS "t29"
    INNER JOIN (
      SELECT
        "t12"."job_key",
        "t12"."node",
        "t12"."start_us",
        "t12"."stop_us",
        UNNEST(
          RANGE(
            CAST(FLOOR((
              "t12"."start_us"
            ) / (
              3600000000
            )) AS BIGINT),
            CAST(FLOOR((
              "t12"."stop_us" - 1
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
      ) AS "t12"
    ) AS "t19"
      ON "t29"."node" = "t19"."node"
      AND "t29"."bucket" = "t19"."bucket"
      AND "t29"."time_us" >= "t19"."start_us"
      AND "t29"."time_us" < "t19"."stop_us"
  ) AS "t32"
)
SELECT
  "t50"."access_id",
  "t50"."method",
  "t50"."reason",
  "t50"."job_key",
  "t50"."node",
  "t50"."lease_from_us",
  "t50"."lease_until_us",
  "t50"."lease_state",
  "t50"."direct_own",
  "t50"."interval_own",
  "t50"."direct_rivals",
  "t50"."interval_rivals",
  CASE
    WHEN (
      "t50"."method" = 'direct'
    )
    AND (
      "t50"."job_key" IS NOT NULL
    )
    AND (
      "t50"."lease_state" = 'covered'
    )
    THEN COALESCE("t50"."fits", 0)
    ELSE CAST(NULL AS BIGINT)
  END AS "agrees"
FROM (
  SELECT
    "t49".*
    EXCLUDE ("job_key_right")
  FROM (
    SELECT
      "t48".*
      EXCLUDE ("access_id_right")
    FROM (
      SELECT
        "t47"."access_id",
        "t47"."time_us",
        "t47"."address",
        "t47"."job_name",
        "t47"."conflict",
        "t47"."lease_state",
        "t47"."node",
        "t47"."lease_from_us",
        "t47"."lease_until_us",
        "t47"."direct_own",
        "t47"."direct_job",
        "t47"."interval_own",
        "t47"."interval_job",
        "t47"."direct_rivals",
        "t47"."interval_rivals",
        "t47"."method",
        "t47"."reason",
        "t47"."job_key",
        "t37"."access_id" AS "access_id_right",
        "t37"."job_key" AS "job_key_right",
        "t37"."fits"
      FROM (
        SELECT
          "t45"."access_id",
          "t45"."time_us",
          "t45"."address",
          "t45"."job_name",
          "t45"."conflict",
          "t45"."lease_state",
          "t45"."node",
          "t45"."lease_from_us",
          "t45"."lease_until_us",
          "t45"."direct_own",
          "t45"."direct_job",
          "t45"."interval_own",
          "t45"."interval_job",
          "t45"."direct_rivals",
          "t45"."interval_rivals",
          CASE
            WHEN "t45"."conflict" = 1
            THEN 'unmatched'
            WHEN (
              "t45"."job_name" IS NOT NULL
            )
            AND (
              (
                "t45"."direct_own" + "t45"."direct_rivals"
              ) = 1
            )
            THEN 'direct'
            WHEN (
              "t45"."job_name" IS NOT NULL
            )
            AND (
              (
                "t45"."direct_own" + "t45"."direct_rivals"
              ) > 1
            )
            THEN 'interval-ambiguous'
            WHEN "t45"."job_name" IS NOT NULL
            THEN 'unmatched'
            WHEN NOT (
              "t45"."lease_state" = 'covered'
            )
            THEN 'unattributable'
            WHEN (
              "t45"."interval_own" + "t45"."interval_rivals"
            ) = 1
            THEN 'interval-unique'
            WHEN (
              "t45"."interval_own" + "t45"."interval_rivals"
            ) > 1
            THEN 'interval-ambiguous'
            ELSE 'unmatched'
          END AS "method",
          CASE
            WHEN "t45"."conflict" = 1
            THEN 'two different job ids'
            WHEN (
              "t45"."job_name" IS NOT NULL
            )
            AND (
              (
                "t45"."direct_own" + "t45"."direct_rivals"
              ) = 1
            )
            THEN CAST(NULL AS TEXT)
            WHEN (
              "t45"."job_name" IS NOT NULL
            )
            AND (
              (
                "t45"."direct_own" + "t45"."direct_rivals"
              ) > 1
            )
            THEN 'the id names several runs at that time'
            WHEN "t45"."job_name" IS NOT NULL
            THEN 'no run of that id at that time'
            WHEN NOT (
              "t45"."lease_state" = 'covered'
            )
            THEN "t45"."lease_state"
            WHEN (
              "t45"."interval_own" + "t45"."interval_rivals"
            ) = 0
            THEN 'no run on the node at that time'
            ELSE CAST(NULL AS TEXT)
          END AS "reason",
          CASE
            WHEN (
              CASE
                WHEN "t45"."conflict" = 1
                THEN 'unmatched'
                WHEN (
                  "t45"."job_name" IS NOT NULL
                )
                AND (
                  (
                    "t45"."direct_own" + "t45"."direct_rivals"
                  ) = 1
                )
                THEN 'direct'
                WHEN (
                  "t45"."job_name" IS NOT NULL
                )
                AND (
                  (
                    "t45"."direct_own" + "t45"."direct_rivals"
                  ) > 1
                )
                THEN 'interval-ambiguous'
                WHEN "t45"."job_name" IS NOT NULL
                THEN 'unmatched'
                WHEN NOT (
                  "t45"."lease_state" = 'covered'
                )
                THEN 'unattributable'
                WHEN (
                  "t45"."interval_own" + "t45"."interval_rivals"
                ) = 1
                THEN 'interval-unique'
                WHEN (
                  "t45"."interval_own" + "t45"."interval_rivals"
                ) > 1
                THEN 'interval-ambiguous'
                ELSE 'unmatched'
              END = 'direct'
            )
            AND (
              "t45"."direct_own" = 1
            )
            THEN "t45"."direct_job"
            WHEN (
              CASE
                WHEN "t45"."conflict" = 1
                THEN 'unmatched'
                WHEN (
                  "t45"."job_name" IS NOT NULL
                )
                AND (
                  (
                    "t45"."direct_own" + "t45"."direct_rivals"
                  ) = 1
                )
                THEN 'direct'
                WHEN (
                  "t45"."job_name" IS NOT NULL
                )
                AND (
                  (
                    "t45"."direct_own" + "t45"."direct_rivals"
                  ) > 1
                )
                THEN 'interval-ambiguous'
                WHEN "t45"."job_name" IS NOT NULL
                THEN 'unmatched'
                WHEN NOT (
                  "t45"."lease_state" = 'covered'
                )
                THEN 'unattributable'
                WHEN (
                  "t45"."interval_own" + "t45"."interval_rivals"
                ) = 1
                THEN 'interval-unique'
                WHEN (
                  "t45"."interval_own" + "t45"."interval_rivals"
                ) > 1
                THEN 'interval-ambiguous'
                ELSE 'unmatched'
              END = 'interval-unique'
            )
            AND (
              "t45"."interval_own" = 1
            )
            THEN "t45"."interval_job"
            ELSE CAST(NULL AS TEXT)
          END AS "job_key"
        FROM (
          SELECT
            "t44"."access_id",
            "t44"."time_us",
            "t44"."address",
            "t44"."job_name",
            "t44"."conflict",
            COALESCE(
              "t44"."lease_state",
              CASE WHEN "t44"."address" IS NULL THEN 'redacted' ELSE 'no-lease' END
            ) AS "lease_state",
            "t44"."node",
            "t44"."lease_from_us",
            "t44"."lease_until_us",
            COALESCE("t44"."direct_own", 0) AS "direct_own",
            "t44"."direct_job",
            COALESCE("t44"."interval_own", 0) AS "interval_own",
            "t44"."interval_job",
            COALESCE("t44"."direct_rivals", 0) AS "direct_rivals",
            COALESCE("t44"."interval_rivals", 0) AS "interval_rivals"
          FROM (
            SELECT
              "t43".*
              EXCLUDE ("access_id_right")
            FROM (
              SELECT
                "t42"."access_id",
                "t42"."time_us",
                "t42"."address",
                "t42"."job_name",
                "t42"."conflict",
                "t42"."lease_state",
                "t42"."node",
                "t42"."lease_from_us",
                "t42"."lease_until_us",
                "t42"."direct_own",
                "t42"."direct_job",
                "t42"."interval_own",
                "t42"."interval_job",
                "t5"."access_id" AS "access_id_right",
                "t5"."direct_rivals",
                "t5"."interval_rivals"
              FROM (
                SELECT
                  "t40".*
                  EXCLUDE ("access_id_right")
                FROM (
                  SELECT
                    "t33"."access_id",
                    "t33"."time_us",
                    "t33"."address",
                    "t33"."job_name",
                    "t33"."conflict",
                    "t33"."lease_state",
                    "t33"."node",
                    "t33"."lease_from_us",
                    "t33"."lease_until_us",
                    "t33"."direct_own",
                    "t33"."direct_job",
                    "t39"."access_id" AS "access_id_right",
                    "t39"."interval_own",
                    "t39"."interval_job"
                  FROM (
                    SELECT
                      "t30".*
                      EXCLUDE ("access_id_right")
                    FROM (
                      SELECT
                        "t27"."access_id",
                        "t27"."time_us",
                        "t27"."address",
                        "t27"."job_name",
                        "t27"."conflict",
                        "t27"."lease_state",
                        "t27"."node",
                        "t27"."lease_from_us",
                        "t27"."lease_until_us",
                        "t21"."access_id" AS "access_id_right",
                        "t21"."direct_own",
                        "t21"."direct_job"
                      FROM (
                        SELECT
                          "t25".*
                          EXCLUDE ("access_id_right")
                        FROM (
                          SELECT
                            "t6"."access_id",
                            "t6"."time_us",
                            "t6"."address",
                            "t6"."job_name",
                            "t6"."conflict",
                            "t23"."access_id" AS "access_id_right",
                            "t23"."lease_state",
                            "t23"."node",
                            "t23"."lease_from_us",
                            "t23"."lease_until_us"
                          FROM "att_access" AS "t6"
                          LEFT OUTER JOIN (
                            SELECT
                              "t16"."access_id",
                              CASE
                                WHEN (
                                  "t16"."leases" = 1
                                ) AND (
                                  "t16"."any_shared" = 0
                                )
                                THEN 'covered'
                                ELSE 'shared'
                              END AS "lease_state",
                              CASE
                                WHEN (
                                  "t16"."leases" = 1
                                ) AND (
                                  "t16"."any_shared" = 0
                                )
                                THEN "t16"."node"
                                ELSE CAST(NULL AS TEXT)
                              END AS "node",
                              CASE
                                WHEN (
                                  "t16"."leases" = 1
                                ) AND (
                                  "t16"."any_shared" = 0
                                )
                                THEN "t16"."lease_from_us"
                                ELSE CAST(NULL AS BIGINT)
                              END AS "lease_from_us",
                              CASE
                                WHEN (
                                  "t16"."leases" = 1
                                ) AND (
                                  "t16"."any_shared" = 0
                                )
                                THEN "t16"."lease_until_us"
                                ELSE CAST(NULL AS BIGINT)
                              END AS "lease_until_us"
                            FROM (
                              SELECT
                                "t14"."access_id",
                                COUNT(DISTINCT "t14"."node") AS "leases",
                                MAX("t14"."shared") AS "any_shared",
                                MIN("t14"."node") AS "node",
                                MAX("t14"."from_us") AS "lease_from_us",
                                MIN("t14"."until_us") AS "lease_until_us"
                              FROM (
                                SELECT
                                  "t10"."access_id",
                                  "t10"."time_us",
                                  "t10"."address",
                                  "t7"."address" AS "address_right",
                                  "t7"."node",
                                  "t7"."from_us",
                                  "t7"."until_us",
                                  "t7"."shared"
                                FROM (
                                  SELECT
                                    "t1"."access_id",
                                    "t1"."time_us",
                                    "t1"."address"
                                  FROM "att_access" AS "t1"
                                ) AS "t10"
                                INNER JOIN "att_lease" AS "t7"
                                  ON "t10"."address" = "t7"."address"
                                  AND "t10"."time_us" >= "t7"."from_us"
                                  AND "t10"."time_us" < "t7"."until_us"
                              ) AS "t14"
                              GROUP BY
                                1
                            ) AS "t16"
                          ) AS "t23"
                            ON "t6"."access_id" = "t23"."access_id"
                        ) AS "t25"
                      ) AS "t27"
                      LEFT OUTER JOIN (
                        SELECT
                          "t17"."access_id",
                          COUNT(*) AS "direct_own",
                          MIN("t17"."job_key") AS "direct_job"
                        FROM (
                          SELECT DISTINCT
                            *
                          FROM (
                            SELECT
                              "t13"."access_id",
                              "t8"."job_key"
                            FROM (
                              SELECT
                                *
                              FROM "att_access" AS "t1"
                              WHERE
                                "t1"."conflict" = 0
                            ) AS "t13"
                            INNER JOIN "att_name" AS "t8"
                              ON "t13"."job_name" = "t8"."job_name"
                              AND "t13"."time_us" >= "t8"."start_us"
                              AND "t13"."time_us" < "t8"."stop_us"
                          ) AS "t15"
                        ) AS "t17"
                        GROUP BY
                          1
                      ) AS "t21"
                        ON "t27"."access_id" = "t21"."access_id"
                    ) AS "t30"
                  ) AS "t33"
                  LEFT OUTER JOIN (
                    SELECT
                      "t35"."access_id",
                      COUNT(*) AS "interval_own",
                      MIN("t35"."job_key") AS "interval_job"
                    FROM "t34" AS "t35"
                    GROUP BY
                      1
                  ) AS "t39"
                    ON "t33"."access_id" = "t39"."access_id"
                ) AS "t40"
              ) AS "t42"
              LEFT OUTER JOIN "att_rival" AS "t5"
                ON "t42"."access_id" = "t5"."access_id"
            ) AS "t43"
          ) AS "t44"
        ) AS "t45"
      ) AS "t47"
      LEFT OUTER JOIN (
        SELECT
          "t35"."access_id",
          "t35"."job_key",
          1 AS "fits"
        FROM "t34" AS "t35"
      ) AS "t37"
        ON "t47"."access_id" = "t37"."access_id" AND "t47"."job_key" = "t37"."job_key"
    ) AS "t48"
  ) AS "t49"
) AS "t50"
ORDER BY
  "t50"."access_id" ASC
