-- Warm-ups through proxies: a model server that only proxies can reach (TF Serving beside each of them) is called by them, and
-- what they found is read here. Neither the monitor nor a proxy opens a port for it.

-- Whether the proxy's release answers requests; one of the release before never says so.
ALTER TABLE ProxyInstance ADD COLUMN answers_warm_ups BOOLEAN NOT NULL DEFAULT FALSE;

-- What live proxies are asked to do. It names logged calls by their ids: inputs stay where erasing an entity finds them.
CREATE TABLE WarmUpRequest (
    id             BIGSERIAL     PRIMARY KEY,
    version_id     BIGINT        NOT NULL REFERENCES ModelVersion(id) ON DELETE CASCADE,
    instances      TEXT[]        NOT NULL CHECK (cardinality(instances) BETWEEN 1 AND 10000),
    example_calls  SMALLINT      NOT NULL DEFAULT 0 CHECK (example_calls BETWEEN 0 AND 5),
    champion_id    BIGINT        REFERENCES ModelVersion(id) ON DELETE CASCADE,
    prediction_ids UUID[]        NOT NULL DEFAULT '{}',
    predicted_at   TIMESTAMPTZ[] NOT NULL DEFAULT '{}',
    asked_at       TIMESTAMPTZ   NOT NULL DEFAULT NOW(),
    deadline       TIMESTAMPTZ   NOT NULL,
    CHECK (cardinality(prediction_ids) <= 200 AND cardinality(predicted_at) = cardinality(prediction_ids)),
    CHECK (deadline <= asked_at + INTERVAL '1 minute')
);
CREATE INDEX warmuprequest_deadline ON WarmUpRequest (deadline);

CREATE TABLE WarmUpAnswer (
    request_id  BIGINT      NOT NULL REFERENCES WarmUpRequest(id) ON DELETE CASCADE,
    instance    TEXT        NOT NULL,
    answered    SMALLINT    NOT NULL CHECK (answered BETWEEN 0 AND 5),
    seconds     FLOAT8[]    NOT NULL DEFAULT '{}' CHECK (cardinality(seconds) <= 5),
    problem     TEXT        NOT NULL DEFAULT '',
    scores      FLOAT8[]    NOT NULL DEFAULT '{}' CHECK (cardinality(scores) <= 200),
    answered_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (request_id, instance)
);

-- As other tables have it (0017).
CREATE TRIGGER warmuprequest_size BEFORE INSERT OR UPDATE OF instances ON WarmUpRequest
    FOR EACH ROW WHEN (pg_column_size(NEW.instances) > 1048576)
    EXECUTE FUNCTION understudy_refuse_size('instances has at most 1048576 bytes');
CREATE TRIGGER warmupanswer_size BEFORE INSERT OR UPDATE OF instance, problem ON WarmUpAnswer
    FOR EACH ROW WHEN (pg_column_size(NEW.instance) > 1000 OR pg_column_size(NEW.problem) > 2000)
    EXECUTE FUNCTION understudy_refuse_size('instance has at most 1000 bytes, problem has at most 2000 bytes');

-- Proxies hear of a request as of a change of the version: by the notification, and by every backstop of it.
CREATE FUNCTION understudy_tell_warm_up() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM understudy_touch((SELECT model_name FROM ModelVersion WHERE id = NEW.version_id), 'version:' || NEW.version_id);
    RETURN NULL;
END $$;
CREATE TRIGGER warmuprequest_tell AFTER INSERT ON WarmUpRequest
    FOR EACH ROW EXECUTE FUNCTION understudy_tell_warm_up();

-- An answer belongs to a request that is open and names the proxy. Seconds more than the deadline are for its way here.
CREATE FUNCTION understudy_guard_warm_up_answer() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM WarmUpRequest WHERE id = NEW.request_id AND NEW.instance = ANY (instances)
          AND deadline > now() - INTERVAL '5 seconds' AND cardinality(NEW.scores) IN (0, cardinality(prediction_ids))) THEN
        PERFORM understudy_refuse(
            format('%s was asked for no such answer, or it comes too late: request %s', left(NEW.instance, 100), NEW.request_id),
            'Leave this table to Understudy''s own processes');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER warmupanswer_guard BEFORE INSERT ON WarmUpAnswer
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_warm_up_answer();

-- The inputs that an open request names, in its order: a proxy reads the log no other way.
CREATE FUNCTION understudy_warm_up_inputs(request BIGINT) RETURNS TABLE (place INT, inputs JSONB)
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT asked.place::INT, call.inputs
    FROM WarmUpRequest AS known
    CROSS JOIN LATERAL unnest(known.prediction_ids, known.predicted_at) WITH ORDINALITY
        AS asked (prediction_id, predicted_at, place)
    JOIN PredictionLog AS call ON call.model_version_id = known.champion_id AND call.predicted_at = asked.predicted_at
        AND call.prediction_id = asked.prediction_id
    WHERE known.id = request AND known.deadline > now() AND call.inputs IS NOT NULL AND pg_column_size(call.inputs) <= 65536
    ORDER BY asked.place
$$;

-- The whole list again, with the two tables and the function.
CREATE OR REPLACE FUNCTION understudy_rights() RETURNS TABLE (role TEXT, privileges TEXT, object TEXT) LANGUAGE sql IMMUTABLE AS $$
    VALUES
    -- The request path: policies in, rows of the log out. It deletes its own sign of life and nothing else.
    ('understudy_proxy', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyChange, SpoolOffset, alembic_version'),
    ('understudy_proxy', 'SELECT (id, sha256, scopes, tenant, calls_per_second, bytes_per_second, revoked_at)', 'ApiKey'),
    ('understudy_proxy', 'SELECT (id, slow_us)', 'Rollout'),
    ('understudy_proxy', 'SELECT (secret)', 'CacheSecret'),
    ('understudy_proxy', 'INSERT', 'PredictionLog'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE (calls, errors, counts)', 'PredictionWindow'),
    ('understudy_proxy', 'INSERT, UPDATE (segment, byte_offset, updated_at)', 'SpoolOffset'),
    ('understudy_proxy', 'INSERT, SELECT (spool_id, segment, byte_offset)', 'PredictionDeadLetter'),
    ('understudy_proxy', 'INSERT, SELECT (event_id, model_name, sent_as)', 'OutcomeEvent'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE, DELETE', 'ProxyInstance'),
    ('understudy_proxy', 'USAGE', 'SEQUENCE predictionlog_id_seq, predictiondeadletter_id_seq'),
    -- What it is asked to warm up, and its own answer, once; of the log only inputs that an open request names.
    ('understudy_proxy', 'SELECT', 'WarmUpRequest'),
    ('understudy_proxy', 'INSERT (request_id, instance, answered, seconds, problem, scores), SELECT (request_id, instance)',
        'WarmUpAnswer'),
    ('understudy_proxy', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ), '
        'understudy_warm_up_inputs(BIGINT)'),
    -- The control loop: it moves weights and champions, and never invents a version, an endpoint or a key.
    ('understudy_monitor', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, DriftHour, MonitorLease, ProxyInstance, Rollout, RolloutEvent, Experiment, '
        'OutcomeEvent, AlertOutbox, RegistryAudit, ArchiveStatus, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_monitor', 'UPDATE (champion_version, challenger_version, challenger_weight, shadow_version, rollout_id, '
        'salt, arms)', 'ServingPolicy'),
    ('understudy_monitor', 'SELECT (drop_after)', 'LogArchive'),
    ('understudy_monitor', 'UPDATE (status)', 'ModelVersion'),
    ('understudy_monitor', 'UPDATE (state, phase, step, step_started_at, revision, slow_us, finished_at, announced_at)',
        'Rollout'),
    ('understudy_monitor', 'INSERT', 'RolloutEvent'),
    ('understudy_monitor', 'INSERT (version_id, instances, example_calls, champion_id, prediction_ids, predicted_at, deadline), '
        'SELECT', 'WarmUpRequest'),
    ('understudy_monitor', 'SELECT', 'WarmUpAnswer'),
    ('understudy_monitor', 'INSERT, UPDATE', 'PredictionMetric, DriftHour, AlertOutbox, MonitorLease'),
    ('understudy_monitor', 'USAGE', 'SEQUENCE rolloutevent_id_seq, alertoutbox_id_seq, warmuprequest_id_seq'),
    ('understudy_monitor', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- People with a SQL prompt or the command line: versions, policies, rollouts, tests. Neither audit nor log nor keys.
    ('understudy_engineer', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, LogArchive, LogArchiveFile, ArchiveStatus, '
        'RegistryAudit, Installation, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_engineer', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey'),
    ('understudy_engineer', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, resumed_by, reason, '
        'log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters)', 'EntityErasure'),
    ('understudy_engineer', 'INSERT, UPDATE, DELETE', 'ModelVersion, ModelEndpoint, ServingPolicy, Experiment'),
    ('understudy_engineer', 'INSERT, UPDATE', 'Rollout'),
    ('understudy_engineer', 'INSERT', 'RolloutEvent, OutcomeEvent'),
    ('understudy_engineer', 'INSERT (version_id, instances, example_calls, champion_id, prediction_ids, predicted_at, deadline), '
        'SELECT', 'WarmUpRequest'),
    ('understudy_engineer', 'SELECT', 'WarmUpAnswer'),
    ('understudy_engineer', 'USAGE', 'SEQUENCE modelversion_id_seq, modelendpoint_id_seq, rollout_id_seq, rolloutevent_id_seq, '
        'experiment_id_seq, warmuprequest_id_seq'),
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
        'understudy_detach_archived(BIGINT), understudy_drop_archived(BIGINT), understudy_drop_due()'),
    ('understudy_retention', 'SELECT (id, finished_at), DELETE', 'EntityErasure'),
    ('understudy_retention', 'SELECT (id, deadline), DELETE', 'WarmUpRequest'),
    -- A person who erases an entity, by functions alone: reads no row of the log and no outcome, and changes nothing else.
    ('understudy_eraser', 'SELECT', 'LogArchive, LogArchiveFile, EntityErasureFile, alembic_version'),
    ('understudy_eraser', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, resumed_by, reason, '
        'log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters)', 'EntityErasure'),
    ('understudy_eraser', 'EXECUTE', 'FUNCTION understudy_begin_erasure(TEXT, TEXT, TEXT, TEXT), understudy_lock_archive(), '
        'understudy_erase_month(BIGINT, TEXT, TEXT), understudy_erase_beside_log(BIGINT, TEXT), '
        'understudy_erase_told(BIGINT, TEXT, TEXT, UUID[]), understudy_begin_archive_anew(BIGINT, TEXT, BIGINT), '
        'understudy_name_erased_file(BIGINT, TEXT, BIGINT, TEXT, TEXT), '
        'understudy_swap_erased_file(BIGINT, TEXT, BIGINT, TEXT, BIGINT, BIGINT, BIGINT, TEXT), '
        'understudy_end_erased_files(BIGINT, TEXT, BIGINT), understudy_count_entity(TEXT, TEXT, TEXT), '
        'understudy_count_beside_log(TEXT, TEXT), understudy_count_texts(BIGINT, TEXT), '
        'understudy_end_erasure(BIGINT, TEXT)'),
    -- Dashboards and notebooks.
    ('understudy_reader', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, LogArchive, LogArchiveFile, ArchiveStatus, '
        'RegistryAudit, Installation, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_reader', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, resumed_by, reason, '
        'log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters)', 'EntityErasure'),
    ('understudy_reader', 'SELECT', 'WarmUpRequest, WarmUpAnswer'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey')
$$;
DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_tell_warm_up', 'understudy_guard_warm_up_answer', 'understudy_warm_up_inputs', 'understudy_rights')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
    REVOKE EXECUTE ON FUNCTION understudy_warm_up_inputs(BIGINT) FROM PUBLIC;
END $$;
SELECT understudy_grant_roles();
