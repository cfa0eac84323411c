-- Months of PredictionLog that are old go to Parquet files: what is where, and the last two steps of each month's way.

-- A row for each month on its way, or gone. Late rows may bring a month back; it then gets another row.
-- exporting: files are being written. exported: all are there, with the fingerprint of what they hold. verified: they were
-- read back. detached: the month is no partition any more, so readers go to the files. archived: its table is dropped.
CREATE TABLE LogArchive (
    id             BIGSERIAL    PRIMARY KEY,
    partition_name TEXT         NOT NULL CHECK (partition_name ~ '^predictionlog_[0-9]{4}_[0-9]{2}$'),
    month_start    TIMESTAMPTZ  NOT NULL,
    month_end      TIMESTAMPTZ  NOT NULL,
    location       TEXT         NOT NULL CHECK (location ~ '^(s3|file)://'),
    state          VARCHAR(20)  NOT NULL DEFAULT 'exporting'
                   CHECK (state IN ('exporting', 'exported', 'verified', 'detached', 'archived')),
    attempt        INT          NOT NULL DEFAULT 0,
    row_count      BIGINT,
    fingerprint    TEXT,
    detached_as    TEXT         CHECK (detached_as = partition_name || '_archived_' || id),
    began_at       TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    changed_at     TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    CHECK (month_end > month_start),
    CONSTRAINT logarchive_knows_its_rows CHECK (
        state = 'exporting' OR (row_count IS NOT NULL AND fingerprint IS NOT NULL)),
    CONSTRAINT logarchive_detached_somewhere CHECK (state NOT IN ('detached', 'archived') OR detached_as IS NOT NULL)
);
CREATE UNIQUE INDEX logarchive_one_open ON LogArchive (partition_name) WHERE state <> 'archived';

-- A file is named here before it is written, so that whatever may lie in the archive is known here; without a sum it is not
-- known to be whole.
CREATE TABLE LogArchiveFile (
    archive_id BIGINT       NOT NULL REFERENCES LogArchive(id) ON DELETE CASCADE,
    key        TEXT         NOT NULL,
    model_name VARCHAR(255) NOT NULL,
    day        DATE         NOT NULL,
    row_count  BIGINT,
    byte_count BIGINT,
    sha256     CHAR(64)     CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    PRIMARY KEY (archive_id, key)
);

-- When a run last came to its end; that there was nothing to do is an end, too.
CREATE TABLE ArchiveStatus (
    is_only      BOOLEAN     PRIMARY KEY DEFAULT TRUE CHECK (is_only),
    succeeded_at TIMESTAMPTZ NOT NULL
);

-- What the table of a month holds, in figures that readers of Parquet files come to as well (core.archive.Fingerprint).
CREATE FUNCTION understudy_archive_fingerprint(archive BIGINT) RETURNS TEXT
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    place TEXT;
    figures TEXT;
BEGIN
    SELECT coalesce(detached_as, partition_name) INTO place FROM LogArchive WHERE id = archive AND state <> 'archived';
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('there is no archive %s under way', coalesce(archive::TEXT, 'NULL')),
                                  'SELECT id, partition_name, state FROM LogArchive');
    END IF;
    EXECUTE format(
        'SELECT concat_ws('':'', count(*), coalesce(sum(id), 0), coalesce(sum(model_version_id), 0), '
        'coalesce(sum(latency_ms), 0), count(score), count(prediction_id), coalesce(sum(octet_length(entity_id)), 0), '
        'coalesce((extract(epoch FROM min(predicted_at)) * 1000000)::BIGINT, 0), '
        'coalesce((extract(epoch FROM max(predicted_at)) * 1000000)::BIGINT, 0)) FROM %I', place) INTO figures;
    RETURN figures;
END $$;

-- Takes a month out of PredictionLog, and has readers go to its files in the same moment. Late rows wait while it looks:
-- FALSE when there are any that the files do not have. No session queues longer than 1.5 s behind the lock on the whole log: less
-- than a shipper's patience (2 s), and more than the second after which Postgres ends an autovacuum that is in the way.
CREATE FUNCTION understudy_detach_archived(archive BIGINT) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    month    LogArchive;
    in_files BIGINT;
    unsure   BIGINT;
BEGIN
    SELECT * INTO month FROM LogArchive WHERE id = archive FOR UPDATE;
    IF NOT FOUND OR month.state <> 'verified' OR month.detached_as IS NOT NULL THEN
        PERFORM understudy_refuse(
            format('archive %s is %s: a month is taken out of PredictionLog once its files were read back',
                   coalesce(archive::TEXT, 'NULL'), coalesce(month.state, 'not there')), 'Leave it to: understudy db archive');
    END IF;
    -- By its name, which says what was made; the row's writer owns the columns.
    IF to_date(right(month.partition_name, 7), 'YYYY_MM') + INTERVAL '1 month 1 day' > now() AT TIME ZONE 'UTC' THEN
        PERFORM understudy_refuse(format('%s is not over, or was not a day ago', month.partition_name),
                                  'Its rows may still be on their way: archive it later');
    END IF;
    SELECT coalesce(sum(row_count), 0), count(*) FILTER (WHERE sha256 IS NULL) INTO in_files, unsure
    FROM LogArchiveFile WHERE archive_id = archive;
    IF unsure > 0 OR in_files <> month.row_count THEN
        PERFORM understudy_refuse(
            format('the files of archive %s hold %s rows instead of %s', archive, in_files, month.row_count),
            'Leave it to: understudy db archive');
    END IF;
    EXECUTE format('LOCK TABLE %I IN SHARE MODE', month.partition_name);
    IF understudy_archive_fingerprint(archive) <> month.fingerprint THEN
        RETURN FALSE;
    END IF;
    EXECUTE format('ALTER TABLE PredictionLog DETACH PARTITION %I', month.partition_name);
    -- Away with the name: a late row must find a new partition, and not this table.
    EXECUTE format('ALTER TABLE %I RENAME TO %I', month.partition_name, month.partition_name || '_archived_' || archive);
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'understudy_retention') THEN
        EXECUTE format('GRANT SELECT ON %I TO understudy_retention', month.partition_name || '_archived_' || archive);
    END IF;
    UPDATE LogArchive
    SET state = 'detached', detached_as = month.partition_name || '_archived_' || archive, changed_at = now()
    WHERE id = archive;
    RETURN TRUE;
END $$;

-- Drops what the function above took out.
CREATE FUNCTION understudy_drop_archived(archive BIGINT) RETURNS VOID
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

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOREACH function IN ARRAY ARRAY['understudy_archive_fingerprint(BIGINT)', 'understudy_detach_archived(BIGINT)',
                                    'understudy_drop_archived(BIGINT)']::REGPROCEDURE[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
    END LOOP;
END $$;

-- The whole list again, with the three tables above.
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
        'Installation, alembic_version, understudy_status, '
        'understudy_split, understudy_arms'),
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
        'AlertOutbox, alembic_version'),
    ('understudy_retention', 'DELETE', 'PolicyAudit, PolicyChange, PredictionMetric, PredictionWindow, PredictionDeadLetter, '
        'SpoolOffset, DriftHour, Rollout, RolloutEvent, OutcomeEvent, AlertOutbox'),
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
        'Installation, alembic_version, understudy_status, '
        'understudy_split, understudy_arms'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey')
$$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rights() SET search_path = %I, pg_temp', current_schema());
END $$;
