-- Further arms have no guard. What theirs found goes with them; their windows stay until age ends them.
CREATE OR REPLACE TRIGGER rollout_take_over BEFORE INSERT ON Rollout
    FOR EACH ROW WHEN (NEW.kind = 'rollout') EXECUTE FUNCTION understudy_take_over_guard();
CREATE OR REPLACE TRIGGER servingpolicy_arms_end_watch BEFORE UPDATE ON ServingPolicy
    FOR EACH ROW WHEN (NEW.rollout_id IS NOT NULL AND NEW.arms <> '[]' AND OLD.arms = '[]')
    EXECUTE FUNCTION understudy_leave_guard();

CREATE OR REPLACE FUNCTION understudy_watch_split() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    watched     Rollout;
    is_split    BOOLEAN;
    is_way_back BOOLEAN := FALSE;
    replaced    BIGINT; -- the champion before, where this statement sets another one
    why         TEXT;
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM understudy_end_guard(OLD.model_name, 'over: the model has no policy any more');
        RETURN NULL;
    END IF;
    IF NEW.guard IS NULL OR NEW.guard NOT IN ('rollback', 'alert', 'off') THEN
        PERFORM understudy_refuse(
            format('guard of %s is rollback, alert or off, not %s', NEW.model_name, coalesce(left(NEW.guard, 20), 'NULL')),
            format('To have a share that does worse taken back: UPDATE ServingPolicy SET guard = ''rollback'' '
                   'WHERE model_name = %L', NEW.model_name));
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.generation = OLD.generation THEN
            RETURN NEW;
        END IF;
    ELSIF EXISTS (SELECT FROM ServingPolicy WHERE model_name = NEW.model_name) THEN
        -- INSERT … ON CONFLICT: the row's update follows, and it is the one that counts.
        RETURN NEW;
    END IF;
    SELECT * INTO watched FROM Rollout
    WHERE model_name = NEW.model_name AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
    IF watched.kind = 'rollout' THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.champion_version <> OLD.champion_version THEN
        -- Who goes back to the champion before is not watched: nothing may undo a rollback.
        is_way_back := coalesce((SELECT way_back = NEW.champion_version FROM understudy_newest_move(NEW.model_name)), FALSE)
            OR EXISTS (SELECT FROM Rollout WHERE id = OLD.rollout_id AND champion_version = NEW.champion_version
                       AND challenger_version = OLD.champion_version);
        IF NOT is_way_back THEN
            replaced := OLD.champion_version;
        END IF;
    END IF;
    -- Further arms share their windows with no champion's calls of their own yet: a policy with them has no guard.
    is_split := NEW.challenger_weight > 0;
    IF watched.id IS NOT NULL THEN
        why := CASE WHEN NEW.guard = 'off' THEN 'guard is off'
                    WHEN NEW.arms <> '[]' THEN 'there are further arms'
                    WHEN is_way_back THEN 'the champion before is back'
                    WHEN replaced IS NOT NULL THEN 'another champion'
                    WHEN watched.state ->> 'promoted_at' IS NOT NULL THEN CASE WHEN is_split THEN 'a challenger has a share' END
                    WHEN NEW.challenger_version IS NULL THEN 'there is no challenger any more'
                    WHEN NOT is_split THEN 'weight 0'
                    WHEN NEW.challenger_version <> watched.challenger_version THEN 'another challenger'
                    WHEN NEW.salt IS DISTINCT FROM watched.salt THEN 'another salt, so other entities meet the challenger' END;
        IF why IS NULL THEN
            NEW.rollout_id := watched.id;
            RETURN NEW;
        END IF;
        PERFORM understudy_end_guard(NEW.model_name, format('over: %s in generation %s', why, NEW.generation));
    END IF;
    IF NEW.guard <> 'off' AND NEW.arms = '[]' AND (is_split OR replaced IS NOT NULL) THEN
        NEW.rollout_id := understudy_open_guard(NEW, CASE WHEN NOT is_split THEN replaced END);
    ELSIF EXISTS (SELECT FROM Rollout WHERE id = NEW.rollout_id AND kind = 'guard') THEN
        NEW.rollout_id := NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION understudy_leave_guard() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF EXISTS (SELECT FROM Rollout WHERE id = NEW.rollout_id AND kind = 'guard') THEN
        NEW.rollout_id := NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION understudy_end_guard(model TEXT, why TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    one   Rollout;
    ended TEXT := 'SUCCEEDED';
    said  TEXT := why;
BEGIN
    SELECT * INTO one FROM Rollout
    WHERE model_name = model AND kind = 'guard' AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF one.phase = 'WAITING' AND one.state ->> 'waiting_for' IS NULL THEN
        ended := 'FAILED';
        said := concat_ws('; ', one.state ->> 'reason', why);
    END IF;
    UPDATE Rollout
    SET phase = ended, finished_at = now(), announced_at = NULL, revision = revision + 1,
        state = state || jsonb_build_object('phase', ended, 'waiting_for', NULL, 'reason', said)
    WHERE id = one.id;
    PERFORM understudy_tell_guard(one.id, ended, said);
END $$;

CREATE OR REPLACE FUNCTION understudy_rollback(model TEXT, why TEXT DEFAULT NULL) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    policy  ServingPolicy;
    current Rollout;
    newest  RECORD;
    way     ModelVersion;
    said    TEXT;
    back    TEXT; -- The audit says of itself that this was no choice of a version but the way back.
    did     TEXT := 'nothing: no challenger has weight, and there is no change of champion to take back';
BEGIN
    SELECT * INTO policy FROM ServingPolicy WHERE model_name = model FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('%s has no serving policy, so there is nothing to roll back', model),
                                  'The models there are: SELECT model FROM understudy_status');
    END IF;
    IF coalesce(why, '') <> '' THEN
        PERFORM set_config('understudy.reason', why, TRUE);
    END IF;
    said := current_setting('understudy.reason', TRUE);
    SELECT * INTO current FROM Rollout
    WHERE model_name = model AND kind = 'rollout' AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
    SELECT * INTO newest FROM understudy_newest_move(model);
    SELECT * INTO way FROM ModelVersion WHERE id = newest.way_back;
    back := concat_ws(': ', 'rollback to the champion before', nullif(said, ''));
    IF policy.challenger_weight > 0 OR policy.arms <> '[]' THEN
        did := CASE WHEN policy.arms = '[]' THEN 'weight 0' ELSE 'weight 0 and the end of all further arms' END;
        IF way.status = 'retired' THEN
            way := NULL;
        ELSIF way.id IS NOT NULL THEN
            did := did || ', previous champion back';
            PERFORM set_config('understudy.reason', back, TRUE);
        END IF;
        UPDATE ServingPolicy SET challenger_weight = 0, arms = '[]', champion_version = coalesce(way.id, champion_version),
            challenger_version = nullif(challenger_version, way.id), shadow_version = nullif(shadow_version, way.id)
        WHERE model_name = model RETURNING * INTO policy;
    ELSIF policy.champion_version = current.challenger_version AND policy.rollout_id = current.id
          AND newest.was = current.champion_version AND newest.is_now = current.challenger_version THEN
        -- A shadow must not keep its version from answering: the operator who gave it that role did not mean the rollback.
        UPDATE ServingPolicy SET champion_version = current.champion_version, challenger_version = current.challenger_version,
            shadow_version = nullif(shadow_version, current.champion_version)
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    ELSIF policy.champion_version = current.champion_version THEN
        did := format('nothing: rollout %s has no share of the traffic, and the champion was there before it', current.id);
    ELSIF way.status = 'retired' THEN
        did := format('nothing: version %s, the champion before, is retired', way.version);
    ELSIF way.id IS NOT NULL THEN
        PERFORM set_config('understudy.reason', back, TRUE);
        UPDATE ServingPolicy SET champion_version = way.id, challenger_version = nullif(challenger_version, way.id),
            shadow_version = nullif(shadow_version, way.id)
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    END IF;
    PERFORM set_config('understudy.reason', coalesce(said, ''), TRUE);
    RETURN jsonb_build_object('model', model, 'did', did, 'generation', policy.generation,
        'champion', (SELECT version FROM ModelVersion WHERE id = policy.champion_version),
        'challenger', (SELECT version FROM ModelVersion WHERE id = policy.challenger_version),
        'rollout_id', current.id,
        'without_calls', (SELECT coalesce(jsonb_agg(id), '[]') FROM ModelVersion WHERE model_name = model
                          AND id NOT IN (policy.champion_version, coalesce(policy.shadow_version, 0))));
END $$;

UPDATE Rollout
SET phase = 'SUCCEEDED', finished_at = now(), state = state || '{"phase": "SUCCEEDED", "waiting_for": null}'
WHERE guard_id IS NOT NULL AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
DELETE FROM Rollout WHERE guard_id IS NOT NULL;
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
CREATE OR REPLACE TRIGGER rollout_guard BEFORE INSERT OR DELETE OR UPDATE OF id, kind, model_name, champion_version,
        challenger_version, plan, state, phase, step, finished_at, announced_at ON Rollout
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_rollout();

CREATE OR REPLACE FUNCTION understudy_guard_rollout() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    problem TEXT;
    changed TEXT;
BEGIN
    IF TG_OP = 'DELETE' THEN
        -- One that cannot be read cannot be ended either: its row would be in the way of the next one for ever.
        IF OLD.phase IN ('PROGRESSING', 'WAITING', 'PROMOTING') AND understudy_rollout_problem(OLD) IS NULL THEN
            PERFORM understudy_refuse(
                format('rollout %s of %s is open and cannot be deleted', OLD.id, OLD.model_name),
                format('End it first: understudy rollout abort %s', OLD.model_name));
        END IF;
        RETURN OLD;
    END IF;
    IF TG_OP = 'INSERT' THEN
        -- The plan alone: the row has its state by the end of the transaction, when the rollout has its role.
        IF coalesce(jsonb_typeof(NEW.plan -> 'steps'), 'null') <> 'array' OR jsonb_path_exists(NEW.plan,
            '$.steps[*] ? (@.type() != "object" || !(@.weight_percent.type() == "number"))')
            OR jsonb_path_exists(NEW.plan, '$.steps ? (@.size() == 0)') THEN
            PERFORM understudy_refuse_rollout(NEW, 'its plan has no steps');
        END IF;
        RETURN NEW;
    END IF;
    changed := CASE WHEN NEW.id IS DISTINCT FROM OLD.id THEN 'id'
                    WHEN NEW.kind IS DISTINCT FROM OLD.kind THEN 'kind'
                    WHEN NEW.model_name IS DISTINCT FROM OLD.model_name THEN 'model_name'
                    WHEN NEW.champion_version IS DISTINCT FROM OLD.champion_version THEN 'champion_version'
                    WHEN NEW.challenger_version IS DISTINCT FROM OLD.challenger_version THEN 'challenger_version'
                    WHEN NEW.plan IS DISTINCT FROM OLD.plan THEN 'plan' END;
    IF changed IS NOT NULL THEN
        PERFORM understudy_refuse_rollout(OLD, format('its %s does not change any more', changed));
    END IF;
    problem := understudy_rollout_problem(NEW);
    IF problem IS NOT NULL THEN
        PERFORM understudy_refuse_rollout(OLD, format('nobody could read its state: %s', problem));
    END IF;
    RETURN NEW;
END $$;

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
        WHEN one.announced_at IS NOT NULL AND NOT is_over AND one.kind = 'rollout' THEN 'announced_at is the time of an end, and it is open'
    END;
END $$;

DROP FUNCTION understudy_why_arms_end(ServingPolicy, ServingPolicy);
DROP FUNCTION understudy_watch_arms(ServingPolicy);
DROP FUNCTION understudy_finish_guard(BIGINT, TEXT);
DROP FUNCTION understudy_shares(ServingPolicy);
DROP INDEX rollout_one_open_per_model;
CREATE UNIQUE INDEX rollout_one_open_per_model ON Rollout (model_name) WHERE phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
ALTER TABLE ServingPolicy DROP COLUMN guard_id;
ALTER TABLE Rollout DROP COLUMN guard_id;

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_rollback', 'understudy_rollout_problem', 'understudy_guard_rollout', 'understudy_end_guard',
            'understudy_watch_split', 'understudy_leave_guard')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
