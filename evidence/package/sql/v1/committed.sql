-- The part of a run's input that only its committed result tells: leases as found, and the number of runs
-- of others that fit as well. Input: attribution_row, att_access, run_part with role result.
CREATE OR REPLACE TEMP TABLE att_result AS
SELECT r.* FROM attribution_row AS r JOIN run_part AS p ON p.segment_id = r.segment_id AND p.role = 'result';

CREATE OR REPLACE TEMP TABLE att_lease AS
SELECT DISTINCT a.address, r.node, r.lease_from_us AS from_us, r.lease_until_us AS until_us, 0 AS shared
FROM att_result AS r JOIN att_access AS a USING (access_id) WHERE r.lease_state = 'covered'
UNION ALL
SELECT DISTINCT a.address, '' AS node, a.time_us AS from_us, a.time_us + 1 AS until_us, 1 AS shared
FROM att_result AS r JOIN att_access AS a USING (access_id) WHERE r.lease_state = 'shared';

CREATE OR REPLACE TEMP TABLE att_rival AS
SELECT access_id, direct_rivals, interval_rivals FROM att_result;
