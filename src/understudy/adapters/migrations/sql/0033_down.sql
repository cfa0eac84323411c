-- The release before reads no plan with gates, so they are taken out: otherwise neither the monitor nor a list could show any of these
-- rollouts. One that is on its way to a gate, or waits at one, waits as one that was paused, and takes no step past it unasked.
DROP TRIGGER rollout_approval ON Rollout;
DROP TRIGGER rollout_approval_new ON Rollout;
DROP TRIGGER rollout_notify_gate ON Rollout;
DROP FUNCTION understudy_guard_approval();
DROP FUNCTION understudy_approve(TEXT, TEXT, BOOLEAN);
ALTER TABLE Rollout DISABLE TRIGGER rollout_guard;
UPDATE Rollout SET plan = plan - 'gates', revision = revision + 1,
    phase = CASE WHEN phase = 'PROGRESSING' AND plan ? 'gates' THEN 'WAITING' ELSE phase END,
    state = (state - 'approved_step' - 'gate') || CASE
        WHEN state ->> 'waiting_for' IN ('approval', 'gate') THEN '{"waiting_for": "pause"}'::JSONB
        WHEN phase = 'PROGRESSING' AND plan ? 'gates'
            THEN '{"phase": "WAITING", "waiting_for": "pause", "reason": "its plan had gates, which this release does not know"}'
        ELSE '{}' END
WHERE plan ? 'gates' OR state ?| ARRAY['approved_step', 'gate'] OR state ->> 'waiting_for' IN ('approval', 'gate');
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
                          'waiting_for,reason,promoted_at,split_from}'::TEXT[])
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
        WHEN one.state ->> 'waiting_for' NOT IN ('pause', 'conflict', 'time', 'split', 'warm_up')
            THEN 'waiting_for is not known'
        WHEN jsonb_path_exists(one.state, '$.step_starts[*] ? (@.type() != "number")') THEN 'step_starts are no times'
        WHEN one.step <> greatest(steps - 1, 0) THEN format('it is at step %s, and the row at %s', steps - 1, one.step)
        WHEN jsonb_typeof(one.plan -> 'steps') = 'array' AND steps > jsonb_array_length(one.plan -> 'steps') THEN 'it has been in more steps than the plan has'
        WHEN is_over <> (one.finished_at IS NOT NULL) THEN 'finished_at does not fit its phase'
        WHEN one.announced_at IS NOT NULL AND NOT is_over AND one.kind = 'rollout' AND one.guard_id IS NULL
            THEN 'announced_at is the time of an end, and it is open'
    END;
END $$;

CREATE OR REPLACE FUNCTION understudy_notify_rollout() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_RELID = 'Rollout'::REGCLASS AND EXISTS (SELECT FROM Subscription) THEN
        PERFORM understudy_notify(
            -- A version beside further arms is watched by a row of its own, whose guard_id is set.
            CASE WHEN NEW.guard_id IS NULL THEN NEW.kind ELSE 'guard' END || '.'
                || CASE TG_OP WHEN 'INSERT' THEN 'started' ELSE lower(NEW.phase) END,
            CASE NEW.phase WHEN 'FAILED' THEN 'warning' ELSE 'info' END, NEW.model_name,
            jsonb_build_object(
                'rollout', NEW.id, 'champion', understudy_version_label(NEW.champion_version),
                'challenger', understudy_version_label(NEW.challenger_version), 'phase', NEW.phase, 'step', NEW.step,
                'waiting_for', NEW.state -> 'waiting_for', 'started_by', NEW.started_by,
                'reason', coalesce(nullif(NEW.state ->> 'reason', ''), NEW.reason)));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of rollout %: %', NEW.id, SQLERRM;
    RETURN NULL;
END $$;

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_notify_rollout() SET search_path = %I, pg_temp', current_schema());
    ALTER FUNCTION understudy_notify_rollout() SET lock_timeout = '200ms';
    EXECUTE format('ALTER FUNCTION understudy_rollout_problem(Rollout) SET search_path = %I, pg_temp', current_schema());
END $$;
