-- What decides the answers beside the policy has an audit as well: which servers a version is asked at, its time-out, its
-- status, and which keys let callers in. A table of its own, because each row of PolicyAudit is a whole policy to its readers.

CREATE TABLE RegistryAudit (
    id         BIGSERIAL    PRIMARY KEY,
    changed_at TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    actor      TEXT         NOT NULL,
    via        TEXT         NOT NULL,
    reason     TEXT,
    subject    VARCHAR(10)  NOT NULL CHECK (subject IN ('version', 'endpoint', 'key')),
    subject_id VARCHAR(64)  NOT NULL,   -- the id of the row that changed
    model_name VARCHAR(255),            -- NULL: a key
    version    VARCHAR(100),            -- the version's label; NULL: a key
    action     VARCHAR(10)  NOT NULL CHECK (action IN ('insert', 'update', 'delete')),
    before     JSONB,                   -- of an update the columns that changed, else the whole row
    after      JSONB
);
CREATE INDEX registryaudit_model_name_id_idx ON RegistryAudit (model_name, id DESC);
CREATE INDEX registryaudit_changed_at ON RegistryAudit (changed_at);

-- A long value (a schema may have half a megabyte) is told by its digest, so that a row stays small. Of a key's hash only a
-- part of its own digest is told: those who read the audit have no right to that column.
CREATE FUNCTION understudy_audit_values(one JSONB) RETURNS JSONB LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_object_agg(key, CASE
        WHEN key = 'sha256' THEN to_jsonb(left(encode(sha256(convert_to(value::TEXT, 'UTF8')), 'hex'), 12))
        WHEN octet_length(value::TEXT) > 2048 THEN jsonb_build_object(
            'bytes', octet_length(value::TEXT), 'sha256', encode(sha256(convert_to(value::TEXT, 'UTF8')), 'hex'))
        ELSE value END)
    FROM jsonb_each(one)
$$;

CREATE FUNCTION understudy_record_change(
    what TEXT, changed_id TEXT, model TEXT, label TEXT, did TEXT, was JSONB, is_now JSONB
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    told_before JSONB := was;
    told_after  JSONB := is_now;
BEGIN
    IF did = 'update' THEN
        SELECT jsonb_object_agg(key, was -> key), jsonb_object_agg(key, is_now -> key) INTO told_before, told_after
        FROM jsonb_object_keys(is_now) AS key WHERE was -> key IS DISTINCT FROM is_now -> key;
        IF told_after IS NULL THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO RegistryAudit (actor, via, reason, subject, subject_id, model_name, version, action, before, after)
    VALUES (understudy_actor(),
            coalesce(nullif(current_setting('understudy.via', TRUE), ''),
                     nullif(current_setting('application_name', TRUE), ''), 'sql'),
            nullif(current_setting('understudy.reason', TRUE), ''), what, changed_id, model, label, did,
            understudy_audit_values(told_before), understudy_audit_values(told_after));
END $$;

CREATE FUNCTION understudy_record_version() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    followed CONSTANT TEXT[] := '{status,deployed_at}';
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM understudy_record_change('version', NEW.id::TEXT, NEW.model_name, NEW.version, 'insert', NULL,
                                         to_jsonb(NEW));
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM understudy_record_change('version', OLD.id::TEXT, OLD.model_name, OLD.version, 'delete', to_jsonb(OLD),
                                         NULL);
        RETURN OLD;
    -- A status that follows a policy is in PolicyAudit already.
    ELSIF NEW.status = OLD.status OR 'retired' IN (NEW.status, OLD.status)
          OR to_jsonb(NEW) - followed <> to_jsonb(OLD) - followed THEN
        PERFORM understudy_record_change('version', NEW.id::TEXT, NEW.model_name, NEW.version, 'update', to_jsonb(OLD),
                                         to_jsonb(NEW));
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION understudy_record_endpoint() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    of_version RECORD;
    one        RECORD;
BEGIN
    -- An endpoint that another version gets is gone from the first one: each of the two has its row.
    FOR one IN
        SELECT 'delete' AS did, OLD.id, OLD.model_version_id, to_jsonb(OLD) AS was, NULL::JSONB AS is_now
        WHERE TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND NEW.model_version_id <> OLD.model_version_id)
        UNION ALL
        SELECT 'insert', NEW.id, NEW.model_version_id, NULL, to_jsonb(NEW)
        WHERE TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND NEW.model_version_id <> OLD.model_version_id)
        UNION ALL
        SELECT 'update', NEW.id, NEW.model_version_id, to_jsonb(OLD), to_jsonb(NEW)
        WHERE TG_OP = 'UPDATE' AND NEW.model_version_id = OLD.model_version_id
    LOOP
        SELECT model_name, version INTO of_version FROM ModelVersion WHERE id = one.model_version_id;
        IF NOT FOUND THEN
            -- It goes with its version, which was written down a moment ago.
            SELECT model_name, version INTO of_version FROM RegistryAudit
            WHERE subject = 'version' AND action = 'delete' AND subject_id = one.model_version_id::TEXT
            ORDER BY id DESC LIMIT 1;
        END IF;
        PERFORM understudy_record_change('endpoint', one.id::TEXT, of_version.model_name, of_version.version, one.did,
                                         one.was, one.is_now);
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION understudy_record_key() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        PERFORM understudy_record_change('key', one.id, NULL, NULL, 'delete', to_jsonb(one), NULL) FROM ApiKey AS one;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM understudy_record_change('key', OLD.id, NULL, NULL, 'delete', to_jsonb(OLD), NULL);
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM understudy_record_change('key', NEW.id, NULL, NULL, 'insert', NULL, to_jsonb(NEW));
    ELSE
        PERFORM understudy_record_change('key', NEW.id, NULL, NULL, 'update', to_jsonb(OLD), to_jsonb(NEW));
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION understudy_guard_registry_audit() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.changed_at < now() - INTERVAL '730 days' THEN
            RETURN OLD;
        END IF;
    ELSIF TG_OP = 'INSERT' AND pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    PERFORM understudy_refuse(
        'RegistryAudit is written by the triggers on ModelVersion, ModelEndpoint and ApiKey and by nothing else, and no row '
        'of it changes, nor goes before it is two years old',
        'Undo a change by another one, with its reason: SET understudy.reason = ''…''; UPDATE ModelEndpoint SET … '
        'WHERE id = …');
    RETURN NULL;
END $$;

CREATE TRIGGER registryaudit_guard BEFORE INSERT OR UPDATE OR TRUNCATE ON RegistryAudit
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_registry_audit();
CREATE TRIGGER registryaudit_guard_age BEFORE DELETE ON RegistryAudit
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_registry_audit();

-- Triggers of one event fire in the order of their names. A deletion is written down before it happens, after the guards
-- have let it pass: the endpoints that go with the version then find the name of its model.
CREATE TRIGGER modelversion_record AFTER INSERT OR UPDATE ON ModelVersion
    FOR EACH ROW EXECUTE FUNCTION understudy_record_version();
CREATE TRIGGER modelversion_record_deletion BEFORE DELETE ON ModelVersion
    FOR EACH ROW EXECUTE FUNCTION understudy_record_version();
CREATE TRIGGER modelendpoint_record AFTER INSERT OR UPDATE OR DELETE ON ModelEndpoint
    FOR EACH ROW EXECUTE FUNCTION understudy_record_endpoint();
CREATE TRIGGER apikey_record AFTER INSERT OR UPDATE OR DELETE ON ApiKey
    FOR EACH ROW EXECUTE FUNCTION understudy_record_key();
CREATE TRIGGER apikey_record_truncate BEFORE TRUNCATE ON ApiKey
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_record_key();

-- The whole list again, with the table above.
CREATE OR REPLACE FUNCTION understudy_rights() RETURNS TABLE (role TEXT, privileges TEXT, object TEXT) LANGUAGE sql IMMUTABLE AS $$
    VALUES
    -- The request path: policies in, rows of the log out. It deletes its own sign of life and nothing else.
    ('understudy_proxy', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyChange, SpoolOffset, alembic_version'),
    ('understudy_proxy', 'SELECT (id, sha256, scopes, tenant, calls_per_second, bytes_per_second, revoked_at)', 'ApiKey'),
    ('understudy_proxy', 'SELECT (id, slow_us)', 'Rollout'),
    ('understudy_proxy', 'INSERT', 'PredictionLog'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE (calls, errors, counts)', 'PredictionWindow'),
    ('understudy_proxy', 'INSERT, UPDATE (segment, byte_offset, updated_at)', 'SpoolOffset'),
    ('understudy_proxy', 'INSERT, SELECT (spool_id, segment, byte_offset)', 'PredictionDeadLetter'),
    ('understudy_proxy', 'INSERT, SELECT (event_id)', 'OutcomeEvent'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE, DELETE', 'ProxyInstance'),
    ('understudy_proxy', 'USAGE', 'SEQUENCE predictionlog_id_seq, predictiondeadletter_id_seq'),
    ('understudy_proxy', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- The control loop: it moves weights and champions, and never invents a version, an endpoint or a key.
    ('understudy_monitor', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, DriftHour, MonitorLease, ProxyInstance, Rollout, RolloutEvent, Experiment, '
        'OutcomeEvent, AlertOutbox, ArchiveStatus, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_monitor', 'UPDATE (champion_version, challenger_version, challenger_weight, shadow_version, rollout_id, '
        'salt, arms)', 'ServingPolicy'),
    ('understudy_monitor', 'UPDATE (status)', 'ModelVersion'),
    ('understudy_monitor', 'UPDATE (state, phase, step, step_started_at, revision, slow_us, finished_at, announced_at)',
        'Rollout'),
    ('understudy_monitor', 'INSERT', 'RolloutEvent'),
    ('understudy_monitor', 'INSERT, UPDATE', 'PredictionMetric, DriftHour, AlertOutbox, MonitorLease'),
    ('understudy_monitor', 'USAGE', 'SEQUENCE rolloutevent_id_seq, alertoutbox_id_seq'),
    ('understudy_monitor', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- People with a SQL prompt or the command line: versions, policies, rollouts, tests. Neither audit nor log nor keys.
    ('understudy_engineer', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, LogArchive, LogArchiveFile, ArchiveStatus, '
        'RegistryAudit, Installation, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_engineer', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey'),
    ('understudy_engineer', 'INSERT, UPDATE, DELETE', 'ModelVersion, ModelEndpoint, ServingPolicy, Experiment'),
    ('understudy_engineer', 'INSERT, UPDATE', 'Rollout'),
    ('understudy_engineer', 'INSERT', 'RolloutEvent, OutcomeEvent'),
    ('understudy_engineer', 'USAGE', 'SEQUENCE modelversion_id_seq, modelendpoint_id_seq, rollout_id_seq, rolloutevent_id_seq, '
        'experiment_id_seq'),
    ('understudy_engineer', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- What age or a person's wish ends. The columns of the second group only let it lock rows (FOR UPDATE asks for that);
    -- the guards of these tables judge every change of them.
    ('understudy_retention', 'SELECT', 'ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, PredictionMetric, '
        'PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, Rollout, RolloutEvent, OutcomeEvent, '
        'AlertOutbox, RegistryAudit, alembic_version'),
    ('understudy_retention', 'DELETE', 'PolicyAudit, PolicyChange, PredictionMetric, PredictionWindow, PredictionDeadLetter, '
        'SpoolOffset, DriftHour, Rollout, RolloutEvent, OutcomeEvent, AlertOutbox, '
        'RegistryAudit'),
    ('understudy_retention', 'UPDATE (inputs)', 'PredictionLog, RolloutEvent'),
    ('understudy_retention', 'UPDATE (changed_at)', 'PolicyChange'),
    ('understudy_retention', 'UPDATE (updated_at)', 'SpoolOffset'),
    ('understudy_retention', 'UPDATE (reason)', 'Rollout'),
    ('understudy_retention', 'UPDATE (last_error)', 'AlertOutbox'),
    ('understudy_retention', 'UPDATE (renewed_at)', 'MonitorLease'),
    -- Old months of the log go to the archive. Where a month was detached to is written by the function that did it, so
    -- that nothing else can be dropped.
    ('understudy_retention', 'SELECT (id, model_name, version)', 'ModelVersion'),
    ('understudy_retention', 'SELECT, INSERT (partition_name, month_start, month_end, location), '
        'UPDATE (state, attempt, row_count, fingerprint, changed_at)', 'LogArchive'),
    ('understudy_retention', 'SELECT, INSERT, DELETE, UPDATE (row_count, byte_count, sha256)', 'LogArchiveFile'),
    ('understudy_retention', 'SELECT, INSERT, UPDATE', 'ArchiveStatus'),
    ('understudy_retention', 'USAGE', 'SEQUENCE logarchive_id_seq'),
    ('understudy_retention', 'EXECUTE', 'FUNCTION understudy_archive_fingerprint(BIGINT), '
        'understudy_detach_archived(BIGINT), understudy_drop_archived(BIGINT)'),
    -- Dashboards and notebooks.
    ('understudy_reader', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, LogArchive, LogArchiveFile, ArchiveStatus, '
        'RegistryAudit, Installation, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey')
$$;
DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOREACH function IN ARRAY ARRAY['understudy_audit_values(JSONB)', 'understudy_guard_registry_audit()',
                                    'understudy_record_change(TEXT, TEXT, TEXT, TEXT, TEXT, JSONB, JSONB)',
                                    'understudy_record_endpoint()', 'understudy_record_key()', 'understudy_record_version()',
                                    'understudy_rights()']::REGPROCEDURE[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION understudy_record_change(TEXT, TEXT, TEXT, TEXT, TEXT, JSONB, JSONB) FROM PUBLIC;
