-- What a login with understudy_eraser says of the archive's files is held against what the ledger knows: a stolen password can
-- then make readers look for a file that is not there, and lose no row. No signature changes, so that the command line of the
-- release before erases under this schema.

-- -- files ------------------------------------------------------------------------------------------------------------------

-- Each file that took another's place, with what the ledger had before: the owner of the tables can put the other one back.
CREATE TABLE EntityErasureSwap (
    erasure_id     BIGINT      NOT NULL REFERENCES EntityErasure(id) ON DELETE CASCADE,
    archive_id     BIGINT      NOT NULL,
    old_key        TEXT        NOT NULL,
    new_key        TEXT        NOT NULL,
    old_byte_count BIGINT      NOT NULL,
    old_sha256     CHAR(64)    NOT NULL,
    longer         BIGINT      NOT NULL,           -- what the fingerprint gained
    actor          TEXT        NOT NULL,
    swapped_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (erasure_id, archive_id, old_key)
);

-- As replacing_key of core.prediction_log.erasure; NULL for what is no file with rows.
CREATE FUNCTION understudy_replacing_key(key TEXT, erasure BIGINT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN key ~ '.\.parquet$' THEN regexp_replace(key, '(.)(-e[0-9]+)?\.parquet$', format('\1-e%s.parquet', erasure)) END
$$;

-- As before, and the new name follows from the old one and the erasure: a person who runs the command again has what was named
-- deleted, so it may be no other file's name.
CREATE OR REPLACE FUNCTION understudy_name_erased_file(
    erasure BIGINT, entity TEXT, archive BIGINT, old_name TEXT, new_name TEXT
) RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    IF NOT EXISTS (SELECT FROM LogArchive JOIN LogArchiveFile AS file ON file.archive_id = id
                   WHERE id = archive AND file.key = old_name AND state IN ('detached', 'archived')
                     AND (one.model_name IS NULL OR file.model_name = one.model_name)) THEN
        PERFORM understudy_refuse(format('archive %s has no such file', archive), 'Leave it to: understudy entity forget');
    END IF;
    IF old_name = new_name OR new_name IS DISTINCT FROM understudy_replacing_key(old_name, erasure) THEN
        PERFORM understudy_refuse(format('a file of archive %s is not replaced by one of that name', archive),
                                  'Leave it to: understudy entity forget');
    END IF;
    INSERT INTO EntityErasureFile (erasure_id, archive_id, old_key, new_key) VALUES (erasure, archive, old_name, new_name)
    ON CONFLICT DO NOTHING;
END $$;

-- As before, and the figures fit the file: of its rows at least one has another name, and the fingerprint changes by what those
-- names are longer. What it replaces is kept in mind.
CREATE OR REPLACE FUNCTION understudy_swap_erased_file(
    erasure BIGINT, entity TEXT, archive BIGINT, old_name TEXT, changed_rows BIGINT, longer BIGINT, bytes BIGINT, digest TEXT
) RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one      EntityErasure := understudy_open_erasure(erasure, entity);
    figures  TEXT[];
    was      LogArchiveFile;
    new_name TEXT;
BEGIN
    SELECT string_to_array(fingerprint, ':') INTO figures FROM LogArchive
    WHERE id = archive AND state IN ('detached', 'archived') FOR UPDATE;
    SELECT named.new_key INTO new_name FROM EntityErasureFile AS named
    WHERE named.erasure_id = erasure AND named.archive_id = archive AND named.old_key = old_name
      AND named.new_key = understudy_replacing_key(old_name, erasure);
    SELECT * INTO was FROM LogArchiveFile AS file
    WHERE file.archive_id = archive AND file.key = old_name AND file.sha256 IS NOT NULL AND new_name IS NOT NULL
      AND cardinality(figures) = 9
    FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('a file of archive %s cannot take the place of another', archive),
                                  'Run understudy entity forget again: it goes on where this run stopped');
    END IF;
    IF NOT coalesce(changed_rows BETWEEN 1 AND was.row_count AND bytes > 0 AND digest ~ '^[0-9a-f]{64}$' AND digest <> was.sha256
                    AND longer = changed_rows * (octet_length(understudy_erased_name(one.salt, was.model_name))
                                                 - octet_length(entity)), FALSE) THEN
        PERFORM understudy_refuse(format('the figures of a file of archive %s do not fit the file that it replaces', archive),
                                  'Leave it to: understudy entity forget');
    END IF;
    INSERT INTO EntityErasureSwap AS known
        (erasure_id, archive_id, old_key, new_key, old_byte_count, old_sha256, longer, actor)
    VALUES (erasure, archive, old_name, new_name, was.byte_count, was.sha256, longer, left(understudy_actor(), 255))
    -- Put back by the owner, and replaced once more.
    ON CONFLICT (erasure_id, archive_id, old_key)
    DO UPDATE SET longer = excluded.longer, actor = excluded.actor, swapped_at = excluded.swapped_at;
    UPDATE LogArchiveFile AS file SET key = new_name, byte_count = bytes, sha256 = understudy_swap_erased_file.digest
    WHERE file.archive_id = archive AND file.key = old_name;
    figures[7] := (figures[7]::BIGINT + longer)::TEXT;
    UPDATE LogArchive SET fingerprint = array_to_string(figures, ':'), changed_at = now() WHERE id = archive;
    UPDATE EntityErasure SET archived_rows = archived_rows + changed_rows, files = files + 1 WHERE id = erasure;
END $$;

-- For the owner of the tables: readers go to the file again that another one took the place of. Its object has to be there still.
CREATE FUNCTION understudy_put_back_file(erasure BIGINT, archive BIGINT, old_name TEXT) RETURNS VOID
LANGUAGE plpgsql SET lock_timeout = '1500ms' AS $$
DECLARE
    swap    EntityErasureSwap;
    figures TEXT[];
BEGIN
    SELECT * INTO swap FROM EntityErasureSwap WHERE erasure_id = erasure AND archive_id = archive AND old_key = old_name;
    SELECT string_to_array(fingerprint, ':') INTO figures FROM LogArchive WHERE id = archive FOR UPDATE;
    UPDATE LogArchiveFile SET key = swap.old_key, byte_count = swap.old_byte_count, sha256 = swap.old_sha256
    WHERE archive_id = archive AND key = swap.new_key;
    IF NOT FOUND THEN
        PERFORM understudy_refuse(
            format('archive %s has no file that took the place of this one in erasure %s', archive, erasure),
            'Of several that followed one another put the newest back first: SELECT * FROM EntityErasureSwap ORDER BY swapped_at');
    END IF;
    figures[7] := (figures[7]::BIGINT - swap.longer)::TEXT;
    UPDATE LogArchive SET fingerprint = array_to_string(figures, ':'), changed_at = now() WHERE id = archive;
END $$;

-- -- what is claimed --------------------------------------------------------------------------------------------------------

-- Where the erasure has searched since it was begun, or begun again; and the other logins that went on with it.
ALTER TABLE EntityErasure ADD COLUMN searched TEXT[] NOT NULL DEFAULT '{}';
ALTER TABLE EntityErasure ADD COLUMN resumed_by TEXT[] NOT NULL DEFAULT '{}';

-- As before, and who goes on with another login's erasure is in its row, and the reason does not name the entity.
CREATE OR REPLACE FUNCTION understudy_begin_erasure(model TEXT, entity TEXT, why TEXT, claimed_via TEXT)
RETURNS TABLE (id BIGINT, salt BYTEA, is_resumed BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
#variable_conflict use_column
DECLARE
    mark TEXT;
BEGIN
    IF coalesce(entity, '') = '' OR length(entity) > 255 THEN
        PERFORM understudy_refuse('an entity id has 1 to 255 characters', 'For example: understudy entity forget churn customer-42');
    END IF;
    IF understudy_names_entity(why, entity) THEN
        PERFORM understudy_refuse('the reason has the entity''s id in it, and reasons are kept', 'Name a request instead');
    END IF;
    PERFORM understudy_require_model(model);
    mark := understudy_entity_digest(entity);
    RETURN QUERY
        INSERT INTO EntityErasure AS known (model_name, digest, salt, erased_before, actor, via, reason)
        VALUES (model, mark, understudy_random_salt(), now() + INTERVAL '1 minute', left(understudy_actor(), 255),
                left(coalesce(claimed_via, 'sql'), 255), left(why, 1000))
        ON CONFLICT (digest, coalesce(model_name, '')) WHERE finished_at IS NULL
        DO UPDATE SET erased_before = excluded.erased_before, searched = '{}', resumed_by = CASE
            WHEN excluded.actor = known.actor OR excluded.actor = ANY (known.resumed_by) OR cardinality(known.resumed_by) >= 100
            THEN known.resumed_by ELSE known.resumed_by || excluded.actor END
        RETURNING known.id, known.salt, known.began_at < now();
END $$;

-- As before, and the erasure has searched the table.
CREATE OR REPLACE FUNCTION understudy_erase_month(erasure BIGINT, entity TEXT, place TEXT) RETURNS BIGINT
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
        kept_rows = kept_rows + CASE WHEN is_month THEN 0 ELSE renamed END, outcomes = outcomes + retold,
        searched = array_remove(searched, place) || place
    WHERE id = erasure;
    RETURN renamed;
END $$;

-- As before, and the erasure has searched them.
CREATE OR REPLACE FUNCTION understudy_erase_beside_log(erasure BIGINT, entity TEXT) RETURNS BIGINT
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
    UPDATE EntityErasure SET outcomes = outcomes + retold, dead_letters = dead_letters + gone,
        searched = array_append(array_remove(searched, 'outcomes and dead letters'), 'outcomes and dead letters')
    WHERE id = erasure;
    RETURN retold + gone;
END $$;

-- As before, and every table that has rows of the log, outcomes and dead letters were searched since it was begun, or begun again.
-- What comes in after that is late, and known, or a new row.
CREATE OR REPLACE FUNCTION understudy_end_erasure(erasure BIGINT, entity TEXT) RETURNS EntityErasure
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    one     EntityErasure := understudy_open_erasure(erasure, entity);
    missing TEXT;
BEGIN
    IF EXISTS (SELECT FROM EntityErasureFile WHERE erasure_id = erasure) THEN
        PERFORM understudy_refuse(format('files of erasure %s are not replaced yet', erasure),
                                  'Run understudy entity forget again: it goes on where this run stopped');
    END IF;
    SELECT string_agg(place, ', ' ORDER BY place) INTO missing FROM (
        SELECT relname::TEXT FROM pg_class JOIN pg_inherits ON inhrelid = oid
        WHERE inhparent = 'predictionlog'::REGCLASS AND relname ~ '^predictionlog_[0-9]{4}_[0-9]{2}$'
        UNION ALL SELECT detached_as FROM LogArchive WHERE understudy_log_table(detached_as) IS NOT NULL
        UNION ALL SELECT 'outcomes and dead letters') AS kept (place)
    WHERE place <> ALL (one.searched);
    IF missing IS NOT NULL THEN
        PERFORM understudy_refuse(format('erasure %s has not searched %s', erasure, left(missing, 500)),
                                  'Run understudy entity forget again: it searches every table');
    END IF;
    UPDATE EntityErasure SET finished_at = now(), salt = NULL, searched = '{}' WHERE id = erasure RETURNING * INTO one;
    RETURN one;
END $$;

-- -- what is written and read -----------------------------------------------------------------------------------------------

-- Whether a text has an entity's id in it, as names_entity of core.prediction_log.erasure: whatever its capitals, and an id of up
-- to four characters as a word of its own, since such ones are in many words and numbers. Of capitals beyond ASCII it knows those
-- that the database's locale does.
CREATE FUNCTION understudy_names_entity(words TEXT, entity TEXT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN length(entity) > 4 THEN strpos(lower(words), lower(entity)) > 0
        ELSE lower(words) ~ ('(^|[^[:alnum:]])' || regexp_replace(lower(entity), '([^[:alnum:]])', '\\\1', 'g') || '($|[^[:alnum:]])')
    END
$$;

-- As before, but for texts (NULL): a login that may ask how many texts have any words reads those letter by letter.
CREATE OR REPLACE FUNCTION understudy_count_beside_log(model TEXT, entity TEXT)
RETURNS TABLE (outcomes BIGINT, dead_letters BIGINT, texts BIGINT) LANGUAGE sql STABLE SECURITY DEFINER AS $$
    SELECT
        (SELECT count(*) FROM OutcomeEvent AS told WHERE told.entity_id = entity AND (model IS NULL OR told.model_name = model)),
        (SELECT count(*) FROM PredictionDeadLetter
         WHERE split_part(encode("row", 'escape'), E'\t', 5) = understudy_entity_in_line(entity)
           AND (model IS NULL OR split_part(encode("row", 'escape'), E'\t', 3) IN (
               SELECT version.id::TEXT FROM ModelVersion AS version WHERE version.model_name = model))),
        NULL::BIGINT
$$;

-- How many texts that people wrote have the id of the entity in them that an open erasure is of: each question is in the audit.
CREATE FUNCTION understudy_count_texts(erasure BIGINT, entity TEXT) RETURNS BIGINT
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    one EntityErasure := understudy_open_erasure(erasure, entity);
BEGIN
    RETURN (SELECT count(*) FROM (
        SELECT reason FROM PolicyAudit UNION ALL SELECT reason FROM RegistryAudit UNION ALL SELECT reason FROM Rollout
        UNION ALL SELECT reason FROM RolloutEvent UNION ALL SELECT reason FROM EntityErasure UNION ALL SELECT note FROM ApiKey
    ) AS written (words) WHERE strpos(words, entity) > 0);
END $$;

-- As before, without the name: an error is in Postgres' log, and who confuses MODEL with ENTITY has the id in it.
CREATE OR REPLACE FUNCTION understudy_require_model(model TEXT) RETURNS VOID LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF model IS NOT NULL AND NOT EXISTS (SELECT FROM ModelVersion WHERE model_name = model)
       AND NOT EXISTS (SELECT FROM LogArchiveFile WHERE model_name = model)
       AND NOT EXISTS (SELECT FROM OutcomeEvent WHERE model_name = model) THEN
        PERFORM understudy_refuse('there is no model of this name, neither in the registry nor in the archive',
                                  'understudy model list names the models; all stands for every one');
    END IF;
END $$;

-- The other way: what a field of a line of COPY stands for. Its backslashes are in pairs where they are themselves.
CREATE FUNCTION understudy_entity_of_field(field TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(string_agg(replace(replace(replace(part, '\t', E'\t'), '\n', E'\n'), '\r', E'\r'), '\' ORDER BY place), '')
    FROM unnest(string_to_array(field, '\\')) WITH ORDINALITY AS parts (part, place)
$$;

-- As before, for every id.
CREATE OR REPLACE FUNCTION understudy_refuse_late_letter() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    fields TEXT[];
    entity TEXT;
BEGIN
    IF NOT EXISTS (SELECT FROM EntityErasure) THEN
        RETURN NEW;
    END IF;
    fields := string_to_array(encode(NEW."row", 'escape'), E'\t');
    BEGIN
        entity := understudy_entity_of_field(convert_from(decode(fields[5], 'escape'), 'UTF8'));
    EXCEPTION WHEN OTHERS THEN
        RETURN NEW;   -- no text, so no entity's id
    END;
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

-- The whole list again, with the column and the function above.
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
    ('understudy_engineer', 'SELECT (id, model_name, digest, began_at, erased_before, finished_at, actor, via, resumed_by, reason, '
        'log_rows, kept_rows, archived_rows, '
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
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey')
$$;

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_replacing_key', 'understudy_name_erased_file', 'understudy_swap_erased_file',
            'understudy_put_back_file', 'understudy_begin_erasure', 'understudy_erase_month',
            'understudy_erase_beside_log', 'understudy_end_erasure', 'understudy_rights', 'understudy_names_entity',
            'understudy_count_beside_log', 'understudy_count_texts', 'understudy_require_model',
            'understudy_entity_of_field', 'understudy_refuse_late_letter')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
-- Triggers call these as the owner. Called by themselves they end or begin a guard without a row in PolicyAudit.
REVOKE EXECUTE ON FUNCTION understudy_end_guard(TEXT, TEXT) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION understudy_finish_guard(BIGINT, TEXT) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION understudy_tell_guard(BIGINT, TEXT, TEXT) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION understudy_open_guard(ServingPolicy, BIGINT) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION understudy_watch_arms(ServingPolicy) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION understudy_put_back_file(BIGINT, BIGINT, TEXT) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION understudy_count_texts(BIGINT, TEXT) FROM PUBLIC;
SELECT understudy_grant_roles();
