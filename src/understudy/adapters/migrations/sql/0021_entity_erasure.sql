-- What is erased of one entity, at a person's wish: by functions with their owner's rights, so that the role that may erase can
-- read and change nothing else. Rows of the log and outcomes stay, since exposures and evidence are counted from them; the name
-- in them goes, and all by which a reader of other records could find the row: inputs, their hash, the prediction's id.

-- One row for each erasure, and its audit. The digest tells those who know the id, and the secret below, that it was erased; late
-- rows are known by it. The salt is what the rows' new names are made from: it goes when the erasure has come to its end.
CREATE TABLE EntityErasure (
    id            BIGSERIAL    PRIMARY KEY,
    model_name    VARCHAR(255),                 -- NULL: every model
    digest        CHAR(64)     NOT NULL,
    salt          BYTEA,
    began_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    erased_before TIMESTAMPTZ  NOT NULL,        -- what comes later and happened before is late
    finished_at   TIMESTAMPTZ,
    actor         TEXT         NOT NULL,
    via           TEXT         NOT NULL,
    reason        TEXT,
    log_rows      BIGINT       NOT NULL DEFAULT 0,
    kept_rows     BIGINT       NOT NULL DEFAULT 0,   -- in tables of archived months that wait to be dropped
    archived_rows BIGINT       NOT NULL DEFAULT 0,
    files         BIGINT       NOT NULL DEFAULT 0,
    outcomes      BIGINT       NOT NULL DEFAULT 0,
    dead_letters  BIGINT       NOT NULL DEFAULT 0,
    CONSTRAINT entityerasure_salt_goes CHECK ((finished_at IS NULL) = (salt IS NOT NULL))
);
CREATE UNIQUE INDEX entityerasure_one_open ON EntityErasure (digest, coalesce(model_name, '')) WHERE finished_at IS NULL;
CREATE INDEX entityerasure_digest ON EntityErasure (digest);

-- A file that takes another's place is named here before it is written, and the other until it is deleted.
CREATE TABLE EntityErasureFile (
    erasure_id BIGINT NOT NULL REFERENCES EntityErasure(id),
    archive_id BIGINT NOT NULL,
    old_key    TEXT   NOT NULL,
    new_key    TEXT   NOT NULL,
    PRIMARY KEY (erasure_id, archive_id, old_key)
);

-- The key of the digests. No role reads it.
CREATE TABLE ErasureSecret (
    is_only BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (is_only),
    secret  BYTEA   NOT NULL CHECK (octet_length(secret) >= 32)
);
INSERT INTO ErasureSecret (secret) VALUES (sha256(convert_to(gen_random_uuid()::TEXT || gen_random_uuid()::TEXT, 'UTF8')));

CREATE FUNCTION understudy_guard_entity_erasure() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.finished_at < now() - INTERVAL '730 days' THEN
            RETURN OLD;
        END IF;
    ELSIF OLD.finished_at IS NULL THEN
        RETURN NEW;
    END IF;
    PERFORM understudy_refuse(
        'EntityErasure is the audit of what was erased: no row changes once it is finished, nor goes before two years are over',
        'Late rows of an erased entity are known by it; an erasure that is not finished goes on with: understudy entity forget');
    RETURN NULL;
END $$;
CREATE TRIGGER entityerasure_guard BEFORE UPDATE OR DELETE ON EntityErasure
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_entity_erasure();
CREATE TRIGGER entityerasure_no_truncate BEFORE TRUNCATE ON EntityErasure
    FOR EACH STATEMENT EXECUTE FUNCTION understudy_refuse_truncate();

-- -- names ----------------------------------------------------------------------------------------------------------------

-- Nested, so that nothing can be appended to what was hashed (as NMAC, Bellare, Canetti and Krawczyk, 1996).
CREATE FUNCTION understudy_entity_digest(entity TEXT) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(secret || sha256(secret || convert_to(entity, 'UTF8'))), 'hex') FROM ErasureSecret
$$;
-- core.prediction_log.erasure has both in Python, for files.
CREATE FUNCTION understudy_erased_name(salt BYTEA, model TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT 'erased-' || left(encode(sha256(salt || convert_to('entity:' || model, 'UTF8')), 'hex'), 32)
$$;
CREATE FUNCTION understudy_erased_id(salt BYTEA, prediction UUID) RETURNS UUID LANGUAGE sql IMMUTABLE AS $$
    SELECT left(encode(sha256(salt || convert_to('prediction:' || prediction::TEXT, 'UTF8')), 'hex'), 32)::UUID
$$;
CREATE FUNCTION understudy_random_salt() RETURNS BYTEA LANGUAGE sql VOLATILE AS $$
    SELECT sha256(convert_to(gen_random_uuid()::TEXT || gen_random_uuid()::TEXT, 'UTF8'))
$$;
-- How an entity's id stands in a line of COPY, as the bytes of PredictionDeadLetter are told here: bytes that are no ASCII as \nnn.
CREATE FUNCTION understudy_entity_in_line(entity TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(convert_to(replace(replace(replace(replace(
        entity, '\', '\\'), E'\t', '\t'), E'\n', '\n'), E'\r', '\r'), 'UTF8'), 'escape')
$$;

-- -- steps of an erasure ----------------------------------------------------------------------------------------------------

-- The erasure, if it is open and this entity's.
CREATE FUNCTION understudy_open_erasure(erasure BIGINT, entity TEXT) RETURNS EntityErasure LANGUAGE plpgsql AS $$
DECLARE
    one EntityErasure;
BEGIN
    SELECT * INTO one FROM EntityErasure WHERE id = erasure AND finished_at IS NULL AND digest = understudy_entity_digest(entity);
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('there is no open erasure %s of this entity', coalesce(erasure::TEXT, 'NULL')),
                                  'Begin one: understudy entity forget MODEL ENTITY');
    END IF;
    RETURN one;
END $$;

-- A name with a mistake in it erases nothing: an error says so instead of a count of 0. NULL stands for every model.
CREATE FUNCTION understudy_require_model(model TEXT) RETURNS VOID LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF model IS NOT NULL AND NOT EXISTS (SELECT FROM ModelVersion WHERE model_name = model)
       AND NOT EXISTS (SELECT FROM LogArchiveFile WHERE model_name = model)
       AND NOT EXISTS (SELECT FROM OutcomeEvent WHERE model_name = model) THEN
        PERFORM understudy_refuse(format('there is no model %s, neither in the registry nor in the archive', left(model, 255)),
                                  'understudy model list names the models; all stands for every one');
    END IF;
END $$;

-- Begins an erasure, or goes on with one that was stopped. From its commit on late rows are known. A minute is left for clocks of
-- proxies that are ahead.
CREATE FUNCTION understudy_begin_erasure(model TEXT, entity TEXT, why TEXT, claimed_via TEXT)
RETURNS TABLE (id BIGINT, salt BYTEA, is_resumed BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
#variable_conflict use_column
DECLARE
    mark TEXT;
BEGIN
    IF coalesce(entity, '') = '' OR length(entity) > 255 THEN
        PERFORM understudy_refuse('an entity id has 1 to 255 characters', 'For example: understudy entity forget churn customer-42');
    END IF;
    PERFORM understudy_require_model(model);
    mark := understudy_entity_digest(entity);
    RETURN QUERY
        INSERT INTO EntityErasure AS known (model_name, digest, salt, erased_before, actor, via, reason)
        VALUES (model, mark, understudy_random_salt(), now() + INTERVAL '1 minute', left(understudy_actor(), 255),
                left(coalesce(claimed_via, 'sql'), 255), left(why, 1000))
        ON CONFLICT (digest, coalesce(model_name, '')) WHERE finished_at IS NULL
        DO UPDATE SET erased_before = excluded.erased_before
        RETURNING known.id, known.salt, known.began_at < now();
END $$;

-- The sessions that may still have rows of before the digest in transactions: no trigger of theirs has seen it.
CREATE FUNCTION understudy_writers_of_rows() RETURNS TEXT[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{}') FROM pg_locks
    WHERE locktype = 'relation' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND relation IN ('predictionlog'::REGCLASS, 'outcomeevent'::REGCLASS, 'predictiondeadletter'::REGCLASS)
$$;

-- Keeps the archive job out, until the transaction of the caller ends; its lock_timeout is the caller's.
CREATE FUNCTION understudy_lock_archive() RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    LOCK TABLE ArchiveStatus IN SHARE UPDATE EXCLUSIVE MODE;
END $$;

-- A table with rows of the log, a month's or of an archived one, with its schema.
CREATE FUNCTION understudy_require_log_table(place TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF place !~ '^predictionlog_[0-9]{4}_[0-9]{2}(_archived_[0-9]+)?$' OR understudy_log_table(place) IS NULL THEN
        PERFORM understudy_refuse(format('%s is no table of the log', coalesce(left(place, 100), 'NULL')),
                                  'Leave it to: understudy entity forget');
    END IF;
    RETURN understudy_log_table(place);
END $$;

-- One month, or one table of a month that waits to be dropped; a transaction of its own, so that no lock is held for longer.
CREATE FUNCTION understudy_erase_month(erasure BIGINT, entity TEXT, place TEXT) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one       EntityErasure := understudy_open_erasure(erasure, entity);
    held      TEXT := understudy_require_log_table(place);
    is_month  BOOLEAN := place ~ '^predictionlog_[0-9]{4}_[0-9]{2}$';
    renamed   BIGINT;
    retold    BIGINT;
BEGIN
    -- A version may be gone before the table of an archived month is: such rows count as this model's.
    EXECUTE format($statement$
        WITH found AS MATERIALIZED (
            SELECT log.id, log.predicted_at, log.prediction_id, coalesce(version.model_name, $2, '') AS model_name
            FROM %1$s AS log LEFT JOIN ModelVersion AS version ON version.id = log.model_version_id
            WHERE log.entity_id = $1 AND ($2 IS NULL OR coalesce(version.model_name, $2) = $2)
        ), renamed AS (
            UPDATE %1$s AS log
            SET entity_id = understudy_erased_name($3, found.model_name), input_hash = '', inputs = NULL,
                prediction_id = understudy_erased_id($3, found.prediction_id)
            FROM found WHERE log.id = found.id AND log.predicted_at = found.predicted_at
            RETURNING 1
        ), retold AS (
            UPDATE OutcomeEvent AS told
            SET entity_id = understudy_erased_name($3, found.model_name), prediction_id = NULL, sent_as = NULL,
                event_id = gen_random_uuid()
            FROM found
            WHERE told.prediction_id = found.prediction_id AND told.entity_id IS NULL AND told.model_name = found.model_name
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM renamed), (SELECT count(*) FROM retold)
    $statement$, held) INTO renamed, retold USING entity, one.model_name, one.salt;
    UPDATE EntityErasure SET log_rows = log_rows + CASE WHEN is_month THEN renamed ELSE 0 END,
        kept_rows = kept_rows + CASE WHEN is_month THEN 0 ELSE renamed END, outcomes = outcomes + retold
    WHERE id = erasure AND renamed + retold > 0;
    RETURN renamed;
END $$;

-- Outcomes that name the entity, and dead letters with a row of it. These go: no count rests on them.
CREATE FUNCTION understudy_erase_beside_log(erasure BIGINT, entity TEXT) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one    EntityErasure := understudy_open_erasure(erasure, entity);
    retold BIGINT;
    gone   BIGINT;
BEGIN
    UPDATE OutcomeEvent
    SET entity_id = understudy_erased_name(one.salt, model_name), prediction_id = NULL, sent_as = NULL, event_id = gen_random_uuid()
    WHERE entity_id = entity AND (one.model_name IS NULL OR model_name = one.model_name);
    GET DIAGNOSTICS retold = ROW_COUNT;
    DELETE FROM PredictionDeadLetter
    WHERE split_part(encode("row", 'escape'), E'\t', 5) = understudy_entity_in_line(entity)
      AND (one.model_name IS NULL OR split_part(encode("row", 'escape'), E'\t', 3) IN (
          SELECT version.id::TEXT FROM ModelVersion AS version WHERE version.model_name = one.model_name));
    GET DIAGNOSTICS gone = ROW_COUNT;
    UPDATE EntityErasure SET outcomes = outcomes + retold, dead_letters = dead_letters + gone
    WHERE id = erasure AND retold + gone > 0;
    RETURN retold + gone;
END $$;

-- Outcomes that name a prediction only, which is in a file.
CREATE FUNCTION understudy_erase_told(erasure BIGINT, entity TEXT, model TEXT, predictions UUID[]) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one    EntityErasure := understudy_open_erasure(erasure, entity);
    retold BIGINT;
BEGIN
    UPDATE OutcomeEvent
    SET entity_id = understudy_erased_name(one.salt, model_name), prediction_id = NULL, sent_as = NULL, event_id = gen_random_uuid()
    WHERE prediction_id = ANY (predictions) AND entity_id IS NULL AND model_name = model
      AND (one.model_name IS NULL OR model_name = one.model_name);
    GET DIAGNOSTICS retold = ROW_COUNT;
    UPDATE EntityErasure SET outcomes = outcomes + retold WHERE id = erasure AND retold > 0;
    RETURN retold;
END $$;

-- A month whose files are written but not its only copy yet: they are written again, from the table. What they were named must be
-- deleted before.
CREATE FUNCTION understudy_begin_archive_anew(erasure BIGINT, entity TEXT, archive BIGINT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    UPDATE LogArchive SET state = 'exporting', attempt = attempt + 1, row_count = NULL, fingerprint = NULL, changed_at = now()
    WHERE id = archive AND state IN ('exporting', 'exported', 'verified');
    IF FOUND THEN
        DELETE FROM LogArchiveFile WHERE archive_id = archive;
    END IF;
END $$;

CREATE FUNCTION understudy_name_erased_file(erasure BIGINT, entity TEXT, archive BIGINT, old_name TEXT, new_name TEXT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    IF NOT EXISTS (SELECT FROM LogArchive JOIN LogArchiveFile ON archive_id = id
                   WHERE id = archive AND key = old_name AND state IN ('detached', 'archived')) THEN
        PERFORM understudy_refuse(format('archive %s has no such file', archive), 'Leave it to: understudy entity forget');
    END IF;
    INSERT INTO EntityErasureFile (erasure_id, archive_id, old_key, new_key) VALUES (erasure, archive, old_name, new_name)
    ON CONFLICT DO NOTHING;
END $$;

-- In one moment readers go to the new file; what the archive's files hold together changes by what the name is longer.
CREATE FUNCTION understudy_swap_erased_file(
    erasure BIGINT, entity TEXT, archive BIGINT, old_name TEXT, changed_rows BIGINT, longer BIGINT, bytes BIGINT, digest TEXT
) RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one     EntityErasure := understudy_open_erasure(erasure, entity);
    figures TEXT[];
BEGIN
    SELECT string_to_array(fingerprint, ':') INTO figures FROM LogArchive
    WHERE id = archive AND state IN ('detached', 'archived') FOR UPDATE;
    UPDATE LogArchiveFile AS file SET key = named.new_key, byte_count = bytes, sha256 = understudy_swap_erased_file.digest
    FROM EntityErasureFile AS named
    WHERE named.erasure_id = erasure AND named.archive_id = archive AND named.old_key = old_name
      AND file.archive_id = archive AND file.key = old_name AND cardinality(figures) = 9;
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('a file of archive %s cannot take the place of another', archive),
                                  'Run understudy entity forget again: it goes on where this run stopped');
    END IF;
    figures[7] := (figures[7]::BIGINT + longer)::TEXT;
    UPDATE LogArchive SET fingerprint = array_to_string(figures, ':'), changed_at = now() WHERE id = archive;
    UPDATE EntityErasure SET archived_rows = archived_rows + changed_rows, files = files + 1 WHERE id = erasure;
END $$;

-- Once the manifest is written anew and what was replaced is deleted.
CREATE FUNCTION understudy_end_erased_files(erasure BIGINT, entity TEXT, archive BIGINT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    DELETE FROM EntityErasureFile WHERE erasure_id = erasure AND archive_id = archive;
END $$;

-- How many rows of one table name an entity.
CREATE FUNCTION understudy_count_entity(model TEXT, entity TEXT, place TEXT) RETURNS BIGINT
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    found BIGINT;
BEGIN
    PERFORM understudy_require_model(model);
    EXECUTE format(
        'SELECT count(*) FROM %s AS log LEFT JOIN ModelVersion AS version ON version.id = log.model_version_id '
        'WHERE log.entity_id = $1 AND ($2 IS NULL OR coalesce(version.model_name, $2) = $2)',
        understudy_require_log_table(place)) INTO found USING entity, model;
    RETURN found;
END $$;

-- How many rows beside the log name an entity. What people wrote is not changed, only found.
CREATE FUNCTION understudy_count_beside_log(model TEXT, entity TEXT)
RETURNS TABLE (outcomes BIGINT, dead_letters BIGINT, texts BIGINT) LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT
        (SELECT count(*) FROM OutcomeEvent AS told WHERE told.entity_id = entity AND (model IS NULL OR told.model_name = model)),
        (SELECT count(*) FROM PredictionDeadLetter
         WHERE split_part(encode("row", 'escape'), E'\t', 5) = understudy_entity_in_line(entity)
           AND (model IS NULL OR split_part(encode("row", 'escape'), E'\t', 3) IN (
               SELECT version.id::TEXT FROM ModelVersion AS version WHERE version.model_name = model))),
        (SELECT count(*) FROM (
            SELECT reason FROM PolicyAudit UNION ALL SELECT reason FROM RegistryAudit UNION ALL SELECT reason FROM Rollout
            UNION ALL SELECT reason FROM RolloutEvent UNION ALL SELECT note FROM ApiKey) AS written (words)
         WHERE strpos(words, entity) > 0)
$$;

CREATE FUNCTION understudy_end_erasure(erasure BIGINT, entity TEXT) RETURNS EntityErasure
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    IF EXISTS (SELECT FROM EntityErasureFile WHERE erasure_id = erasure) THEN
        PERFORM understudy_refuse(format('files of erasure %s are not replaced yet', erasure),
                                  'Run understudy entity forget again: it goes on where this run stopped');
    END IF;
    UPDATE EntityErasure SET finished_at = now(), salt = NULL WHERE id = erasure RETURNING * INTO one;
    RETURN one;
END $$;

-- -- late rows ------------------------------------------------------------------------------------------------------------

-- A spool may ship rows long after their entity was erased, under any release: so the database knows them. Reads only, so that no
-- shipper waits for an erasure. A late row has a name of its own, since the salt is gone.
CREATE FUNCTION understudy_erase_late_rows() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    fresh_salt BYTEA := understudy_random_salt();
    key        BYTEA := (SELECT secret FROM ErasureSecret);
    late       RECORD;
BEGIN
    IF NOT EXISTS (SELECT FROM EntityErasure) THEN
        RETURN NULL;
    END IF;
    -- As understudy_entity_digest, which would cost each entity a call.
    FOR late IN
        SELECT came.id, came.predicted_at, came.prediction_id, version.model_name,
               sha256(fresh_salt || convert_to(came.entity_id, 'UTF8')) AS salt
        FROM (SELECT entity_id, encode(sha256(key || sha256(key || convert_to(entity_id, 'UTF8'))), 'hex') AS digest
              FROM arrived GROUP BY entity_id) AS met
        JOIN arrived AS came ON came.entity_id = met.entity_id
        JOIN ModelVersion AS version ON version.id = came.model_version_id
        WHERE EXISTS (
            SELECT FROM EntityErasure AS erasure
            WHERE erasure.digest = met.digest AND came.predicted_at < erasure.erased_before
              AND (erasure.model_name IS NULL OR erasure.model_name = version.model_name))
    LOOP
        UPDATE PredictionLog
        SET entity_id = understudy_erased_name(late.salt, late.model_name), input_hash = '', inputs = NULL,
            prediction_id = understudy_erased_id(late.salt, late.prediction_id)
        WHERE id = late.id AND predicted_at = late.predicted_at;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER predictionlog_erase_late AFTER INSERT ON PredictionLog
    REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION understudy_erase_late_rows();

-- A late outcome would name an entity that no row has: it goes, and so it does when it is sent once more.
CREATE FUNCTION understudy_refuse_late_outcome() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NEW.entity_id IS NOT NULL AND EXISTS (SELECT FROM EntityErasure) AND EXISTS (
        SELECT FROM EntityErasure AS erasure
        WHERE erasure.digest = understudy_entity_digest(NEW.entity_id) AND NEW.occurred_at < erasure.erased_before
          AND (erasure.model_name IS NULL OR erasure.model_name = NEW.model_name)) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER outcomeevent_erase_late BEFORE INSERT ON OutcomeEvent
    FOR EACH ROW EXECUTE FUNCTION understudy_refuse_late_outcome();

CREATE FUNCTION understudy_refuse_late_letter() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    fields TEXT[];
    entity TEXT;
BEGIN
    IF NOT EXISTS (SELECT FROM EntityErasure) THEN
        RETURN NEW;
    END IF;
    fields := string_to_array(encode(NEW."row", 'escape'), E'\t');
    BEGIN
        entity := convert_from(decode(fields[5], 'escape'), 'UTF8');
    EXCEPTION WHEN OTHERS THEN
        RETURN NEW;   -- no text, so no entity's id
    END;
    entity := replace(replace(replace(replace(replace(
        entity, '\\', chr(1)), '\t', E'\t'), '\n', E'\n'), '\r', E'\r'), chr(1), '\');
    IF EXISTS (
        SELECT FROM EntityErasure AS erasure LEFT JOIN ModelVersion AS version ON version.id::TEXT = fields[3]
        WHERE erasure.digest = understudy_entity_digest(entity)
          AND (erasure.model_name IS NULL OR erasure.model_name = version.model_name)
          -- Times of a spool are in one form, which sorts as they do.
          AND fields[2] < to_char(erasure.erased_before AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER predictiondeadletter_erase_late BEFORE INSERT ON PredictionDeadLetter
    FOR EACH ROW EXECUTE FUNCTION understudy_refuse_late_letter();

-- The whole list again, with the role above and its tables.
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
    ('understudy_engineer', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, reason, log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters)', 'EntityErasure'),
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
    ('understudy_retention', 'SELECT (id, finished_at), DELETE', 'EntityErasure'),
    -- A person who erases an entity, by functions alone: reads no row of the log and no outcome, and changes nothing else.
    ('understudy_eraser', 'SELECT', 'LogArchive, LogArchiveFile, EntityErasureFile, alembic_version'),
    ('understudy_eraser', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, reason, log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters)', 'EntityErasure'),
    ('understudy_eraser', 'EXECUTE', 'FUNCTION understudy_begin_erasure(TEXT, TEXT, TEXT, TEXT), understudy_lock_archive(), '
        'understudy_erase_month(BIGINT, TEXT, TEXT), understudy_erase_beside_log(BIGINT, TEXT), '
        'understudy_erase_told(BIGINT, TEXT, TEXT, UUID[]), understudy_begin_archive_anew(BIGINT, TEXT, BIGINT), '
        'understudy_name_erased_file(BIGINT, TEXT, BIGINT, TEXT, TEXT), '
        'understudy_swap_erased_file(BIGINT, TEXT, BIGINT, TEXT, BIGINT, BIGINT, BIGINT, TEXT), '
        'understudy_end_erased_files(BIGINT, TEXT, BIGINT), understudy_count_entity(TEXT, TEXT, TEXT), '
        'understudy_count_beside_log(TEXT, TEXT), '
        'understudy_end_erasure(BIGINT, TEXT)'),
    -- Dashboards and notebooks.
    ('understudy_reader', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, LogArchive, LogArchiveFile, ArchiveStatus, '
        'RegistryAudit, Installation, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_reader', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, reason, log_rows, kept_rows, archived_rows, '
        'files, outcomes, dead_letters)', 'EntityErasure'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey')
$$;
DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_guard_entity_erasure', 'understudy_entity_digest', 'understudy_erased_name', 'understudy_erased_id',
            'understudy_random_salt', 'understudy_entity_in_line', 'understudy_open_erasure', 'understudy_begin_erasure',
            'understudy_require_model', 'understudy_writers_of_rows', 'understudy_lock_archive', 'understudy_erase_month', 'understudy_erase_beside_log',
            'understudy_erase_told', 'understudy_begin_archive_anew', 'understudy_name_erased_file', 'understudy_swap_erased_file',
            'understudy_end_erased_files', 'understudy_count_entity', 'understudy_count_beside_log', 'understudy_require_log_table',
            'understudy_end_erasure', 'understudy_erase_late_rows',
            'understudy_refuse_late_outcome', 'understudy_refuse_late_letter', 'understudy_rights')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_entity_digest', 'understudy_open_erasure', 'understudy_begin_erasure', 'understudy_lock_archive',
            'understudy_erase_month', 'understudy_erase_beside_log', 'understudy_erase_told', 'understudy_begin_archive_anew',
            'understudy_name_erased_file', 'understudy_swap_erased_file', 'understudy_end_erased_files', 'understudy_count_entity',
            'understudy_count_beside_log', 'understudy_end_erasure')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
    END LOOP;
END $$;
SELECT understudy_grant_roles();
