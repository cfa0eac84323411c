-- Plain SQL is a user interface. What it may not do is refused before any CHECK or NOT NULL speaks, in words that name
-- the model and the version's text, with DETAIL E203 and a statement that helps.

CREATE FUNCTION understudy_refuse(why TEXT, next_step TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = why, DETAIL = 'E203', HINT = next_step, ERRCODE = 'check_violation';
END $$;

-- Who is named in the audit: the session's login role. Its own claim (the setting understudy.actor) counts only from a
-- role that is trusted to speak for others; otherwise anybody could sign with another's name.
CREATE FUNCTION understudy_actor() RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN claimed <> '' AND (
               (SELECT rolsuper FROM pg_roles WHERE rolname = SESSION_USER)
               OR (SELECT datdba FROM pg_database WHERE datname = current_database())
                  = (SELECT oid FROM pg_roles WHERE rolname = SESSION_USER)
               OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'understudy_trusted'
                          AND pg_has_role(SESSION_USER, oid, 'member'))
           ) THEN claimed ELSE SESSION_USER::TEXT END
    FROM (SELECT coalesce(current_setting('understudy.actor', TRUE), '') AS claimed) AS session
$$;

CREATE FUNCTION understudy_touch(changed_model TEXT, changed_source TEXT, new_generation BIGINT DEFAULT 0) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO PolicyChange AS known (model_name, source, generation, changed_xid)
    VALUES (changed_model, changed_source, new_generation, pg_current_xact_id())
    ON CONFLICT (model_name, source) DO UPDATE
    SET generation = greatest(known.generation, excluded.generation),
        changed_xid = excluded.changed_xid,
        changed_at = now();
    PERFORM pg_notify('understudy_policy', json_build_object('model', changed_model)::TEXT);
END $$;

-- -- ServingPolicy ----------------------------------------------------------------------------------------------------

CREATE FUNCTION understudy_guard_policy() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    model      TEXT := NEW.model_name;
    here       TEXT := format(' WHERE model_name = %L', NEW.model_name);
    look_up    TEXT := format('Look the id up: SELECT id, version, status FROM ModelVersion WHERE model_name = %L',
                              NEW.model_name);
    champion   TEXT;
    challenger TEXT;
    asked      RECORD;
    known      RECORD;
    category   RECORD;
    named      BIGINT[] := ARRAY[NEW.champion_version, NEW.challenger_version, NEW.shadow_version];
    had        BIGINT[];
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.model_name IS DISTINCT FROM OLD.model_name THEN
        PERFORM understudy_refuse(
            format('the policy of %s cannot become the policy of %s', OLD.model_name, coalesce(NEW.model_name, 'no model')),
            format('Give the other model a policy of its own: INSERT INTO ServingPolicy (model_name, champion_version) '
                   'VALUES (%L, …)', NEW.model_name));
    END IF;
    IF NEW.challenger_weight IS NULL OR NEW.challenger_weight NOT BETWEEN 0 AND 100 THEN
        PERFORM understudy_refuse(
            format('challenger_weight of %s is a percentage from 0 to 100, not %s', model,
                   coalesce(NEW.challenger_weight::TEXT, 'NULL')),
            'To send the challenger nothing: UPDATE ServingPolicy SET challenger_weight = 0' || here);
    END IF;
    IF NEW.shadow_percent IS NULL OR NEW.shadow_percent NOT BETWEEN 0 AND 100 THEN
        PERFORM understudy_refuse(
            format('shadow_percent of %s is a percentage from 0 to 100, not %s', model,
                   coalesce(NEW.shadow_percent::TEXT, 'NULL')),
            'To show the shadow everything: UPDATE ServingPolicy SET shadow_percent = 100' || here);
    END IF;
    IF NEW.champion_version IS NULL THEN
        PERFORM understudy_refuse(format('%s needs a champion: champion_version is NULL', model), look_up);
    END IF;
    IF NEW.salt = '' THEN
        PERFORM understudy_refuse(format('the salt of %s is empty', model),
                                  'For the formula without a salt: UPDATE ServingPolicy SET salt = NULL' || here);
    END IF;

    -- Locked in one order, so that two policies cannot deadlock, and before their status is read, so that no other
    -- session can retire a version in the moment in which it gets a role. A version that keeps its role is not locked:
    -- a session with a transaction open on it must not be able to keep the weight from going to 0.
    IF TG_OP = 'UPDATE' THEN
        had := ARRAY[OLD.champion_version, OLD.challenger_version, OLD.shadow_version];
    END IF;
    PERFORM 1 FROM ModelVersion
    WHERE id IN (SELECT unnest(ARRAY[is_now, was]) FROM unnest(named, had) AS roles (is_now, was)
                 WHERE is_now IS DISTINCT FROM was)
    ORDER BY id FOR NO KEY UPDATE;
    FOR asked IN
        SELECT * FROM (VALUES ('champion', NEW.champion_version), ('challenger', NEW.challenger_version),
                              ('shadow', NEW.shadow_version)) AS roles (role, id)
        WHERE roles.id IS NOT NULL
    LOOP
        SELECT * INTO known FROM ModelVersion WHERE ModelVersion.id = asked.id;
        IF NOT FOUND THEN
            PERFORM understudy_refuse(
                format('%s_version of %s: there is no model version with the id %s', asked.role, model, asked.id), look_up);
        ELSIF known.model_name <> model THEN
            PERFORM understudy_refuse(
                format('version %s is of model %s, not %s', known.version, known.model_name, model), look_up);
        ELSIF known.status = 'retired' THEN
            PERFORM understudy_refuse(
                format('version %s of %s is retired and cannot be %s', known.version, model, asked.role),
                format('Bring it back first: UPDATE ModelVersion SET status = ''staging'' WHERE model_name = %L '
                       'AND version = %L', model, known.version));
        END IF;
        IF asked.role = 'champion' THEN
            champion := known.version;
        ELSIF asked.role = 'challenger' THEN
            challenger := known.version;
        END IF;
    END LOOP;

    IF NEW.challenger_version = NEW.champion_version THEN
        PERFORM understudy_refuse(
            format('version %s of %s cannot be challenger and champion at once', champion, model),
            format('To make it the champion: UPDATE ServingPolicy SET champion_version = %s, challenger_version = NULL, '
                   'challenger_weight = 0', NEW.champion_version) || here);
    END IF;
    IF NEW.shadow_version IN (NEW.champion_version, NEW.challenger_version) THEN
        PERFORM understudy_refuse(
            format('version %s of %s cannot be shadow and %s at once',
                   CASE NEW.shadow_version WHEN NEW.champion_version THEN champion ELSE challenger END, model,
                   CASE NEW.shadow_version WHEN NEW.champion_version THEN 'champion' ELSE 'challenger' END),
            'Take the shadow away in the same statement: UPDATE ServingPolicy SET shadow_version = NULL, …' || here);
    END IF;
    IF NEW.challenger_weight > 0 AND NEW.challenger_version IS NULL THEN
        PERFORM understudy_refuse(
            format('%s has no challenger to answer %s %% of its calls', model, NEW.challenger_weight),
            format('Name one with its weight: UPDATE ServingPolicy SET challenger_version = (SELECT id FROM ModelVersion '
                   'WHERE model_name = %L AND version = ''…''), challenger_weight = %s%s; or send it nothing: '
                   'challenger_weight = 0', model, NEW.challenger_weight, here));
    END IF;
    IF NEW.category_roles IS NULL OR jsonb_typeof(NEW.category_roles) <> 'object' THEN
        PERFORM understudy_refuse(
            format('category_roles of %s is an object of category and role', model),
            'For none: UPDATE ServingPolicy SET category_roles = ''{}''' || here);
    END IF;
    FOR category IN SELECT * FROM jsonb_each(NEW.category_roles) LOOP
        IF category.key = '' OR category.value NOT IN ('"champion"', '"challenger"') THEN
            PERFORM understudy_refuse(
                format('category_roles of %s: the role of %s is champion or challenger, not %s', model,
                       quote_ident(category.key), left(category.value::TEXT, 40)),
                format('For example: UPDATE ServingPolicy SET category_roles = ''{"%s": "champion"}''',
                       coalesce(nullif(category.key, ''), 'vip')) || here);
        END IF;
    END LOOP;

    -- These four are ours, whatever the statement says.
    IF TG_OP = 'INSERT' THEN
        -- Waits for a deletion of the same policy that is not committed yet, so that its generation is known.
        SELECT generation INTO known FROM PolicyChange WHERE model_name = NEW.model_name AND source = 'policy' FOR UPDATE;
        NEW.generation := coalesce(known.generation, 0) + 1;
        NEW.previous_champion := NULL;
    ELSE
        NEW.generation := OLD.generation;
        NEW.previous_champion := OLD.previous_champion;
        NEW.updated_at := OLD.updated_at;
        NEW.updated_by := OLD.updated_by;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
        NEW.generation := OLD.generation + 1;
        IF NEW.champion_version <> OLD.champion_version THEN
            NEW.previous_champion := OLD.champion_version;
        END IF;
    END IF;
    NEW.updated_at := now();
    NEW.updated_by := understudy_actor();
    RETURN NEW;
END $$;

CREATE FUNCTION understudy_record_policy() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    gone   BIGINT[] := '{}';
    roles  BIGINT[] := '{}';
    model  TEXT;
    number BIGINT;
BEGIN
    IF TG_OP = 'UPDATE' AND NEW IS NOT DISTINCT FROM OLD THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' THEN
        model := OLD.model_name;
        number := OLD.generation + 1;
    ELSE
        model := NEW.model_name;
        number := NEW.generation;
        roles := ARRAY[NEW.champion_version, NEW.challenger_version, NEW.shadow_version];
    END IF;
    IF TG_OP <> 'INSERT' THEN
        gone := ARRAY[OLD.champion_version, OLD.challenger_version, OLD.shadow_version];
    END IF;
    INSERT INTO PolicyAudit (model_name, generation, actor, via, reason, action, before, after)
    VALUES (model, number, understudy_actor(),
            coalesce(nullif(current_setting('understudy.via', TRUE), ''),
                     nullif(current_setting('application_name', TRUE), ''), 'sql'),
            nullif(current_setting('understudy.reason', TRUE), ''), lower(TG_OP),
            CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END);
    PERFORM understudy_touch(model, 'policy', number);

    UPDATE ModelVersion SET status = 'staging'
    WHERE id = ANY (gone) AND id <> ALL (array_remove(roles, NULL)) AND status NOT IN ('staging', 'retired');
    UPDATE ModelVersion
    SET status = CASE id WHEN roles[1] THEN 'champion' WHEN roles[2] THEN 'challenger' ELSE 'shadow' END,
        deployed_at = coalesce(deployed_at, now())
    WHERE id = ANY (roles) AND (deployed_at IS NULL OR status IS DISTINCT FROM
          CASE id WHEN roles[1] THEN 'champion' WHEN roles[2] THEN 'challenger' ELSE 'shadow' END);
    RETURN NULL;
END $$;

CREATE FUNCTION understudy_refuse_truncate() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM understudy_refuse(format('TRUNCATE would empty %s without a trace in the audit', TG_TABLE_NAME),
                              format('Delete the rows you mean: DELETE FROM %s WHERE model_name = ''…''', TG_TABLE_NAME));
    RETURN NULL;
END $$;

CREATE TRIGGER servingpolicy_guard BEFORE INSERT OR UPDATE ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_policy();
CREATE TRIGGER servingpolicy_record AFTER INSERT OR UPDATE OR DELETE ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_record_policy();
CREATE TRIGGER servingpolicy_no_truncate BEFORE TRUNCATE ON ServingPolicy
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_refuse_truncate();

-- -- ModelVersion, ModelEndpoint, ApiKey ------------------------------------------------------------------------------

CREATE FUNCTION understudy_guard_version() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    role    TEXT;
    label   TEXT := format('version %s of %s', OLD.version, OLD.model_name);
    changed TEXT;
BEGIN
    SELECT CASE OLD.id WHEN champion_version THEN 'champion' WHEN challenger_version THEN 'challenger' ELSE 'shadow' END
    INTO role FROM ServingPolicy
    WHERE model_name = OLD.model_name AND OLD.id IN (champion_version, challenger_version, shadow_version);
    IF role IS NOT NULL AND (TG_OP = 'DELETE' OR NEW.status = 'retired') THEN
        PERFORM understudy_refuse(
            format('%s is the %s and cannot be %s', label, role, CASE TG_OP WHEN 'DELETE' THEN 'deleted' ELSE 'retired' END),
            format('Take its role away first: UPDATE ServingPolicy SET %s WHERE model_name = %L',
                   CASE role WHEN 'champion' THEN 'champion_version = …'
                             WHEN 'challenger' THEN 'challenger_version = NULL, challenger_weight = 0'
                             ELSE 'shadow_version = NULL' END, OLD.model_name));
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status THEN
        IF role IS NOT NULL AND NEW.status IS DISTINCT FROM role THEN
            PERFORM understudy_refuse(
                format('%s is the %s: its status follows ServingPolicy', label, role),
                format('Change the policy: UPDATE ServingPolicy SET … WHERE model_name = %L', OLD.model_name));
        ELSIF role IS NULL AND NEW.status IN ('champion', 'challenger', 'shadow') THEN
            PERFORM understudy_refuse(
                format('%s does not become %s by its status: that follows ServingPolicy', label, NEW.status),
                format('Change the policy: UPDATE ServingPolicy SET %s_version = %s WHERE model_name = %L', NEW.status,
                       OLD.id, OLD.model_name));
        END IF;
    END IF;
    IF OLD.deployed_at IS NOT NULL THEN
        -- Answers are logged and cached under this version: it must go on meaning what it meant.
        changed := CASE WHEN NEW.model_name IS DISTINCT FROM OLD.model_name THEN 'model_name'
                        WHEN NEW.version IS DISTINCT FROM OLD.version THEN 'version'
                        WHEN NEW.artifact_path IS DISTINCT FROM OLD.artifact_path THEN 'artifact_path'
                        WHEN NEW.input_schema IS DISTINCT FROM OLD.input_schema THEN 'input_schema'
                        WHEN NEW.output_schema IS DISTINCT FROM OLD.output_schema THEN 'output_schema'
                        WHEN NEW.backend IS DISTINCT FROM OLD.backend THEN 'backend'
                        WHEN NEW.id IS DISTINCT FROM OLD.id THEN 'id'
                        WHEN OLD.artifact_digest IS NOT NULL
                             AND NEW.artifact_digest IS DISTINCT FROM OLD.artifact_digest THEN 'artifact_digest' END;
        IF changed IS NOT NULL THEN
            PERFORM understudy_refuse(
                format('%s was deployed: its %s does not change any more', label, changed),
                format('Register the next version: INSERT INTO ModelVersion (model_name, version, artifact_path, '
                       'framework, input_schema) VALUES (%L, …)', OLD.model_name));
        END IF;
        NEW.deployed_at := coalesce(NEW.deployed_at, OLD.deployed_at);
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION understudy_touch_version() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        IF TG_OP = 'UPDATE' AND NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NULL;
        END IF;
        PERFORM understudy_touch(OLD.model_name, 'version:' || OLD.id);
        IF TG_OP = 'DELETE' OR NEW.model_name = OLD.model_name THEN
            RETURN NULL;
        END IF;
    END IF;
    PERFORM understudy_touch(NEW.model_name, 'version:' || NEW.id);
    RETURN NULL;
END $$;

CREATE FUNCTION understudy_touch_endpoint() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM understudy_touch(model_name, 'version:' || id) FROM (
        SELECT model_name, id FROM ModelVersion
        WHERE id IN (CASE WHEN TG_OP <> 'INSERT' THEN OLD.model_version_id END,
                     CASE WHEN TG_OP <> 'DELETE' THEN NEW.model_version_id END)
        ORDER BY id) AS touched;
    RETURN NULL;
END $$;

-- Keys belong to no model: the empty name stands for them.
CREATE FUNCTION understudy_touch_keys() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM understudy_touch('', 'keys');
    RETURN NULL;
END $$;

CREATE TRIGGER modelversion_guard BEFORE UPDATE OR DELETE ON ModelVersion
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_version();
CREATE TRIGGER modelversion_touch AFTER INSERT OR UPDATE OR DELETE ON ModelVersion
    FOR EACH ROW EXECUTE FUNCTION understudy_touch_version();
CREATE TRIGGER modelendpoint_touch AFTER INSERT OR UPDATE OR DELETE ON ModelEndpoint
    FOR EACH ROW EXECUTE FUNCTION understudy_touch_endpoint();
CREATE TRIGGER apikey_touch AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON ApiKey
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_touch_keys();

-- -- what only triggers write -------------------------------------------------------------------------------------------

CREATE FUNCTION understudy_guard_audit() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    -- An insert comes from the policy's own trigger (depth 2) or is forged (depth 1).
    IF TG_OP <> 'INSERT' OR pg_trigger_depth() < 2 THEN
        PERFORM understudy_refuse(
            'PolicyAudit is written by the trigger on ServingPolicy and by nobody else, and no row of it changes',
            'Undo a change by another one, with its reason: SET understudy.reason = ''…''; UPDATE ServingPolicy SET … '
            'WHERE model_name = ''…''');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION understudy_guard_change() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 2 THEN
        PERFORM understudy_refuse('PolicyChange is written by triggers only: it keeps generations from going back',
                                  'Change the policy itself: UPDATE ServingPolicy SET … WHERE model_name = ''…''');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER policyaudit_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON PolicyAudit
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_audit();
CREATE TRIGGER policychange_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON PolicyChange
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_change();

-- A TRUNCATE fires no row trigger: proxies would not hear of it, and rows that were shipped would be shipped again.
CREATE TRIGGER modelversion_no_truncate BEFORE TRUNCATE ON ModelVersion
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_refuse_truncate();
CREATE TRIGGER modelendpoint_no_truncate BEFORE TRUNCATE ON ModelEndpoint
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_refuse_truncate();

CREATE FUNCTION understudy_guard_offset() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.spool_id = OLD.spool_id AND (NEW.segment, NEW.byte_offset) >= (OLD.segment, OLD.byte_offset) THEN
            RETURN NEW;
        END IF;
    END IF;
    PERFORM understudy_refuse('SpoolOffset says which rows are in PredictionLog: it only moves forward',
                              'Leave it to the proxies. Rows that could not be written: SELECT * FROM PredictionDeadLetter');
    RETURN NULL;
END $$;

CREATE TRIGGER spooloffset_guard BEFORE UPDATE OR DELETE ON SpoolOffset
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_offset();
CREATE TRIGGER spooloffset_no_truncate BEFORE TRUNCATE ON SpoolOffset
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_refuse_truncate();
