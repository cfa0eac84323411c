-- The definitions of 0021 again.
CREATE OR REPLACE FUNCTION understudy_name_erased_file(erasure BIGINT, entity TEXT, archive BIGINT, old_name TEXT, new_name TEXT) RETURNS VOID
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
CREATE OR REPLACE FUNCTION understudy_swap_erased_file(
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
        kept_rows = kept_rows + CASE WHEN is_month THEN 0 ELSE renamed END, outcomes = outcomes + retold
    WHERE id = erasure AND renamed + retold > 0;
    RETURN renamed;
END $$;
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
    UPDATE EntityErasure SET outcomes = outcomes + retold, dead_letters = dead_letters + gone
    WHERE id = erasure AND retold + gone > 0;
    RETURN retold + gone;
END $$;
CREATE OR REPLACE FUNCTION understudy_end_erasure(erasure BIGINT, entity TEXT) RETURNS EntityErasure
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
CREATE OR REPLACE FUNCTION understudy_count_beside_log(model TEXT, entity TEXT)
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
CREATE OR REPLACE FUNCTION understudy_require_model(model TEXT) RETURNS VOID LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF model IS NOT NULL AND NOT EXISTS (SELECT FROM ModelVersion WHERE model_name = model)
       AND NOT EXISTS (SELECT FROM LogArchiveFile WHERE model_name = model)
       AND NOT EXISTS (SELECT FROM OutcomeEvent WHERE model_name = model) THEN
        PERFORM understudy_refuse(format('there is no model %s, neither in the registry nor in the archive', left(model, 255)),
                                  'understudy model list names the models; all stands for every one');
    END IF;
END $$;
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
DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_name_erased_file', 'understudy_swap_erased_file', 'understudy_begin_erasure',
            'understudy_erase_month', 'understudy_erase_beside_log', 'understudy_end_erasure', 'understudy_rights',
            'understudy_count_beside_log', 'understudy_require_model', 'understudy_refuse_late_letter')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
GRANT EXECUTE ON FUNCTION understudy_end_guard(TEXT, TEXT) TO PUBLIC;
GRANT EXECUTE ON FUNCTION understudy_finish_guard(BIGINT, TEXT) TO PUBLIC;
GRANT EXECUTE ON FUNCTION understudy_tell_guard(BIGINT, TEXT, TEXT) TO PUBLIC;
GRANT EXECUTE ON FUNCTION understudy_open_guard(ServingPolicy, BIGINT) TO PUBLIC;
GRANT EXECUTE ON FUNCTION understudy_watch_arms(ServingPolicy) TO PUBLIC;
DROP FUNCTION understudy_entity_of_field(TEXT);
DROP FUNCTION understudy_count_texts(BIGINT, TEXT);
DROP FUNCTION understudy_names_entity(TEXT, TEXT);
DROP FUNCTION understudy_put_back_file(BIGINT, BIGINT, TEXT);
DROP FUNCTION understudy_replacing_key(TEXT, BIGINT);
DROP TABLE EntityErasureSwap;
ALTER TABLE EntityErasure DROP COLUMN searched;
ALTER TABLE EntityErasure DROP COLUMN resumed_by;
SELECT understudy_grant_roles();
