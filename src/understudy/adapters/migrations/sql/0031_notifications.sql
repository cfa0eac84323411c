-- Notifications: who is told of which events, and the outbox that they wait in. A trigger writes them in the transaction of the
-- change that they report, so that a change by SQL is told as one by a command is.

-- In the order in which a rollback and a rollout take them, before anything else: otherwise one that is under way and this migration
-- would wait for each other.
LOCK TABLE ServingPolicy, Rollout, Experiment, PolicyAudit, RegistryAudit, LoadedVersion, AlertOutbox IN EXCLUSIVE MODE;

-- Who is told of what. The address of a receiver is not here, since it may hold a token: the monitor's settings have it, by the
-- receiver's name.
CREATE TABLE Subscription (
    id         BIGSERIAL    PRIMARY KEY,
    name       VARCHAR(63)  NOT NULL UNIQUE CONSTRAINT subscription_name_check CHECK (name ~ '^[a-z0-9][a-z0-9._-]*$'),
    receiver   VARCHAR(63)  NOT NULL CONSTRAINT subscription_receiver_check CHECK (receiver ~ '^[a-z0-9][a-z0-9._-]*$'),
    format     VARCHAR(20)  NOT NULL DEFAULT 'cloudevents'
        CONSTRAINT subscription_format_check CHECK (format IN ('cloudevents', 'slack')),
    model_name VARCHAR(255),   -- NULL: of all models
    -- Families of events, or single kinds; empty: all.
    kinds      TEXT[]       NOT NULL DEFAULT '{}' CONSTRAINT subscription_kinds_check CHECK (kinds <@ ARRAY[
        'policy', 'policy.changed',
        'rollout', 'rollout.started', 'rollout.moved', 'rollout.progressing', 'rollout.waiting', 'rollout.promoting',
        'rollout.succeeded', 'rollout.failed', 'rollout.rolled_back', 'rollout.needs_human', 'rollout.stalled',
        'rollout.champion_regressed', 'rollout.sample_ratio_mismatch',
        'guard', 'guard.started', 'guard.moved', 'guard.progressing', 'guard.waiting', 'guard.promoting', 'guard.succeeded',
        'guard.failed', 'guard.rolled_back', 'guard.needs_human', 'guard.stalled', 'guard.champion_regressed',
        'guard.sample_ratio_mismatch', 'guard.failing',
        'drift', 'drift.found',
        'experiment', 'experiment.started', 'experiment.ended',
        'lifecycle', 'lifecycle.version_added', 'lifecycle.version_changed', 'lifecycle.version_removed',
        'lifecycle.endpoint_added', 'lifecycle.endpoint_changed', 'lifecycle.endpoint_removed', 'lifecycle.loaded',
        'lifecycle.load_failed', 'lifecycle.unloaded']::TEXT[]),
    severity   VARCHAR(20)  NOT NULL DEFAULT 'info'   -- and what is worse
        CONSTRAINT subscription_severity_check CHECK (severity IN ('info', 'warning', 'error', 'critical')),
    created_by TEXT         NOT NULL DEFAULT understudy_actor(),
    created_at TIMESTAMPTZ  NOT NULL DEFAULT NOW()
);

-- The outbox: a row for each event and each subscription that asks for it. No foreign key: its lock would have a rollback wait for
-- a session that removes a subscription. next_attempt_at is infinity once a notification is given up.
CREATE TABLE Notification (
    id              BIGSERIAL    PRIMARY KEY,
    subscription_id BIGINT       NOT NULL,
    event_id        UUID         NOT NULL,   -- the same at each receiver, and at each attempt
    kind            VARCHAR(100) NOT NULL,
    severity        VARCHAR(20)  NOT NULL CHECK (severity IN ('info', 'warning', 'error', 'critical')),
    model_name      VARCHAR(255),
    payload         JSONB        NOT NULL,
    created_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    next_attempt_at TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    attempts        INT          NOT NULL DEFAULT 0,
    last_error      TEXT,
    delivered_at    TIMESTAMPTZ
);
CREATE INDEX notification_waiting ON Notification (subscription_id, model_name, id)
    WHERE delivered_at IS NULL AND next_attempt_at < 'infinity';
CREATE INDEX notification_created_at ON Notification (created_at);
-- For lists of subscriptions: when a receiver last took one, and how many were given up.
CREATE INDEX notification_delivered ON Notification (subscription_id, delivered_at) WHERE delivered_at IS NOT NULL;
CREATE INDEX notification_given_up ON Notification (subscription_id)
    WHERE delivered_at IS NULL AND next_attempt_at = 'infinity';

-- Every event is written once for each subscription that asks for it.
CREATE FUNCTION understudy_bound_subscriptions() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    -- One after the other, or two would each count without the other.
    PERFORM pg_advisory_xact_lock(hashtextextended('understudy_subscription', 0));
    IF (SELECT count(*) FROM Subscription) >= 100 THEN
        PERFORM understudy_refuse('there are 100 subscriptions already',
                                  'Remove one: understudy subscription list shows what became of each.');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER subscription_bound BEFORE INSERT ON Subscription
    FOR EACH ROW EXECUTE FUNCTION understudy_bound_subscriptions();
CREATE TRIGGER subscription_size BEFORE INSERT OR UPDATE OF created_by ON Subscription
    FOR EACH ROW WHEN (pg_column_size(NEW.created_by) > 1000)
    EXECUTE FUNCTION understudy_refuse_size('created_by has at most 1000 bytes');
-- An operator asks for few kinds; a longer list only costs each change of a policy its time.
CREATE TRIGGER subscription_kinds_size BEFORE INSERT OR UPDATE OF kinds ON Subscription
    FOR EACH ROW WHEN (cardinality(NEW.kinds) > 50)
    EXECUTE FUNCTION understudy_refuse_size('kinds has at most 50 entries');
CREATE TRIGGER notification_size BEFORE UPDATE OF last_error ON Notification
    FOR EACH ROW WHEN (pg_column_size(NEW.last_error) > 100000)
    EXECUTE FUNCTION understudy_refuse_size('last_error has at most 100000 bytes');

-- Who subscribed, changed and removed what, for two years. A table of its own and no further subject of RegistryAudit: the release
-- before lists every row of that one, and knows no such subject. They share a sequence, so that an id is unique among both.
CREATE TABLE SubscriptionAudit (
    id         BIGINT       PRIMARY KEY DEFAULT nextval('registryaudit_id_seq'),
    changed_at TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    actor      TEXT         NOT NULL,
    via        TEXT         NOT NULL,
    reason     TEXT,
    name       VARCHAR(63)  NOT NULL,
    model_name VARCHAR(255),
    action     VARCHAR(10)  NOT NULL CHECK (action IN ('insert', 'update', 'delete')),
    before     JSONB,                   -- of an update the columns that changed, else the whole row
    after      JSONB
);
CREATE INDEX subscriptionaudit_model_name_id_idx ON SubscriptionAudit (model_name, id DESC);
CREATE INDEX subscriptionaudit_changed_at ON SubscriptionAudit (changed_at);

CREATE FUNCTION understudy_record_subscription() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    was    JSONB := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    is_now JSONB := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    whole  JSONB := coalesce(is_now, was);
BEGIN
    IF TG_OP = 'UPDATE' THEN
        SELECT jsonb_object_agg(key, was -> key), jsonb_object_agg(key, is_now -> key) INTO was, is_now
        FROM jsonb_object_keys(whole) AS key WHERE was -> key IS DISTINCT FROM is_now -> key;
    END IF;
    IF TG_RELID = 'Subscription'::REGCLASS AND (was IS NOT NULL OR is_now IS NOT NULL) THEN
        INSERT INTO SubscriptionAudit (actor, via, reason, name, model_name, action, before, after)
        VALUES (understudy_actor(),
                coalesce(nullif(current_setting('understudy.via', TRUE), ''),
                         nullif(current_setting('application_name', TRUE), ''), 'sql'),
                nullif(current_setting('understudy.reason', TRUE), ''), whole ->> 'name', whole ->> 'model_name', lower(TG_OP),
                was, is_now);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER subscription_record AFTER INSERT OR UPDATE OR DELETE ON Subscription
    FOR EACH ROW EXECUTE FUNCTION understudy_record_subscription();
CREATE TRIGGER subscription_no_truncate BEFORE TRUNCATE ON Subscription
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_refuse_truncate();

CREATE FUNCTION understudy_guard_subscription_audit() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.changed_at < now() - INTERVAL '730 days' THEN
            RETURN OLD;
        END IF;
    ELSIF TG_OP = 'INSERT' AND pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    PERFORM understudy_refuse(
        'SubscriptionAudit is written by the trigger on Subscription and by nothing else, and no row of it changes, nor goes before '
        'it is two years old',
        'Undo a change by another one, with its reason: SET understudy.reason = ''…''; UPDATE Subscription SET … WHERE name = …');
    RETURN NULL;
END $$;
CREATE TRIGGER subscriptionaudit_guard BEFORE INSERT OR UPDATE OR TRUNCATE ON SubscriptionAudit
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_guard_subscription_audit();
CREATE TRIGGER subscriptionaudit_guard_age BEFORE DELETE ON SubscriptionAudit
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_subscription_audit();
CREATE TRIGGER subscriptionaudit_bound BEFORE INSERT ON SubscriptionAudit
    FOR EACH ROW WHEN (length(NEW.reason) > 1000 OR length(NEW.actor) > 255 OR length(NEW.via) > 255)
    EXECUTE FUNCTION understudy_bound_words();

-- Writes an event for every subscription that asks for it.
CREATE FUNCTION understudy_notify(kind TEXT, severity TEXT, model TEXT, data JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    event  UUID := gen_random_uuid();
    levels TEXT[] := ARRAY['info', 'warning', 'error', 'critical'];
BEGIN
    -- A receiver of CloudEvents need not take more than 64 KB; the rest is in the database. Who did what is short, and stays.
    IF octet_length(data::TEXT) > 60000 THEN
        data := jsonb_strip_nulls(jsonb_build_object(
            'summary', left(data ->> 'summary', 1000), 'action', left(data ->> 'action', 100), 'actor', left(data ->> 'actor', 300),
            'via', left(data ->> 'via', 300), 'reason', left(data ->> 'reason', 4000), 'generation', data -> 'generation',
            'dedup_key', left(data ->> 'dedup_key', 300),
            'left_out', 'the details were too long'));
    END IF;
    INSERT INTO Notification (subscription_id, event_id, kind, severity, model_name, payload)
    SELECT one.id, event, understudy_notify.kind, understudy_notify.severity, model, data FROM Subscription AS one
    WHERE (one.model_name IS NULL OR one.model_name = model)
      AND (one.kinds = '{}' OR understudy_notify.kind = ANY (one.kinds)
           OR split_part(understudy_notify.kind, '.', 1) = ANY (one.kinds))
      AND array_position(levels, one.severity::TEXT) <= array_position(levels, understudy_notify.severity);
END $$;

CREATE FUNCTION understudy_version_label(version_id BIGINT) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT version FROM ModelVersion WHERE id = version_id
$$;

-- The triggers act as the owner, since the login that changes a policy may not read subscriptions; on another table than their own
-- they write nothing. An error of theirs never undoes the change: a rollback goes on, and the server's log has the warning. They wait
-- for no lock longer than 200 ms. What they cannot catch is the end of the statement itself: its statement_timeout, or its cancellation.
CREATE FUNCTION understudy_notify_policy() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    old_row JSONB := coalesce(NEW.before, '{}');
    new_row JSONB := coalesce(NEW.after, '{}');
    changed JSONB;
BEGIN
    IF TG_RELID = 'PolicyAudit'::REGCLASS AND EXISTS (SELECT FROM Subscription) THEN
        SELECT jsonb_object_agg(key, jsonb_build_object('before', old_row -> key, 'after', new_row -> key)) INTO changed
        FROM jsonb_object_keys(old_row || new_row) AS key
        WHERE old_row -> key IS DISTINCT FROM new_row -> key AND key NOT IN ('salt', 'generation', 'updated_at', 'updated_by');
        PERFORM understudy_notify('policy.changed', 'info', NEW.model_name, jsonb_build_object(
            'action', NEW.action, 'generation', NEW.generation, 'actor', NEW.actor, 'via', NEW.via, 'reason', NEW.reason,
            'changed', coalesce(changed, '{}'),
            'versions', (SELECT jsonb_object_agg(id, version) FROM ModelVersion WHERE model_name = NEW.model_name
                AND to_jsonb(id) IN (old_row -> 'champion_version', old_row -> 'challenger_version', old_row -> 'shadow_version',
                    new_row -> 'champion_version', new_row -> 'challenger_version', new_row -> 'shadow_version'))));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of a change of the policy of %: %', NEW.model_name, SQLERRM;
    RETURN NULL;
END $$;
CREATE TRIGGER policyaudit_notify AFTER INSERT ON PolicyAudit FOR EACH ROW EXECUTE FUNCTION understudy_notify_policy();

-- Of an alert once, and not of the copies that are made of it for each channel.
CREATE FUNCTION understudy_notify_alert() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    alert  TEXT := NEW.payload ->> 'kind';
    family TEXT := CASE NEW.payload #>> '{details,kind}' WHEN 'guard' THEN 'guard' ELSE 'rollout' END;
    kind   TEXT := CASE alert
        WHEN 'canary_rolled_back' THEN family || '.rolled_back'
        WHEN 'rollout_needs_human' THEN family || '.needs_human'
        WHEN 'rollout_stalled' THEN family || '.stalled'
        WHEN 'rollout_moved' THEN family || '.moved'
        WHEN 'guard_failed' THEN 'guard.failing'
        WHEN 'drift' THEN 'drift.found'
        ELSE family || '.' || alert END;
BEGIN
    IF TG_RELID = 'AlertOutbox'::REGCLASS AND kind IS NOT NULL THEN
        PERFORM understudy_notify(kind, NEW.severity, NEW.model_name, (NEW.payload - ARRAY['kind', 'environment', 'model_name',
            'occurred_at']) || jsonb_build_object('dedup_key', NEW.dedup_key));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of the alert %: %', NEW.dedup_key, SQLERRM;
    RETURN NULL;
END $$;
CREATE TRIGGER alertoutbox_notify AFTER INSERT ON AlertOutbox
    FOR EACH ROW WHEN (jsonb_typeof(NEW.payload) = 'object' AND NOT NEW.payload ? 'channel')
    EXECUTE FUNCTION understudy_notify_alert();

CREATE FUNCTION understudy_notify_rollout() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
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
                'reason', coalesce(nullif(NEW.state ->> 'reason', ''), NEW.reason)));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of rollout %: %', NEW.id, SQLERRM;
    RETURN NULL;
END $$;
CREATE TRIGGER rollout_notify_start AFTER INSERT ON Rollout FOR EACH ROW EXECUTE FUNCTION understudy_notify_rollout();
CREATE TRIGGER rollout_notify_phase AFTER UPDATE OF phase ON Rollout
    FOR EACH ROW WHEN (OLD.phase IS DISTINCT FROM NEW.phase) EXECUTE FUNCTION understudy_notify_rollout();

-- Names of columns and no values: addresses and paths of the inside are not for a chat.
CREATE FUNCTION understudy_notify_registry() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_RELID = 'RegistryAudit'::REGCLASS AND EXISTS (SELECT FROM Subscription) THEN
        PERFORM understudy_notify(
            'lifecycle.' || NEW.subject || CASE NEW.action WHEN 'insert' THEN '_added' WHEN 'update' THEN '_changed'
                ELSE '_removed' END, 'info', NEW.model_name,
            jsonb_build_object(
                'version', NEW.version, 'actor', NEW.actor, 'via', NEW.via, 'reason', NEW.reason,
                'columns', CASE NEW.action WHEN 'update' THEN
                    (SELECT jsonb_agg(key ORDER BY key) FROM jsonb_object_keys(NEW.after) AS key) END,
                'status', NEW.after -> 'status'));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of a change of version % of %: %', NEW.version, NEW.model_name, SQLERRM;
    RETURN NULL;
END $$;
CREATE TRIGGER registryaudit_notify AFTER INSERT ON RegistryAudit
    FOR EACH ROW WHEN (NEW.subject IN ('version', 'endpoint')) EXECUTE FUNCTION understudy_notify_registry();

CREATE FUNCTION understudy_notify_experiment() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_RELID = 'Experiment'::REGCLASS AND EXISTS (SELECT FROM Subscription) THEN
        PERFORM understudy_notify(
            'experiment.' || CASE TG_OP WHEN 'INSERT' THEN 'started' ELSE 'ended' END, 'info', NEW.model_name,
            jsonb_build_object(
                'experiment', NEW.name, 'metric', NEW.metric, 'champion', understudy_version_label(NEW.champion_version),
                'challenger', understudy_version_label(NEW.challenger_version), 'created_by', NEW.created_by));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of experiment %: %', NEW.id, SQLERRM;
    RETURN NULL;
END $$;
CREATE TRIGGER experiment_notify_start AFTER INSERT ON Experiment
    FOR EACH ROW EXECUTE FUNCTION understudy_notify_experiment();
CREATE TRIGGER experiment_notify_end AFTER UPDATE OF ended_at ON Experiment
    FOR EACH ROW WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION understudy_notify_experiment();

CREATE FUNCTION understudy_notify_loading() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    loaded ModelVersion;
BEGIN
    IF TG_RELID = 'LoadedVersion'::REGCLASS AND EXISTS (SELECT FROM Subscription) THEN
        SELECT * INTO loaded FROM ModelVersion WHERE id = NEW.model_version_id;
        PERFORM understudy_notify(
            CASE NEW.state WHEN 'AVAILABLE' THEN 'lifecycle.loaded' WHEN 'ERROR' THEN 'lifecycle.load_failed'
                ELSE 'lifecycle.unloaded' END,
            CASE NEW.state WHEN 'ERROR' THEN 'warning' ELSE 'info' END, loaded.model_name,
            jsonb_build_object('version', loaded.version, 'server', NEW.server, 'attempt', NEW.attempt, 'code', NEW.error_code));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'no notification of what server % has loaded: %', NEW.server, SQLERRM;
    RETURN NULL;
END $$;
CREATE TRIGGER loadedversion_notify_first AFTER INSERT ON LoadedVersion
    FOR EACH ROW WHEN (NEW.state IN ('AVAILABLE', 'ERROR', 'END')) EXECUTE FUNCTION understudy_notify_loading();
CREATE TRIGGER loadedversion_notify AFTER UPDATE OF state ON LoadedVersion
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state AND NEW.state IN ('AVAILABLE', 'ERROR', 'END'))
    EXECUTE FUNCTION understudy_notify_loading();

-- Queues one notification by which a person sees whether a receiver takes them; NULL: there is no such subscription.
CREATE FUNCTION understudy_test_subscription(name TEXT) RETURNS BIGINT LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    tested BIGINT := (SELECT one.id FROM Subscription AS one WHERE one.name = understudy_test_subscription.name);
    queued BIGINT;
BEGIN
    IF tested IS NOT NULL THEN
        INSERT INTO Notification (subscription_id, event_id, kind, severity, payload)
        VALUES (tested, gen_random_uuid(), 'test.sent', 'info', jsonb_build_object('actor', understudy_actor()))
        RETURNING id INTO queued;
    END IF;
    RETURN queued;
END $$;

-- As before, and the reasons that the audit of subscriptions and notifications hold: of an event once, however many subscriptions it was written for.
CREATE OR REPLACE FUNCTION understudy_count_texts(erasure BIGINT, entity TEXT) RETURNS BIGINT
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    RETURN (SELECT count(*) FROM (
        SELECT reason FROM PolicyAudit UNION ALL SELECT reason FROM RegistryAudit UNION ALL SELECT reason FROM Rollout
        UNION ALL SELECT reason FROM RolloutEvent UNION ALL SELECT reason FROM EntityErasure UNION ALL SELECT note FROM ApiKey
        UNION ALL SELECT reason FROM SubscriptionAudit
        UNION ALL (SELECT DISTINCT ON (event_id) payload ->> 'reason' FROM Notification)
    ) AS written (words) WHERE strpos(words, entity) > 0);
END $$;

-- The whole list again, with the three tables.
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
    -- Which versions model servers are to have loaded: it decides, and reads what agents made of it.
    ('understudy_monitor', 'SELECT', 'ModelServer, VersionLoading, LoadedVersion'),
    ('understudy_monitor', 'SELECT, INSERT, UPDATE, DELETE', 'Placement'),
    ('understudy_monitor', 'INSERT, UPDATE', 'PredictionMetric, DriftHour, AlertOutbox, MonitorLease'),
    -- Notifications are written by triggers; the monitor delivers them, and says what came of it.
    ('understudy_monitor', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_monitor', 'UPDATE (next_attempt_at, attempts, last_error, delivered_at)', 'Notification'),
    ('understudy_monitor', 'USAGE', 'SEQUENCE rolloutevent_id_seq, alertoutbox_id_seq, warmuprequest_id_seq'),
    ('understudy_monitor', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ), understudy_drop_silent_servers()'),
    -- The agent beside a model server: it carries placements out, and says what is loaded. Endpoints it adds and takes back by
    -- functions alone, which know those of servers that agents report.
    ('understudy_agent', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, ProxyInstance, VersionLoading, Placement, '
        'alembic_version'),
    ('understudy_agent', 'UPDATE (pinned_digest)', 'VersionLoading'),
    ('understudy_agent', 'SELECT, INSERT, UPDATE', 'ModelServer, AgentLease'),
    ('understudy_agent', 'SELECT, INSERT, UPDATE, DELETE', 'LoadedVersion'),
    ('understudy_agent', 'EXECUTE', 'FUNCTION understudy_add_agent_endpoint(BIGINT, TEXT), '
        'understudy_remove_agent_endpoint(BIGINT, TEXT), understudy_left_endpoints(TEXT)'),
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
    ('understudy_engineer', 'SELECT', 'ModelServer, Placement, LoadedVersion, AgentLease'),
    ('understudy_engineer', 'SELECT, INSERT, UPDATE', 'VersionLoading'),
    ('understudy_engineer', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_engineer', 'INSERT (name, receiver, format, model_name, kinds, severity), '
        'UPDATE (receiver, format, model_name, kinds, severity), DELETE', 'Subscription'),
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
    ('understudy_reader', 'SELECT', 'ModelServer, VersionLoading, Placement, LoadedVersion, AgentLease'),
    ('understudy_reader', 'SELECT', 'Subscription, SubscriptionAudit, Notification'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey')
$$;
DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_notify', 'understudy_notify_policy', 'understudy_notify_alert', 'understudy_notify_rollout',
            'understudy_notify_registry', 'understudy_notify_experiment', 'understudy_notify_loading',
            'understudy_test_subscription', 'understudy_bound_subscriptions', 'understudy_record_subscription',
            'understudy_guard_subscription_audit', 'understudy_count_texts', 'understudy_version_label', 'understudy_rights')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_notify_policy', 'understudy_notify_alert', 'understudy_notify_rollout', 'understudy_notify_registry',
            'understudy_notify_experiment', 'understudy_notify_loading')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET lock_timeout = ''200ms''', function);
    END LOOP;
    REVOKE EXECUTE ON FUNCTION
        understudy_notify(TEXT, TEXT, TEXT, JSONB), understudy_test_subscription(TEXT), understudy_notify_policy(),
        understudy_notify_alert(), understudy_notify_rollout(), understudy_notify_registry(), understudy_notify_experiment(),
        understudy_notify_loading(), understudy_record_subscription()
    FROM PUBLIC;
END $$;
SELECT understudy_grant_roles();
