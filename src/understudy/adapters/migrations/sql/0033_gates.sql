-- Gates: a plan names steps that wait for a person or a service (plan ->> 'gates'), and a state which step was let pass.

-- As before, and an approval, and what the gates before the next step have come to.
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
                          'waiting_for,reason,promoted_at,split_from,approved_step,gate}'::TEXT[])
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

-- Who started a rollout may not approve a step of it where the plan asks for another person. Names are those that the database
-- signs with, as in the audit; the command line and HTTP cannot get around it. Nor can another started_by in the same statement, which
-- rollout_sign takes back only after this. That a service let a step pass says the monitor alone.
CREATE FUNCTION understudy_guard_approval() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    step   INT := (NEW.state ->> 'approved_step')::INT;
    weight INT := (NEW.plan -> 'steps' -> step ->> 'weight_percent')::INT;
    passed TEXT;
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM understudy_refuse(
            format('the rollout of %s begins with an approval, or with what a service answered', NEW.model_name),
            format('Start it with understudy rollout start %s …: its gates are opened when it comes to them', NEW.model_name));
    END IF;
    IF NEW.state -> 'approved_step' IS DISTINCT FROM OLD.state -> 'approved_step' AND 'another' IN (
            CASE WHEN step = 0 THEN NEW.plan #>> '{gates,before_start,approval}'
                 WHEN weight < 100 THEN NEW.plan #>> '{gates,before_step,approval}' END,
            CASE WHEN weight = 100 THEN NEW.plan #>> '{gates,before_promotion,approval}' END)
        AND left(understudy_actor(), 255) = OLD.started_by THEN
        PERFORM understudy_refuse(
            format('rollout %s of %s was started by %s, and its plan asks for another person''s approval', NEW.id,
                   NEW.model_name, OLD.started_by),
            format('Ask a colleague for it: understudy rollout approve %s --reason "…"', NEW.model_name));
    END IF;
    FOR passed IN
        SELECT jsonb_array_elements_text(coalesce(NEW.state #> '{gate,passed}', '[]'))
        EXCEPT SELECT jsonb_array_elements_text(coalesce(OLD.state #> '{gate,passed}', '[]'))
    LOOP
        IF NEW.plan #>> ARRAY['gates', passed, 'http'] IS NULL
            OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'understudy_monitor'
                       AND NOT pg_has_role(SESSION_USER, oid, 'member'))
            AND NOT pg_has_role(SESSION_USER, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'member') THEN
            PERFORM understudy_refuse(
                format('what a service answers of rollout %s of %s is written by a monitor alone', NEW.id, NEW.model_name),
                format('A person approves in its place: understudy rollout approve %s --reason "…"', NEW.model_name));
        END IF;
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER rollout_approval_new BEFORE INSERT ON Rollout
    FOR EACH ROW WHEN (NEW.state ?| ARRAY['approved_step', 'gate']) EXECUTE FUNCTION understudy_guard_approval();
CREATE TRIGGER rollout_approval BEFORE UPDATE OF state ON Rollout
    FOR EACH ROW WHEN (NEW.state -> 'approved_step' IS NOT NULL AND NEW.state -> 'approved_step' IS DISTINCT FROM OLD.state -> 'approved_step'
        OR NEW.state #> '{gate,passed}' IS NOT NULL AND NEW.state #> '{gate,passed}' IS DISTINCT FROM OLD.state #> '{gate,passed}')
    EXECUTE FUNCTION understudy_guard_approval();

-- Approves the next step of a model's open rollout; the monitor takes it at its next tick, on the evidence of that moment. Only with
-- ahead before the rollout has come to the gate: of two persons who approve the same step the second has not looked at the next one.
CREATE FUNCTION understudy_approve(model TEXT, why TEXT, ahead BOOLEAN DEFAULT FALSE) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
    one    Rollout;
    index  INT;
    weight INT;
    actor  TEXT := left(understudy_actor(), 255);
    before TEXT := current_setting('understudy.reason', TRUE);
    said   TEXT;
BEGIN
    SELECT * INTO one FROM Rollout
    WHERE model_name = model AND kind = 'rollout' AND guard_id IS NULL AND phase IN ('PROGRESSING', 'WAITING')
    ORDER BY id DESC LIMIT 1 FOR UPDATE;
    index := jsonb_array_length(one.state -> 'step_starts');
    weight := (one.plan -> 'steps' -> index ->> 'weight_percent')::INT;
    IF one.id IS NULL OR weight IS NULL OR NOT coalesce(one.plan -> 'gates', '{}') ?| array_remove(ARRAY[
            CASE WHEN index = 0 THEN 'before_start' WHEN weight < 100 THEN 'before_step' END,
            CASE WHEN weight = 100 THEN 'before_promotion' END], NULL) THEN
        PERFORM understudy_refuse(format('no rollout of %s has a gate before its next step', model),
                                  format('See where it stands: understudy rollout show %s', model));
    END IF;
    IF ahead IS NOT TRUE AND coalesce(one.state ->> 'waiting_for', '') NOT IN ('approval', 'gate') THEN
        PERFORM understudy_refuse(format('rollout %s of %s is not at a gate', one.id, model),
                                  format('To approve its next step beforehand: SELECT understudy_approve(%L, ''…'', ahead => TRUE)', model));
    END IF;
    IF coalesce(btrim(why), '') = '' OR length(why) > 1000 THEN
        PERFORM understudy_refuse('an approval has a reason of 1 to 1,000 characters',
                                  format('SELECT understudy_approve(%L, ''…'')', model));
    END IF;
    said := format('approved by %s: %s', actor, why);
    PERFORM set_config('understudy.reason', said, TRUE);
    UPDATE Rollout SET state = state || jsonb_build_object('approved_step', index), revision = revision + 1 WHERE id = one.id;
    PERFORM set_config('understudy.reason', coalesce(before, ''), TRUE);
    INSERT INTO RolloutEvent (rollout_id, step, phase, reason, code_version, actor)
    VALUES (one.id, one.step, one.phase, said, 'sql', actor);
    RETURN said;
END $$;

-- As before, and of a change the words that it is signed with, where the state has none: who approved what, and why.
CREATE OR REPLACE FUNCTION understudy_notify_rollout() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    signed TEXT := CASE TG_OP WHEN 'UPDATE' THEN nullif(current_setting('understudy.reason', TRUE), '') END;
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
                'reason', CASE WHEN signed IS NOT NULL AND NEW.state -> 'approved_step' IS DISTINCT FROM OLD.state -> 'approved_step'
                    THEN signed ELSE coalesce(nullif(NEW.state ->> 'reason', ''), signed, NEW.reason) END));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of rollout %: %', NEW.id, SQLERRM;
    RETURN NULL;
END $$;
-- What gates come to without a change of phase: an approval ahead of its proof, a service that passes, refuses or is late.
CREATE TRIGGER rollout_notify_gate AFTER UPDATE OF state ON Rollout
    FOR EACH ROW WHEN (OLD.phase = NEW.phase AND (
        NEW.state -> 'approved_step' IS NOT NULL AND NEW.state -> 'approved_step' IS DISTINCT FROM OLD.state -> 'approved_step'
        OR NEW.state #> '{gate,is_refused}' = 'true' AND OLD.state #> '{gate,is_refused}' IS DISTINCT FROM 'true'
        OR jsonb_array_length(NEW.state #> '{gate,passed}') > coalesce(jsonb_array_length(OLD.state #> '{gate,passed}'), 0)
        OR NEW.state ->> 'waiting_for' = 'approval' AND OLD.state ->> 'waiting_for' = 'gate'))
    EXECUTE FUNCTION understudy_notify_rollout();

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_notify_rollout() SET search_path = %I, pg_temp', current_schema());
    ALTER FUNCTION understudy_notify_rollout() SET lock_timeout = '200ms';
    EXECUTE format('ALTER FUNCTION understudy_rollout_problem(Rollout) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION understudy_guard_approval() SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION understudy_approve(TEXT, TEXT, BOOLEAN) SET search_path = %I, pg_temp', current_schema());
END $$;
