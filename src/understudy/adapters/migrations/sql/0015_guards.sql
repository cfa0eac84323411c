-- A split without a rollout is a guarded split: a guard is a rollout that moves nothing. It has a row of Rollout, which is
-- opened and ended by the statement that makes and ends the split, or that sets another champion, and windows, verdicts and
-- events like any other.

-- rollback: the monitor takes a share back that does worse. alert: it alerts, and changes nothing. off: no guard is opened.
-- Policies that are there keep their promise that only an operator moves them.
ALTER TABLE ServingPolicy ADD COLUMN guard VARCHAR(20) NOT NULL DEFAULT 'alert'
    CONSTRAINT servingpolicy_guard_check CHECK (guard IN ('rollback', 'alert', 'off'));
ALTER TABLE ServingPolicy ALTER COLUMN guard SET DEFAULT 'rollback';
ALTER TABLE Rollout ADD COLUMN kind VARCHAR(20) NOT NULL DEFAULT 'rollout'
    CONSTRAINT rollout_kind_check CHECK (kind IN ('rollout', 'guard'));

-- -- Rollout ------------------------------------------------------------------------------------------------------------

-- As before, but for announced_at. The release before looks at rows whose end it has not announced: it must let an open
-- guard alone, which it would take for a rollout, so the end of a guard counts as announced until it has ended.
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

-- As before, and the kind does not change either.
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
CREATE OR REPLACE TRIGGER rollout_guard BEFORE INSERT OR DELETE OR UPDATE OF id, kind, model_name, champion_version,
        challenger_version, plan, state, phase, step, finished_at, announced_at ON Rollout
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_rollout();

-- -- guards -------------------------------------------------------------------------------------------------------------

CREATE FUNCTION understudy_tell_guard(guard BIGINT, at_phase TEXT, what TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO RolloutEvent (rollout_id, step, phase, reason, code_version, actor)
    VALUES (guard, 0, at_phase, what, 'database', understudy_actor())
$$;

-- Opens the guard of a policy and returns its id; NULL when another session has just opened one. It watches the challenger
-- beside the champion, or, where `before` is the champion before, the champion beside what that one did. The plan is what the
-- release before can read: of a split one step at the share so far, and the champion's place, to which a guard never comes.
CREATE FUNCTION understudy_open_guard(policy ServingPolicy, before BIGINT DEFAULT NULL) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    guard      BIGINT := nextval('rollout_id_seq');
    control_id BIGINT := coalesce(before, policy.champion_version);
    watched_id BIGINT := CASE WHEN before IS NULL THEN policy.challenger_version ELSE policy.champion_version END;
    control    TEXT := (SELECT version FROM ModelVersion WHERE id = control_id);
    watched    TEXT := (SELECT version FROM ModelVersion WHERE id = watched_id);
    opened     TEXT := CASE WHEN before IS NULL THEN 'PROGRESSING' ELSE 'PROMOTING' END;
    began      FLOAT8 := extract(epoch FROM now());
    last_step  JSONB := '{"weight_percent": 100, "dwell_seconds": 0, "min_requests": 0}';
BEGIN
    INSERT INTO Rollout (id, kind, model_name, champion_version, challenger_version, plan, salt, salt_before, reason,
                         started_by, announced_at, phase, state)
    VALUES (guard, 'guard', policy.model_name, control_id, watched_id,
        jsonb_build_object('maximum_seconds', 10368000) || CASE WHEN before IS NOT NULL
            THEN jsonb_build_object('strategy', 'blue_green', 'steps', jsonb_build_array(last_step))
            ELSE jsonb_build_object('strategy', 'canary', 'steps', jsonb_build_array(
                last_step || jsonb_build_object('weight_percent', least(policy.challenger_weight, 99)), last_step)) END,
        policy.salt, policy.salt, nullif(current_setting('understudy.reason', TRUE), ''), understudy_actor(), now(), opened,
        jsonb_build_object('rollout_id', guard, 'model_name', policy.model_name, 'champion', control,
            'challenger', watched, 'started_at', began, 'limit_from', began, 'phase', opened,
            'step_starts', '[]'::JSONB, 'waiting_for', NULL, 'reason', '',
            'promoted_at', CASE WHEN before IS NOT NULL THEN began END, 'split_from', 0,
            'policy', jsonb_build_object('weight_percent', policy.challenger_weight, 'generation', policy.generation,
                'champion', (SELECT version FROM ModelVersion WHERE id = policy.champion_version),
                'challenger', (SELECT version FROM ModelVersion WHERE id = policy.challenger_version),
                'rollout_id', guard, 'salt', policy.salt)))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM understudy_tell_guard(guard, opened, CASE WHEN before IS NULL
        THEN format('guards version %s at %s %% beside champion %s, from generation %s on', watched,
                    policy.challenger_weight, control, policy.generation)
        ELSE format('guards champion %s, and keeps version %s warm, from generation %s on', watched, control,
                    policy.generation) END);
    RETURN guard;
END $$;

-- Ends the open guard of a model, if it has one: as failed if it had failed, and only an operator was to act. Waits for no
-- session: a transaction open on the guard must not keep the weight from going to 0. The monitor then ends it.
CREATE FUNCTION understudy_end_guard(model TEXT, why TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
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

-- Fires after the guards of the policy (triggers of one kind go by their names), so that what it reads is valid.
CREATE FUNCTION understudy_watch_split() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
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
CREATE TRIGGER servingpolicy_watch_split BEFORE INSERT OR UPDATE ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_watch_split();
CREATE TRIGGER servingpolicy_watch_end AFTER DELETE ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_watch_split();

-- Before servingpolicy_arms_guard, which refuses further arms beside a rollout: a guard gives way to them.
CREATE FUNCTION understudy_leave_guard() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF EXISTS (SELECT FROM Rollout WHERE id = NEW.rollout_id AND kind = 'guard') THEN
        NEW.rollout_id := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER servingpolicy_arms_end_watch BEFORE UPDATE ON ServingPolicy
    FOR EACH ROW WHEN (NEW.rollout_id IS NOT NULL AND NEW.arms <> '[]' AND OLD.arms = '[]')
    EXECUTE FUNCTION understudy_leave_guard();

-- A rollout that starts takes the split over.
CREATE FUNCTION understudy_take_over_guard() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM understudy_end_guard(NEW.model_name, format('over: rollout %s takes over', NEW.id));
    RETURN NEW;
END $$;
CREATE TRIGGER rollout_take_over BEFORE INSERT ON Rollout
    FOR EACH ROW WHEN (NEW.kind = 'rollout') EXECUTE FUNCTION understudy_take_over_guard();

-- As before, but a guard is no rollout: what goes with a change by hand is taken back as such.
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

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_rollback', 'understudy_rollout_problem', 'understudy_guard_rollout', 'understudy_tell_guard',
            'understudy_open_guard', 'understudy_end_guard', 'understudy_watch_split', 'understudy_leave_guard',
            'understudy_take_over_guard')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
