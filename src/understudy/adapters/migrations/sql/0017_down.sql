DROP TRIGGER outcomeevent_of_model ON OutcomeEvent;
DROP FUNCTION understudy_scope_outcome();
DROP TRIGGER alertoutbox_size ON alertoutbox;
DROP TRIGGER experiment_size ON experiment;
DROP TRIGGER logarchive_size ON logarchive;
DROP TRIGGER logarchivefile_size ON logarchivefile;
DROP TRIGGER modelversion_size ON modelversion;
DROP TRIGGER monitorlease_size ON monitorlease;
DROP TRIGGER predictiondeadletter_size ON predictiondeadletter;
DROP TRIGGER predictionwindow_size ON predictionwindow;
DROP TRIGGER proxyinstance_size ON proxyinstance;
DROP TRIGGER rollout_size ON rollout;
DROP TRIGGER rolloutevent_size ON rolloutevent;
DROP TRIGGER servingpolicy_size ON servingpolicy;
DROP TRIGGER spooloffset_size ON spooloffset;
DROP FUNCTION understudy_refuse_size();
DROP TRIGGER servingpolicy_words ON ServingPolicy;
DROP TRIGGER experiment_words ON Experiment;
DROP FUNCTION understudy_bound_author();
CREATE OR REPLACE FUNCTION understudy_drop_archived(archive BIGINT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    month LogArchive;
BEGIN
    SELECT * INTO month FROM LogArchive WHERE id = archive FOR UPDATE;
    IF NOT FOUND OR month.state <> 'detached' THEN
        PERFORM understudy_refuse(
            format('archive %s is %s: a month is dropped once it was detached', coalesce(archive::TEXT, 'NULL'),
                   coalesce(month.state, 'not there')), 'Leave it to: understudy db archive');
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I', month.detached_as);
    UPDATE LogArchive SET state = 'archived', changed_at = now() WHERE id = archive;
END $$;
DROP FUNCTION understudy_drop_due();
CREATE OR REPLACE FUNCTION understudy_host_problem(target TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
DECLARE
    host    TEXT := lower(rtrim(regexp_replace(target, ':[0-9]+$', ''), '.'));
    address INET;
    hidden  TEXT;
    problem TEXT;
BEGIN
    IF host ~ '^\[.*\]$' OR host ~ '^[0-9.]+$' THEN
        BEGIN
            address := trim(BOTH '[]' FROM host)::INET;
        EXCEPTION WHEN invalid_text_representation THEN
            RETURN 'is no address';
        END;
        -- An IPv4 address in the clothes of IPv6 (mapped, compatible, NAT64) is judged as what it is.
        IF family(address) = 6 AND (address <<= '::ffff:0:0/96' OR address <<= '64:ff9b::/96'
                                    OR (address <<= '::/96' AND address > '::ffff')) THEN
            address := '0.0.0.0'::INET + (address - CASE WHEN address <<= '::ffff:0:0/96' THEN '::ffff:0:0'::INET
                                                         WHEN address <<= '64:ff9b::/96' THEN '64:ff9b::'::INET
                                                         ELSE '::'::INET END);
        END IF;
    END IF;
    -- 6to4 (RFC 3056), local-use NAT64 with a prefix of 48 or 96 bits (RFC 8215, RFC 6052), SIIT (RFC 2765): a router makes
    -- an IPv4 address of these bytes. inet_send has four bytes before them.
    FOR hidden IN
        SELECT format('%s.%s.%s.%s', get_byte(raw, a), get_byte(raw, b), get_byte(raw, c), get_byte(raw, d))
        FROM inet_send(address) AS raw, (VALUES
            ('2002::/16'::INET, 6, 7, 8, 9), ('64:ff9b:1::/48', 10, 11, 13, 14), ('64:ff9b:1::/48', 16, 17, 18, 19),
            ('::ffff:0:0:0/96', 16, 17, 18, 19)) AS hiding (network, a, b, c, d)
        WHERE address <<= network
    LOOP
        problem := CASE WHEN hidden <> '0.0.0.0' THEN understudy_host_problem(hidden || ':1') END;
        IF problem IS NOT NULL THEN
            RETURN format('leads to %s, which %s', hidden, problem);
        END IF;
    END LOOP;
    RETURN CASE
        WHEN address <<= '169.254.0.0/16' OR address <<= 'fe80::/10' THEN 'is link-local'
        WHEN address IN ('fd00:ec2::254', '100.100.100.200', '168.63.129.16', '192.0.0.192')
             OR host ~ '^(metadata|instance-data|metadata\.google\.internal|metadata\.goog|instance-data\.ec2\.internal)$'
            THEN 'is a cloud''s metadata service'
        WHEN address <<= '0.0.0.0/8' OR address = '::' THEN 'is the unspecified address'
        WHEN address <<= '224.0.0.0/3' OR address <<= 'ff00::/8' THEN 'is no single machine'
        WHEN (address <<= '127.0.0.0/8' OR address = '::1'
              OR host ~ '(^|\.)localhost$' OR host ~ '^(localhost\.localdomain|ip6-localhost|ip6-loopback)$')
             AND NOT EXISTS (SELECT FROM Installation WHERE loopback_endpoints)
            THEN 'is the machine of whoever calls it'
    END;
END $$;
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
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rights() SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION understudy_drop_archived(BIGINT) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION understudy_host_problem(TEXT) SET search_path = %I, pg_temp', current_schema());
END $$;
ALTER TABLE OutcomeEvent DROP COLUMN sent_as;
ALTER TABLE LogArchive DROP COLUMN drop_after, DROP COLUMN dropped_by;
ALTER TABLE Installation DROP COLUMN archive_grace;
SELECT understudy_grant_roles();
