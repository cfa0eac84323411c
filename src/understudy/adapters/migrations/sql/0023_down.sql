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
DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_name_erased_file',
            'understudy_swap_erased_file')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
DROP FUNCTION understudy_put_back_file(BIGINT, BIGINT, TEXT);
DROP FUNCTION understudy_replacing_key(TEXT, BIGINT);
DROP TABLE EntityErasureSwap;
