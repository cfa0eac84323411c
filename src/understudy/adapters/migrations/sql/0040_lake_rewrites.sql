-- Files of the lake's table that take the place of others: merged ones, those without an entity, and none for rows that are too old. A
-- rewrite is here from before a file is written in another's place until what was replaced is deleted. No object store is listed.

CREATE TABLE LakeRewrite (
    number     BIGSERIAL   PRIMARY KEY,
    kind       VARCHAR(10) NOT NULL CHECK (kind IN ('merge', 'age', 'erase')),
    erasure_id BIGINT,
    old_paths  TEXT[]      NOT NULL,
    new_keys   TEXT[]      NOT NULL DEFAULT '{}',
    row_count  BIGINT      NOT NULL DEFAULT 0,     -- that named the entity of an erasure
    begun_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    ended_at   TIMESTAMPTZ,
    sequence   BIGINT,                             -- the state of the table from which on the old files are in no snapshot
    CONSTRAINT lakerewrite_ends CHECK ((ended_at IS NULL) = (sequence IS NULL))
);
CREATE INDEX lakerewrite_ended ON LakeRewrite (ended_at, number);

ALTER TABLE EntityErasure ADD COLUMN lake_rows BIGINT NOT NULL DEFAULT 0, ADD COLUMN lake_files BIGINT NOT NULL DEFAULT 0;

-- -- steps of an erasure in the lake ---------------------------------------------------------------------------------------

CREATE FUNCTION understudy_begin_lake_erasure(erasure BIGINT, entity TEXT, old_files TEXT[]) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
    new BIGINT;
BEGIN
    -- The monitor takes it before it begins to merge files: then one of the two sees the other.
    LOCK TABLE LakeRewrite IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO LakeRewrite (kind, erasure_id, old_paths) VALUES ('erase', one.id, old_files) RETURNING number INTO new;
    RETURN new;
END $$;

CREATE FUNCTION understudy_name_lake_files(erasure BIGINT, entity TEXT, rewrite BIGINT, new_files TEXT[], named_rows BIGINT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    UPDATE LakeRewrite SET new_keys = new_files, row_count = named_rows
    WHERE number = rewrite AND erasure_id = one.id AND ended_at IS NULL;
END $$;

-- A rewrite that is not in the table leaves its new files to be deleted; one that is, its old ones.
CREATE FUNCTION understudy_end_lake_erasure(erasure BIGINT, entity TEXT, rewrite BIGINT, state BIGINT, is_in_table BOOLEAN) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one  EntityErasure := understudy_open_erasure(erasure, entity);
    done LakeRewrite;
BEGIN
    UPDATE LakeRewrite SET ended_at = now(), sequence = state
    WHERE number = rewrite AND erasure_id = one.id AND ended_at IS NULL RETURNING * INTO done;
    IF FOUND AND is_in_table THEN
        UPDATE EntityErasure SET lake_rows = lake_rows + done.row_count, lake_files = lake_files + cardinality(done.old_paths)
        WHERE id = erasure;
        UPDATE LakeRewrite SET new_keys = '{}' WHERE number = rewrite;
    ELSIF FOUND THEN
        UPDATE LakeRewrite SET old_paths = '{}' WHERE number = rewrite;
    END IF;
END $$;

-- -- late rows ------------------------------------------------------------------------------------------------------------

-- Up to when rows can be late; a proxy asks it after it has named a file, so that an erasure that did not see the name is seen.
CREATE FUNCTION understudy_erased_until() RETURNS TIMESTAMPTZ LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT max(erased_before) FROM EntityErasure
$$;

-- The names that late rows of a model get, and their prediction ids; one row for each that was erased, by its place. The secret makes
-- them, so that a file that is written once more has the same ones, and nothing leads back to the entity.
CREATE FUNCTION understudy_late_names(model TEXT, entities TEXT[], moments TIMESTAMPTZ[], predictions TEXT[])
RETURNS TABLE (place INT, erased_name TEXT, erased_prediction TEXT)
LANGUAGE sql STABLE SECURITY DEFINER AS $$
    WITH key AS MATERIALIZED (SELECT secret FROM ErasureSecret),
    met AS MATERIALIZED (
        SELECT entity, encode(sha256(secret || sha256(secret || convert_to(entity, 'UTF8'))), 'hex') AS digest,
               sha256(convert_to('late', 'UTF8') || secret || convert_to(model || ':' || entity, 'UTF8')) AS salt
        FROM (SELECT DISTINCT entity FROM unnest(entities) AS entity) AS distinct_ones, key)
    SELECT came.place::INT, understudy_erased_name(met.salt, model),
           understudy_erased_id(met.salt, came.prediction::UUID)::TEXT
    FROM unnest(entities, moments, predictions) WITH ORDINALITY AS came (entity, predicted_at, prediction, place)
    JOIN met USING (entity)
    WHERE EXISTS (
        SELECT FROM EntityErasure AS erasure
        WHERE erasure.digest = met.digest AND came.predicted_at < erasure.erased_before
          AND (erasure.model_name IS NULL OR erasure.model_name = model))
$$;

DO $$
DECLARE
    one TEXT;
BEGIN
    FOREACH one IN ARRAY ARRAY['understudy_begin_lake_erasure(BIGINT, TEXT, TEXT[])',
        'understudy_name_lake_files(BIGINT, TEXT, BIGINT, TEXT[], BIGINT)',
        'understudy_end_lake_erasure(BIGINT, TEXT, BIGINT, BIGINT, BOOLEAN)',
        'understudy_erased_until()', 'understudy_late_names(TEXT, TEXT[], TIMESTAMPTZ[], TEXT[])']
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', one, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one);
    END LOOP;
END $$;

-- The whole list again, with the table above and what erasures need of the lake.
CREATE OR REPLACE FUNCTION understudy_rights() RETURNS TABLE (role TEXT, privileges TEXT, object TEXT) LANGUAGE sql IMMUTABLE AS $$
    VALUES
    -- The request path: policies in, rows of the log out. It deletes its own sign of life and nothing else.
    ('understudy_proxy', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyChange, SpoolOffset, alembic_version'),
    ('understudy_proxy', 'SELECT (id, sha256, scopes, tenant, calls_per_second, bytes_per_second, revoked_at, expires_at)',
        'ApiKey'),
    ('understudy_proxy', 'SELECT (id, slow_us)', 'Rollout'),
    ('understudy_proxy', 'SELECT (secret)', 'CacheSecret'),
    ('understudy_proxy', 'INSERT', 'PredictionLog'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE (calls, errors, counts)', 'PredictionWindow'),
    ('understudy_proxy', 'INSERT, UPDATE (segment, byte_offset, updated_at)', 'SpoolOffset'),
    ('understudy_proxy', 'INSERT, SELECT (spool_id, segment, byte_offset)', 'PredictionDeadLetter'),
    ('understudy_proxy', 'INSERT, SELECT (event_id, model_name, sent_as)', 'OutcomeEvent'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE, DELETE', 'ProxyInstance'),
    ('understudy_proxy', 'USAGE', 'SEQUENCE predictionlog_id_seq, predictiondeadletter_id_seq'),
    -- Files of the lake: it names one before it writes it, and says when it is stored; a trigger asks whose spool it is.
    ('understudy_proxy', 'INSERT (key, spool_id, segment, byte_offset, layout), SELECT, UPDATE (named_at, stored_at, row_count, '
        'byte_count)', 'LakeFile'),
    -- Rows that come after their entity was erased lose its name before they are in a file.
    ('understudy_proxy', 'EXECUTE', 'FUNCTION understudy_erased_until(), '
        'understudy_late_names(TEXT, TEXT[], TIMESTAMP WITH TIME ZONE[], TEXT[])'),
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
    -- A question is stored with its cost before a judge is asked; afterwards only what came of it is written.
    ('understudy_monitor', 'SELECT, INSERT, UPDATE (outcome, answered_at, difference)', 'JudgeQuestion'),
    ('understudy_monitor', 'USAGE', 'SEQUENCE judgequestion_id_seq'),
    -- Which versions model servers are to have loaded: it decides, and reads what agents made of it.
    ('understudy_monitor', 'SELECT', 'ModelServer, VersionLoading, LoadedVersion, VersionValidation, PolicyFile'),
    ('understudy_monitor', 'SELECT, INSERT, UPDATE, DELETE', 'Placement'),
    ('understudy_monitor', 'INSERT, UPDATE', 'PredictionMetric, DriftHour, AlertOutbox, MonitorLease'),
    -- Notifications are written by triggers; the monitor delivers them, and says what came of it.
    ('understudy_monitor', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_monitor', 'UPDATE (next_attempt_at, attempts, last_error, delivered_at)', 'Notification'),
    ('understudy_monitor', 'USAGE', 'SEQUENCE rolloutevent_id_seq, alertoutbox_id_seq, warmuprequest_id_seq'),
    ('understudy_monitor', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ), understudy_drop_silent_servers()'),
    -- It commits files to the lake's table, whose catalogue lies here as other programs expect it, and takes back what is left over.
    ('understudy_monitor', 'SELECT, DELETE, UPDATE (commit_number, committed_at)', 'LakeFile'),
    ('understudy_monitor', 'SELECT (spool_id, segment, byte_offset)', 'SpoolOffset'),
    ('understudy_monitor', 'SELECT, INSERT, UPDATE', 'iceberg_tables, iceberg_namespace_properties'),
    -- It puts merged files in the place of small ones, and deletes what is replaced.
    ('understudy_monitor', 'SELECT, INSERT, UPDATE, DELETE', 'LakeRewrite'),
    ('understudy_monitor', 'USAGE', 'SEQUENCE lakerewrite_number_seq'),
    -- The agent beside a model server: it carries placements out, and says what is loaded. Endpoints it adds and takes back by
    -- functions alone, which know those of servers that agents report.
    ('understudy_agent', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, ProxyInstance, VersionLoading, Placement, '
        'alembic_version'),
    ('understudy_agent', 'UPDATE (pinned_digest)', 'VersionLoading'),
    ('understudy_agent', 'SELECT, INSERT, UPDATE', 'ModelServer, AgentLease'),
    ('understudy_agent', 'SELECT, INSERT, UPDATE, DELETE', 'LoadedVersion'),
    ('understudy_agent', 'SELECT, INSERT, UPDATE', 'VersionValidation'),
    ('understudy_agent', 'EXECUTE', 'FUNCTION understudy_add_agent_endpoint(BIGINT, TEXT), '
        'understudy_remove_agent_endpoint(BIGINT, TEXT), understudy_left_endpoints(TEXT)'),
    -- People with a SQL prompt or the command line: versions, policies, rollouts, tests. Neither audit nor log nor keys.
    ('understudy_engineer', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, LogArchive, LogArchiveFile, ArchiveStatus, '
        'RegistryAudit, Installation, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_engineer', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at, expires_at)', 'ApiKey'),
    ('understudy_engineer', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, resumed_by, reason, '
        'log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters, lake_rows, lake_files)', 'EntityErasure'),
    ('understudy_engineer', 'INSERT, UPDATE, DELETE', 'ModelVersion, ModelEndpoint, ServingPolicy, Experiment'),
    ('understudy_engineer', 'INSERT, UPDATE', 'Rollout'),
    ('understudy_engineer', 'INSERT', 'RolloutEvent, OutcomeEvent'),
    ('understudy_engineer', 'INSERT (version_id, instances, example_calls, champion_id, prediction_ids, predicted_at, deadline), '
        'SELECT', 'WarmUpRequest'),
    ('understudy_engineer', 'SELECT', 'WarmUpAnswer'),
    ('understudy_engineer', 'SELECT', 'JudgeQuestion'),
    ('understudy_engineer', 'SELECT', 'ModelServer, Placement, LoadedVersion, AgentLease'),
    ('understudy_engineer', 'SELECT, INSERT, UPDATE', 'VersionLoading, VersionValidation'),
    -- What file a policy was applied from; who and when is the trigger's.
    ('understudy_engineer', 'SELECT, INSERT (model_name, path, document), UPDATE (path, document)', 'PolicyFile'),
    ('understudy_engineer', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_engineer', 'INSERT (name, receiver, format, model_name, kinds, severity), '
        'UPDATE (receiver, format, model_name, kinds, severity), DELETE', 'Subscription'),
    ('understudy_engineer', 'SELECT', 'LakeFile, LakeRewrite, iceberg_tables, iceberg_namespace_properties'),
    ('understudy_engineer', 'USAGE', 'SEQUENCE subscription_id_seq'),
    ('understudy_engineer', 'EXECUTE', 'FUNCTION understudy_test_subscription(TEXT)'),
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
    ('understudy_retention', 'SELECT, DELETE', 'Notification, SubscriptionAudit'),
    -- A person who erases an entity, by functions alone: reads no row of the log and no outcome, and changes nothing else.
    ('understudy_eraser', 'SELECT', 'LogArchive, LogArchiveFile, EntityErasureFile, alembic_version'),
    -- Files of the lake that are on their way, and those that are replaced.
    ('understudy_eraser', 'SELECT', 'LakeFile, LakeRewrite'),
    -- It changes the lake's table, as the store's credentials would let it anyway.
    ('understudy_eraser', 'SELECT, UPDATE', 'iceberg_tables'),
    ('understudy_eraser', 'SELECT', 'iceberg_namespace_properties'),
    ('understudy_eraser', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, resumed_by, reason, '
        'log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters, lake_rows, lake_files)', 'EntityErasure'),
    ('understudy_eraser', 'EXECUTE', 'FUNCTION understudy_begin_erasure(TEXT, TEXT, TEXT, TEXT), understudy_lock_archive(), '
        'understudy_erase_month(BIGINT, TEXT, TEXT), understudy_erase_beside_log(BIGINT, TEXT), '
        'understudy_erase_told(BIGINT, TEXT, TEXT, UUID[]), understudy_begin_archive_anew(BIGINT, TEXT, BIGINT), '
        'understudy_name_erased_file(BIGINT, TEXT, BIGINT, TEXT, TEXT), '
        'understudy_swap_erased_file(BIGINT, TEXT, BIGINT, TEXT, BIGINT, BIGINT, BIGINT, TEXT), '
        'understudy_end_erased_files(BIGINT, TEXT, BIGINT), understudy_count_entity(TEXT, TEXT, TEXT), '
        'understudy_count_beside_log(TEXT, TEXT), understudy_count_texts(BIGINT, TEXT), '
        'understudy_end_erasure(BIGINT, TEXT), understudy_begin_lake_erasure(BIGINT, TEXT, TEXT[]), '
        'understudy_name_lake_files(BIGINT, TEXT, BIGINT, TEXT[], BIGINT), '
        'understudy_end_lake_erasure(BIGINT, TEXT, BIGINT, BIGINT, BOOLEAN)'),
    -- Dashboards and notebooks.
    ('understudy_reader', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, LogArchive, LogArchiveFile, ArchiveStatus, '
        'RegistryAudit, Installation, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_reader', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, resumed_by, reason, '
        'log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters, lake_rows, lake_files)', 'EntityErasure'),
    ('understudy_reader', 'SELECT', 'WarmUpRequest, WarmUpAnswer'),
    ('understudy_reader', 'SELECT', 'JudgeQuestion'),
    ('understudy_reader', 'SELECT', 'ModelServer, VersionLoading, Placement, LoadedVersion, VersionValidation, AgentLease, PolicyFile'),
    ('understudy_reader', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_reader', 'SELECT', 'LakeFile, LakeRewrite, iceberg_tables, iceberg_namespace_properties'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at, expires_at)', 'ApiKey')
$$;

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rights() SET search_path = %I, pg_temp', current_schema());
END $$;

SELECT understudy_grant_roles();
