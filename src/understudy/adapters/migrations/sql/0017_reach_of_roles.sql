-- What one key, or one role, may do to another's rows, once more.

-- -- outcomes -------------------------------------------------------------------------------------------------------------

-- An event's id is its model's own. The release before names the primary key in ON CONFLICT (event_id), so the key stays: where
-- the id is another model's, a random one stands in event_id and the sender's in sent_as.
ALTER TABLE OutcomeEvent ADD COLUMN sent_as VARCHAR(255);
CREATE UNIQUE INDEX outcomeevent_sent_as ON OutcomeEvent (model_name, sent_as) WHERE sent_as IS NOT NULL;

-- As the owner: proxies may read nothing of an outcome but its id.
CREATE FUNCTION understudy_scope_outcome() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.sent_as IS NULL THEN
        -- No second row in the place of the first, whose id has become free since.
        IF EXISTS (SELECT FROM OutcomeEvent WHERE model_name = NEW.model_name AND sent_as = NEW.event_id) THEN
            RETURN NULL;
        END IF;
        IF EXISTS (SELECT FROM OutcomeEvent WHERE event_id = NEW.event_id AND model_name <> NEW.model_name) THEN
            NEW.sent_as := NEW.event_id;
            -- Random, so that it is in no other sender's power to be there first.
            NEW.event_id := gen_random_uuid();
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER outcomeevent_of_model BEFORE INSERT ON OutcomeEvent FOR EACH ROW EXECUTE FUNCTION understudy_scope_outcome();

-- -- months of the log ---------------------------------------------------------------------------------------------------

-- The archive job says itself that files were read back. A month that it lets go is kept as a table for so long, unless its login
-- owns the tables: so a stolen login of the job deletes nothing at once.
ALTER TABLE Installation ADD COLUMN archive_grace INTERVAL NOT NULL DEFAULT '3 days' CHECK (archive_grace >= '0');
-- Neither column is granted: infinity keeps the table until the owner of the tables says otherwise.
ALTER TABLE LogArchive ADD COLUMN drop_after TIMESTAMPTZ, ADD COLUMN dropped_by TEXT;

-- Drops the tables whose time has come; returns how many.
CREATE FUNCTION understudy_drop_due() RETURNS INT LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    month   LogArchive;
    dropped INT := 0;
BEGIN
    FOR month IN SELECT * FROM LogArchive WHERE drop_after <= now() AND state = 'archived' ORDER BY id FOR UPDATE LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I', month.detached_as);
        UPDATE LogArchive SET drop_after = NULL, changed_at = now() WHERE id = month.id;
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

CREATE OR REPLACE FUNCTION understudy_drop_archived(archive BIGINT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    month LogArchive;
    grace INTERVAL := (SELECT archive_grace FROM Installation);
BEGIN
    SELECT * INTO month FROM LogArchive WHERE id = archive FOR UPDATE;
    IF NOT FOUND OR month.state <> 'detached' THEN
        PERFORM understudy_refuse(
            format('archive %s is %s: a month is dropped once it was detached', coalesce(archive::TEXT, 'NULL'),
                   coalesce(month.state, 'not there')), 'Leave it to: understudy db archive');
    END IF;
    -- Not CURRENT_USER: this function is the owner's.
    IF (SELECT pg_has_role(SESSION_USER, relowner, 'MEMBER') FROM pg_class WHERE oid = 'servingpolicy'::REGCLASS) THEN
        grace := '0';
    END IF;
    UPDATE LogArchive SET state = 'archived', dropped_by = SESSION_USER, changed_at = now(),
        drop_after = CASE drop_after WHEN 'infinity' THEN drop_after ELSE now() + coalesce(grace, '3 days') END
    WHERE id = archive;
    PERFORM understudy_drop_due();
END $$;

-- -- how much a role may write ---------------------------------------------------------------------------------------------

-- After the trigger that signs a policy, by its name.
CREATE FUNCTION understudy_bound_author() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'experiment' THEN
        NEW.created_by := left(NEW.created_by, 255);
    ELSE
        NEW.updated_by := left(NEW.updated_by, 255);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER servingpolicy_words BEFORE INSERT OR UPDATE ON ServingPolicy
    FOR EACH ROW WHEN (length(NEW.updated_by) > 255) EXECUTE FUNCTION understudy_bound_author();
CREATE TRIGGER experiment_words BEFORE INSERT OR UPDATE ON Experiment
    FOR EACH ROW WHEN (length(NEW.created_by) > 255) EXECUTE FUNCTION understudy_bound_author();

CREATE FUNCTION understudy_refuse_size() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM understudy_refuse(format('a row of %s is too large: %s', TG_TABLE_NAME, TG_ARGV[0]), 'Write less into these columns');
    RETURN NULL;
END $$;
-- Triggers and no CHECK, as above; pg_column_size, since it renders no JSON. PredictionLog has none: what it takes is bounded by the
-- spool's frame (4 MiB), and a trigger would cost each row.
DO $$
DECLARE
    one     RECORD;
    named   RECORD;
    too_big TEXT;
    said    TEXT;
BEGIN
    FOR one IN
        SELECT bounded, bounds FROM (VALUES
            ('alertoutbox', '{"last_error": 100000, "payload": 4194304}'::JSON),
            ('experiment', '{"plan": 4194304, "result": 4194304}'),
            ('logarchive', '{"location": 4096, "fingerprint": 1000}'),
            ('logarchivefile', '{"key": 4096}'),
            ('modelversion', '{"artifact_path": 4096, "artifact_digest": 1000, "metrics": 16777216}'),
            ('monitorlease', '{"holder": 1000}'),
            ('predictiondeadletter', '{"spool_id": 1000, "why": 100000, "row": 67108864}'),
            ('predictionwindow', '{"counts": 16777216}'),
            ('proxyinstance', '{"generations": 16777216, "in_flight": 16777216}'),
            ('rollout', '{"plan": 4194304, "state": 16777216}'),
            ('rolloutevent', '{"reason": 100000, "code_version": 1000, "evidence": 67108864, "inputs": 67108864, '
                '"thresholds": 4194304}'),
            ('servingpolicy', '{"arms": 65536, "category_roles": 262144}'),
            ('spooloffset', '{"spool_id": 1000}')) AS given (bounded, bounds)
    LOOP
        too_big := '';
        said := '';
        FOR named IN SELECT key, value FROM json_each_text(one.bounds) LOOP
            too_big := concat_ws(' OR ', nullif(too_big, ''), format('pg_column_size(NEW.%I) > %s', named.key, named.value));
            said := concat_ws(', ', nullif(said, ''), format('%s has at most %s bytes', named.key, named.value));
        END LOOP;
        EXECUTE format('CREATE TRIGGER %I BEFORE INSERT OR UPDATE OF %s ON %I FOR EACH ROW WHEN (%s) '
                       'EXECUTE FUNCTION understudy_refuse_size(%L)', one.bounded || '_size',
                       (SELECT string_agg(quote_ident(key), ', ') FROM json_object_keys(one.bounds) AS key), one.bounded,
                       too_big, said);
    END LOOP;
END $$;

-- -- addresses ----------------------------------------------------------------------------------------------------------

-- As proxies judge them (core.upstream.endpoint_rules); a test compares the two lists.
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
        WHEN address <<= 'fd00:ec2::/32'
             OR address IN ('100.100.100.200', '168.63.129.16', '192.0.0.192', 'fd00:c1::a9fe:a9fe', 'fd20:ce::254', 'fd00:42::42')
             OR host ~ '^(metadata|instance-data|metadata\.google\.internal|metadata\.goog|instance-data\.ec2\.internal)$'
            THEN 'is a cloud''s metadata service'
        WHEN address <<= 'fec0::/10' THEN 'is site-local, which was abolished (RFC 3879)'
        WHEN address <<= '2001::/32' THEN 'is a Teredo tunnel''s, which ends at an IPv4 address of its owner''s choice'
        WHEN address <<= '0.0.0.0/8' OR address = '::' THEN 'is the unspecified address'
        WHEN address <<= '224.0.0.0/3' OR address <<= 'ff00::/8' THEN 'is no single machine'
        WHEN (address <<= '127.0.0.0/8' OR address = '::1'
              OR host ~ '(^|\.)localhost$' OR host ~ '^(localhost\.localdomain|ip6-localhost|ip6-loopback)$')
             AND NOT EXISTS (SELECT FROM Installation WHERE loopback_endpoints)
            THEN 'is the machine of whoever calls it'
    END;
END $$;

-- The whole list again, with the columns above.
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
    ('understudy_proxy', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- The control loop: it moves weights and champions, and never invents a version, an endpoint or a key.
    ('understudy_monitor', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, DriftHour, MonitorLease, ProxyInstance, Rollout, RolloutEvent, Experiment, '
        'OutcomeEvent, AlertOutbox, ArchiveStatus, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_monitor', 'UPDATE (champion_version, challenger_version, challenger_weight, shadow_version, rollout_id, '
        'salt, arms)', 'ServingPolicy'),
    ('understudy_monitor', 'SELECT (drop_after)', 'LogArchive'),
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
        'understudy_detach_archived(BIGINT), understudy_drop_archived(BIGINT), understudy_drop_due()'),
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
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_scope_outcome', 'understudy_drop_due', 'understudy_drop_archived', 'understudy_bound_author',
            'understudy_refuse_size', 'understudy_host_problem', 'understudy_rights')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION understudy_drop_due() FROM PUBLIC;
