-- The release before knows no such key, and would read none of these guards. They go on without their judge; what it said stays.
ALTER TABLE Rollout DISABLE TRIGGER rollout_guard;
UPDATE Rollout SET state = state - 'guard_judge', revision = revision + 1 WHERE state ? 'guard_judge';
ALTER TABLE Rollout ENABLE TRIGGER rollout_guard;

CREATE OR REPLACE FUNCTION understudy_rollout_problem(one Rollout) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
    found TEXT;
    steps INT;
    is_over BOOLEAN := one.phase IN ('SUCCEEDED', 'FAILED');
BEGIN
    IF coalesce(jsonb_typeof(one.state), 'null') <> 'object' THEN
        RETURN 'it is no object';
    END IF;
    SELECT format('%s is %s', wanted.name, CASE WHEN place ? wanted.field
                  THEN format('of another type: %s', left((place -> wanted.field)::TEXT, 40)) ELSE 'missing' END)
    INTO found
    FROM (VALUES ('rollout_id', 'rollout_id', '{number}'::TEXT[], FALSE), ('model_name', 'model_name', '{string}', FALSE),
                 ('champion', 'champion', '{string}', FALSE), ('challenger', 'challenger', '{string}', FALSE),
                 ('policy', 'policy', '{object}', FALSE), ('started_at', 'started_at', '{number}', FALSE),
                 ('limit_from', 'limit_from', '{number}', FALSE), ('phase', 'phase', '{string}', FALSE),
                 ('step_starts', 'step_starts', '{array}', FALSE),
                 ('waiting_for', 'waiting_for', '{string,null}', FALSE), ('reason', 'reason', '{string}', TRUE),
                 ('promoted_at', 'promoted_at', '{number,null}', TRUE), ('split_from', 'split_from', '{number}', TRUE),
                 ('approved_step', 'approved_step', '{number}', TRUE), ('gate', 'gate', '{object}', TRUE),
                 ('guard_metrics', 'guard_metrics', '{array}', TRUE),
                 ('policy/champion', 'champion', '{string}', FALSE),
                 ('policy/challenger', 'challenger', '{string,null}', FALSE),
                 ('policy/weight_percent', 'weight_percent', '{number}', FALSE),
                 ('policy/generation', 'generation', '{number}', FALSE),
                 ('policy/rollout_id', 'rollout_id', '{number,null}', FALSE),
                 ('policy/salt', 'salt', '{string,null}', TRUE)) AS wanted (name, field, kinds, may_miss),
        LATERAL (SELECT CASE WHEN wanted.name LIKE 'policy/%' THEN one.state -> 'policy' ELSE one.state END) AS at (place)
    WHERE CASE WHEN place ? wanted.field THEN jsonb_typeof(place -> wanted.field) <> ALL (wanted.kinds)
               ELSE NOT wanted.may_miss END
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    SELECT format('%s is not known', left(name, 40)) INTO found FROM (
        SELECT key AS name FROM jsonb_object_keys(one.state) AS key
        WHERE key <> ALL ('{rollout_id,model_name,champion,challenger,policy,started_at,limit_from,phase,step_starts,'
                          'waiting_for,reason,promoted_at,split_from,approved_step,gate,guard_metrics}'::TEXT[])
        UNION ALL SELECT 'policy/' || key FROM jsonb_object_keys(one.state -> 'policy') AS key
        WHERE key <> ALL ('{champion,challenger,weight_percent,generation,rollout_id,salt}'::TEXT[])) AS other
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    steps := jsonb_array_length(one.state -> 'step_starts');
    RETURN CASE
        WHEN one.state -> 'rollout_id' <> to_jsonb(one.id) THEN 'rollout_id is another one''s'
        WHEN one.state ->> 'model_name' <> one.model_name THEN 'model_name is another one''s'
        WHEN one.state ->> 'phase' <> one.phase
            THEN format('its phase is %s, and that of the row %s', one.state ->> 'phase', one.phase)
        WHEN one.state ->> 'waiting_for' NOT IN ('pause', 'conflict', 'time', 'split', 'warm_up', 'approval', 'gate')
            THEN 'waiting_for is not known'
        WHEN jsonb_path_exists(one.state, '$.step_starts[*] ? (@.type() != "number")') THEN 'step_starts are no times'
        WHEN one.state ? 'gate' AND (
                jsonb_typeof(one.state #> '{gate,since}') IS DISTINCT FROM 'number'
                OR jsonb_typeof(one.state #> '{gate,asks}') IS DISTINCT FROM 'number'
                OR jsonb_typeof(one.state #> '{gate,is_refused}') IS DISTINCT FROM 'boolean'
                OR jsonb_typeof(one.state #> '{gate,passed}') IS DISTINCT FROM 'array'
                OR NOT '["before_start", "before_step", "before_promotion"]' @> (one.state #> '{gate,passed}')
                OR (one.state -> 'gate') - ARRAY['since', 'asks', 'is_refused', 'passed'] <> '{}')
            THEN 'gate is no record of the gates before its next step'
        WHEN one.step <> greatest(steps - 1, 0) THEN format('it is at step %s, and the row at %s', steps - 1, one.step)
        WHEN jsonb_typeof(one.plan -> 'steps') = 'array' AND steps > jsonb_array_length(one.plan -> 'steps') THEN 'it has been in more steps than the plan has'
        WHEN is_over <> (one.finished_at IS NOT NULL) THEN 'finished_at does not fit its phase'
        WHEN one.announced_at IS NOT NULL AND NOT is_over AND one.kind = 'rollout' AND one.guard_id IS NULL
            THEN 'announced_at is the time of an end, and it is open'
    END;
END $$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rollout_problem(Rollout) SET search_path = %I, pg_temp', current_schema());
END $$;
