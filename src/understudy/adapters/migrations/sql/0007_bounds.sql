-- Everything that the control loop writes has a bound, and a rollout's row stays readable. The three indexes read their
-- tables once, and writers wait meanwhile: the outbox and the audit are small; their sender
-- sends outcome events again, and on a table that is too large to be read within a minute the migration gives up and changes nothing.

-- Whether an incident is open is the word of its newest row but for changes, and each alert asks for it.
CREATE INDEX alertoutbox_of_incident ON AlertOutbox (dedup_key, id) WHERE action <> 'change';
CREATE INDEX outcomeevent_received_at ON OutcomeEvent (received_at);
CREATE INDEX policyaudit_changed_at ON PolicyAudit (changed_at);

-- -- what age lets go ---------------------------------------------------------------------------------------------------

-- The guards themselves know the age, so no session deletes a younger row, by whatever way.
CREATE FUNCTION understudy_guard_age() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'policyaudit' THEN
        IF OLD.changed_at < now() - INTERVAL '730 days' THEN
            RETURN OLD;
        END IF;
        PERFORM understudy_refuse(
            'PolicyAudit is written by the trigger on ServingPolicy and by nobody else, and no row of it changes, nor goes '
            'before it is two years old',
            'Undo a change by another one, with its reason: SET understudy.reason = ''…''; UPDATE ServingPolicy SET … '
            'WHERE model_name = ''…''');
    ELSIF TG_TABLE_NAME = 'policychange' THEN
        -- The row of the policy itself holds its generation, which must not go back when the policy is made anew.
        IF OLD.source LIKE 'version:%' AND OLD.changed_at < now() - INTERVAL '30 days' THEN
            RETURN OLD;
        END IF;
        PERFORM understudy_refuse('PolicyChange is written by triggers only: it keeps generations from going back',
                                  'Change the policy itself: UPDATE ServingPolicy SET … WHERE model_name = ''…''');
    ELSE
        IF OLD.updated_at < now() - INTERVAL '365 days' THEN
            RETURN OLD;
        END IF;
        PERFORM understudy_refuse(
            'SpoolOffset says which rows are in PredictionLog: it only moves forward',
            'Leave it to the proxies. Rows that could not be written: SELECT * FROM PredictionDeadLetter');
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER policyaudit_guard BEFORE INSERT OR UPDATE OR TRUNCATE ON PolicyAudit
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_audit();
CREATE TRIGGER policyaudit_guard_age BEFORE DELETE ON PolicyAudit
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_age();
CREATE OR REPLACE TRIGGER policychange_guard BEFORE INSERT OR UPDATE OR TRUNCATE ON PolicyChange
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_change();
CREATE TRIGGER policychange_guard_age BEFORE DELETE ON PolicyChange
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_age();
CREATE OR REPLACE TRIGGER spooloffset_guard BEFORE UPDATE ON SpoolOffset
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_offset();
CREATE TRIGGER spooloffset_guard_age BEFORE DELETE ON SpoolOffset
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_age();

-- -- Rollout ------------------------------------------------------------------------------------------------------------

-- Says why a row cannot be read as core.rollout.state.RolloutState beside its own columns; NULL when it can. A column or a
-- value that a later version adds to the state is added here first.
CREATE FUNCTION understudy_rollout_problem(one Rollout) RETURNS TEXT LANGUAGE plpgsql AS $$
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
        WHEN one.announced_at IS NOT NULL AND NOT is_over THEN 'announced_at is the time of an end, and it is open'
    END;
END $$;

CREATE FUNCTION understudy_refuse_rollout(one Rollout, why TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    PERFORM understudy_refuse(
        format('rollout %s of %s: %s', one.id, one.model_name, why),
        format('Its row is the monitor''s. To end it: understudy rollout abort %s; to send all traffic back at once: SELECT '
               'understudy_rollback(%L); to begin one: understudy rollout start %s VERSION', one.model_name,
               one.model_name, one.model_name));
END $$;

CREATE FUNCTION understudy_guard_rollout() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
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

-- At the end of the transaction: a rollout begins with its row, and has its state when the policy has its id.
CREATE FUNCTION understudy_guard_new_rollout() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    made    Rollout;
    problem TEXT;
BEGIN
    SELECT * INTO made FROM Rollout WHERE id = NEW.id;
    IF FOUND THEN
        problem := understudy_rollout_problem(made);
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM understudy_refuse_rollout(made, format('nobody could read its state: %s', problem));
    END IF;
    RETURN NULL;
END $$;

-- No other column can damage it.
CREATE TRIGGER rollout_guard BEFORE INSERT OR DELETE OR UPDATE OF id, model_name, champion_version, challenger_version,
        plan, state, phase, step, finished_at, announced_at ON Rollout
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_rollout();
CREATE CONSTRAINT TRIGGER rollout_guard_new AFTER INSERT ON Rollout DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_new_rollout();
CREATE TRIGGER rollout_no_truncate BEFORE TRUNCATE ON Rollout
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_refuse_truncate();

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_guard_age', 'understudy_rollout_problem', 'understudy_refuse_rollout', 'understudy_guard_rollout',
            'understudy_guard_new_rollout')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
