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

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_replacing_key', 'understudy_name_erased_file', 'understudy_swap_erased_file', 'understudy_put_back_file')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
    EXECUTE 'REVOKE EXECUTE ON FUNCTION understudy_put_back_file(BIGINT, BIGINT, TEXT) FROM PUBLIC';
END $$;
