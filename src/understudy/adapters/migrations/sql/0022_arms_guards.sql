-- Further arms are watched as a challenger is: each version that has calls beside further arms has a row of Rollout of its
-- own, which is judged, alerted and taken back by itself, beside the calls of the champion that they share.

-- The guard of a split with further arms, by the id of its first row. In the policy it is what the calls of the split are
-- logged under, in the place of rollout_id: to the release before, which reads all calls of a rollout_id but the champion's
-- as those of one challenger, they are calls of no rollout. In Rollout it marks the rows of the guard's versions. Their kind
-- stays 'rollout', and they count as announced: the release before looks at no such row, where kind = 'guard' would have it
-- judge each one by the calls of all. A later release may make them of kind 'guard'.
ALTER TABLE ServingPolicy ADD COLUMN guard_id BIGINT;
ALTER TABLE Rollout ADD COLUMN guard_id BIGINT;
DROP INDEX rollout_one_open_per_model;
CREATE UNIQUE INDEX rollout_one_open_per_model ON Rollout (model_name)
    WHERE phase IN ('PROGRESSING', 'WAITING', 'PROMOTING') AND guard_id IS NULL;

-- -- Rollout ------------------------------------------------------------------------------------------------------------

-- As before, and an open row of a guard with further arms counts as announced, too.
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

-- As before, and guard_id does not change either.
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
                    WHEN NEW.guard_id IS DISTINCT FROM OLD.guard_id THEN 'guard_id'
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
CREATE OR REPLACE TRIGGER rollout_guard BEFORE INSERT OR DELETE OR UPDATE OF id, kind, guard_id, model_name, champion_version,
        challenger_version, plan, state, phase, step, finished_at, announced_at ON Rollout
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_rollout();

-- -- guards -------------------------------------------------------------------------------------------------------------

-- The versions that have calls beside the champion, with their percent.
CREATE FUNCTION understudy_shares(policy ServingPolicy)
RETURNS TABLE (version_id BIGINT, percent INT) LANGUAGE sql STABLE ROWS 5 AS $$
    SELECT policy.challenger_version, policy.challenger_weight::INT WHERE policy.challenger_weight > 0
    UNION ALL
    SELECT (arm ->> 'version_id')::BIGINT, sum((arm ->> 'last')::INT - (arm ->> 'first')::INT + 1)::INT
    FROM jsonb_array_elements(policy.arms) AS arm GROUP BY 1
$$;

-- Opens the guard of a policy with further arms, a row for each version that has calls, and returns the first one's id. The
-- versions share the alpha of one guard equally (Bonferroni), so that equal ones are taken back in at most 1 % in all.
CREATE FUNCTION understudy_watch_arms(policy ServingPolicy) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    guard     BIGINT;
    own       BIGINT;
    share     RECORD;
    versions  INT := (SELECT count(*) FROM understudy_shares(policy));
    champion  TEXT := (SELECT version FROM ModelVersion WHERE id = policy.champion_version);
    began     FLOAT8 := extract(epoch FROM now());
    last_step JSONB := '{"weight_percent": 100, "dwell_seconds": 0, "min_requests": 0}';
BEGIN
    FOR share IN
        SELECT version_id, percent, version FROM understudy_shares(policy) JOIN ModelVersion ON id = version_id
        ORDER BY version_id IS DISTINCT FROM policy.challenger_version, version_id
    LOOP
        own := nextval('rollout_id_seq');
        guard := coalesce(guard, own);
        INSERT INTO Rollout (id, guard_id, model_name, champion_version, challenger_version, plan, salt, salt_before, reason,
                             started_by, announced_at, state)
        VALUES (own, guard, policy.model_name, policy.champion_version, share.version_id,
            jsonb_build_object('maximum_seconds', 10368000, 'strategy', 'canary',
                'canary_limits', jsonb_build_object('alpha', 0.01 / versions), 'steps', jsonb_build_array(
                    last_step || jsonb_build_object('weight_percent', least(share.percent, 99)), last_step)),
            policy.salt, policy.salt, nullif(current_setting('understudy.reason', TRUE), ''), understudy_actor(), now(),
            jsonb_build_object('rollout_id', own, 'model_name', policy.model_name, 'champion', champion,
                'challenger', share.version, 'started_at', began, 'limit_from', began, 'phase', 'PROGRESSING',
                'step_starts', '[]'::JSONB, 'waiting_for', NULL, 'reason', '', 'promoted_at', NULL, 'split_from', 0,
                'policy', jsonb_build_object('champion', champion, 'challenger', share.version,
                    'weight_percent', share.percent, 'generation', policy.generation, 'rollout_id', own,
                    'salt', policy.salt)));
        PERFORM understudy_tell_guard(own, 'PROGRESSING', format('guards version %s at %s %% beside champion %s, as one of %s, '
            'from generation %s on', share.version, share.percent, champion, versions, policy.generation));
    END LOOP;
    RETURN guard;
END $$;

-- Ends a row of a guard: as failed if it had failed, and only an operator was to act. Waits for no session: a transaction
-- open on the guard must not keep the weight from going to 0. The monitor then ends it.
CREATE FUNCTION understudy_finish_guard(guard BIGINT, why TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    one   Rollout;
    ended TEXT := 'SUCCEEDED';
    said  TEXT := why;
BEGIN
    SELECT * INTO one FROM Rollout WHERE id = guard AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')
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

-- Ends the open guard of a model, if it has one, with all of its rows.
CREATE OR REPLACE FUNCTION understudy_end_guard(model TEXT, why TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    guard BIGINT;
BEGIN
    FOR guard IN
        SELECT id FROM Rollout WHERE model_name = model AND (kind = 'guard' OR guard_id IS NOT NULL)
            AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING') ORDER BY id
    LOOP
        PERFORM understudy_finish_guard(guard, why);
    END LOOP;
END $$;

-- Whether the guard of a split with further arms goes on after a change, and if not, why. It goes on while the versions that
-- have calls were all among its own from the beginning: they share its alpha, so another version begins the next guard.
CREATE FUNCTION understudy_why_arms_end(had ServingPolicy, has ServingPolicy) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN has.guard = 'off' THEN 'guard is off'
        WHEN has.champion_version <> had.champion_version THEN 'another champion'
        WHEN has.salt IS DISTINCT FROM had.salt THEN 'another salt, so other entities meet the versions'
        WHEN has.guard_id IS DISTINCT FROM had.guard_id THEN 'the next guard begins with new evidence'
        WHEN NOT EXISTS (SELECT FROM understudy_shares(has)) THEN 'no version has a share any more'
        WHEN EXISTS (
            SELECT version_id FROM understudy_shares(has)
            EXCEPT SELECT challenger_version FROM Rollout
            WHERE guard_id = had.guard_id AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING'))
            THEN 'another version has a share' END
$$;

-- As before, and a split with further arms has a guard, too.
CREATE OR REPLACE FUNCTION understudy_watch_split() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    watched     Rollout;
    is_split    BOOLEAN;
    is_way_back BOOLEAN := FALSE;
    replaced    BIGINT; -- the champion before, where this statement sets another one
    why         TEXT;
    over        BIGINT;
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
    WHERE model_name = NEW.model_name AND guard_id IS NULL AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
    IF watched.kind = 'rollout' THEN
        NEW.guard_id := NULL;
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
    IF TG_OP = 'UPDATE' AND OLD.guard_id IS NOT NULL THEN
        why := understudy_why_arms_end(OLD, NEW);
        IF why IS NULL THEN
            FOR over IN
                SELECT id FROM Rollout
                WHERE guard_id = OLD.guard_id AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')
                  AND challenger_version NOT IN (SELECT version_id FROM understudy_shares(NEW)) ORDER BY id
            LOOP
                PERFORM understudy_finish_guard(over, format('over: it has no share any more in generation %s', NEW.generation));
            END LOOP;
            RETURN NEW;
        END IF;
        PERFORM understudy_end_guard(NEW.model_name, format('over: %s in generation %s', why, NEW.generation));
    END IF;
    NEW.guard_id := NULL;
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
    IF NEW.guard <> 'off' AND NEW.arms <> '[]' THEN
        NEW.guard_id := understudy_watch_arms(NEW);
    ELSIF NEW.guard <> 'off' AND (is_split OR replaced IS NOT NULL) THEN
        NEW.rollout_id := understudy_open_guard(NEW, CASE WHEN NOT is_split THEN replaced END);
    ELSIF EXISTS (SELECT FROM Rollout WHERE id = NEW.rollout_id AND kind = 'guard') THEN
        NEW.rollout_id := NULL;
    END IF;
    RETURN NEW;
END $$;

-- Before servingpolicy_arms_guard, which refuses further arms beside a rollout: the guard of the challenger alone gives way
-- to theirs. The monitor says with a rollout_id of 0, which is no rollout's, that the next guard is to begin.
CREATE OR REPLACE FUNCTION understudy_leave_guard() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.rollout_id = 0 THEN
        NEW.rollout_id := NULL;
        NEW.guard_id := CASE WHEN OLD.guard_id IS NULL THEN 0 END;
    ELSIF EXISTS (SELECT FROM Rollout WHERE id = NEW.rollout_id AND kind = 'guard') THEN
        NEW.rollout_id := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER servingpolicy_arms_end_watch BEFORE UPDATE ON ServingPolicy
    FOR EACH ROW WHEN (NEW.rollout_id = 0 OR (NEW.rollout_id IS NOT NULL AND NEW.arms <> '[]' AND OLD.arms = '[]'))
    EXECUTE FUNCTION understudy_leave_guard();

-- As before, but a row of a guard is no rollout that starts.
CREATE OR REPLACE TRIGGER rollout_take_over BEFORE INSERT ON Rollout
    FOR EACH ROW WHEN (NEW.kind = 'rollout' AND NEW.guard_id IS NULL) EXECUTE FUNCTION understudy_take_over_guard();

-- As before, but no row of a guard is a rollout.
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
    WHERE model_name = model AND kind = 'rollout' AND guard_id IS NULL AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
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
            'understudy_rollback', 'understudy_rollout_problem', 'understudy_guard_rollout', 'understudy_watch_arms',
            'understudy_finish_guard', 'understudy_end_guard', 'understudy_why_arms_end', 'understudy_watch_split',
            'understudy_leave_guard')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
