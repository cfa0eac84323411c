-- Gates: a plan names steps that wait for a person's approval (plan ->> 'gates'), and a state which step has it.

-- As before, and an approval.
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
                 ('approved_step', 'approved_step', '{number}', TRUE),
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
                          'waiting_for,reason,promoted_at,split_from,approved_step}'::TEXT[])
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
        WHEN one.state ->> 'waiting_for' NOT IN ('pause', 'conflict', 'time', 'split', 'warm_up', 'approval')
            THEN 'waiting_for is not known'
        WHEN jsonb_path_exists(one.state, '$.step_starts[*] ? (@.type() != "number")') THEN 'step_starts are no times'
        WHEN one.step <> greatest(steps - 1, 0) THEN format('it is at step %s, and the row at %s', steps - 1, one.step)
        WHEN jsonb_typeof(one.plan -> 'steps') = 'array' AND steps > jsonb_array_length(one.plan -> 'steps') THEN 'it has been in more steps than the plan has'
        WHEN is_over <> (one.finished_at IS NOT NULL) THEN 'finished_at does not fit its phase'
        WHEN one.announced_at IS NOT NULL AND NOT is_over AND one.kind = 'rollout' AND one.guard_id IS NULL
            THEN 'announced_at is the time of an end, and it is open'
    END;
END $$;

-- Who started a rollout may not approve a step of it where the plan asks for another person. Names are those that the database
-- signs with, as in the audit; the command line and HTTP cannot get around it.
CREATE FUNCTION understudy_guard_approval() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    step   INT := (NEW.state ->> 'approved_step')::INT;
    weight INT := (NEW.plan -> 'steps' -> step ->> 'weight_percent')::INT;
BEGIN
    IF 'another' IN (
            CASE WHEN step = 0 THEN NEW.plan #>> '{gates,before_start,approval}'
                 WHEN weight < 100 THEN NEW.plan #>> '{gates,before_step,approval}' END,
            CASE WHEN weight = 100 THEN NEW.plan #>> '{gates,before_promotion,approval}' END)
        AND left(understudy_actor(), 255) = NEW.started_by THEN
        PERFORM understudy_refuse(
            format('rollout %s of %s was started by %s, and its plan asks for another person''s approval', NEW.id,
                   NEW.model_name, NEW.started_by),
            format('Ask a colleague for it: understudy rollout approve %s --reason "…"', NEW.model_name));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rollout_approval BEFORE UPDATE OF state ON Rollout
    FOR EACH ROW WHEN (NEW.state ? 'approved_step' AND NEW.state -> 'approved_step' IS DISTINCT FROM OLD.state -> 'approved_step')
    EXECUTE FUNCTION understudy_guard_approval();

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rollout_problem(Rollout) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION understudy_guard_approval() SET search_path = %I, pg_temp', current_schema());
END $$;
