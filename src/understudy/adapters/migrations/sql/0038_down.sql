DROP TABLE JudgeQuestion;

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
        'files, outcomes, dead_letters)', 'EntityErasure'),
    ('understudy_engineer', 'INSERT, UPDATE, DELETE', 'ModelVersion, ModelEndpoint, ServingPolicy, Experiment'),
    ('understudy_engineer', 'INSERT, UPDATE', 'Rollout'),
    ('understudy_engineer', 'INSERT', 'RolloutEvent, OutcomeEvent'),
    ('understudy_engineer', 'INSERT (version_id, instances, example_calls, champion_id, prediction_ids, predicted_at, deadline), '
        'SELECT', 'WarmUpRequest'),
    ('understudy_engineer', 'SELECT', 'WarmUpAnswer'),
    ('understudy_engineer', 'SELECT', 'ModelServer, Placement, LoadedVersion, AgentLease'),
    ('understudy_engineer', 'SELECT, INSERT, UPDATE', 'VersionLoading, VersionValidation'),
    -- What file a policy was applied from; who and when is the trigger's.
    ('understudy_engineer', 'SELECT, INSERT (model_name, path, document), UPDATE (path, document)', 'PolicyFile'),
    ('understudy_engineer', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_engineer', 'INSERT (name, receiver, format, model_name, kinds, severity), '
        'UPDATE (receiver, format, model_name, kinds, severity), DELETE', 'Subscription'),
    ('understudy_engineer', 'SELECT', 'LakeFile, iceberg_tables, iceberg_namespace_properties'),
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
    -- Whether there is a lake, which it does not reach.
    ('understudy_eraser', 'SELECT', 'LakeFile, iceberg_tables'),
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
    ('understudy_reader', 'SELECT', 'ModelServer, VersionLoading, Placement, LoadedVersion, VersionValidation, AgentLease, PolicyFile'),
    ('understudy_reader', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_reader', 'SELECT', 'LakeFile, iceberg_tables, iceberg_namespace_properties'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at, expires_at)', 'ApiKey')
$$;

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rights() SET search_path = %I, pg_temp', current_schema());
END $$;

SELECT understudy_grant_roles();
