-- The functions of the archive run with their owner's rights, over tables whose names are in rows that understudy_retention may
-- write. A name without its schema could be a view in the caller's pg_temp, whose functions would then run as the owner.

-- The table of the log with this name, with its schema: one that we own, and no view. NULL when there is none.
CREATE FUNCTION understudy_log_table(place TEXT) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT format('%I.%I', current_schema(), relname) FROM pg_catalog.pg_class
    WHERE relname = place AND relnamespace = current_schema()::REGNAMESPACE AND relkind = 'r'
      AND relowner = (SELECT relowner FROM pg_catalog.pg_class
                      WHERE relname = 'predictionlog' AND relnamespace = current_schema()::REGNAMESPACE)
$$;

CREATE OR REPLACE FUNCTION understudy_archive_fingerprint(archive BIGINT) RETURNS TEXT
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    place TEXT;
    held TEXT;
    figures TEXT;
BEGIN
    SELECT coalesce(detached_as, partition_name) INTO place FROM LogArchive WHERE id = archive AND state <> 'archived';
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('there is no archive %s under way', coalesce(archive::TEXT, 'NULL')),
                                  'SELECT id, partition_name, state FROM LogArchive');
    END IF;
    held := understudy_log_table(place);
    IF held IS NULL THEN
        PERFORM understudy_refuse(format('archive %s is of %s, which is no table of the log', archive, place),
                                  'SELECT id, partition_name, detached_as, state FROM LogArchive');
    END IF;
    EXECUTE format(
        'SELECT concat_ws('':'', count(*), coalesce(sum(id), 0), coalesce(sum(model_version_id), 0), '
        'coalesce(sum(latency_ms), 0), count(score), count(prediction_id), coalesce(sum(octet_length(entity_id)), 0), '
        'coalesce((extract(epoch FROM min(predicted_at)) * 1000000)::BIGINT, 0), '
        'coalesce((extract(epoch FROM max(predicted_at)) * 1000000)::BIGINT, 0)) FROM %s', held) INTO figures;
    RETURN figures;
END $$;

CREATE OR REPLACE FUNCTION understudy_detach_archived(archive BIGINT) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    month    LogArchive;
    held     TEXT;
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
    held := understudy_log_table(month.partition_name);
    IF held IS NULL THEN
        PERFORM understudy_refuse(format('archive %s is of %s, which is no table of the log', archive, month.partition_name),
                                  'SELECT id, partition_name, detached_as, state FROM LogArchive');
    END IF;
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', held);
    IF understudy_archive_fingerprint(archive) <> month.fingerprint THEN
        RETURN FALSE;
    END IF;
    EXECUTE format('ALTER TABLE PredictionLog DETACH PARTITION %s', held);
    -- Away with the name: a late row must find a new partition, and not this table.
    EXECUTE format('ALTER TABLE %s RENAME TO %I', held, month.partition_name || '_archived_' || archive);
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'understudy_retention') THEN
        EXECUTE format('GRANT SELECT ON %I.%I TO understudy_retention', current_schema(),
                       month.partition_name || '_archived_' || archive);
    END IF;
    UPDATE LogArchive
    SET state = 'detached', detached_as = month.partition_name || '_archived_' || archive, changed_at = now()
    WHERE id = archive;
    RETURN TRUE;
END $$;

CREATE OR REPLACE FUNCTION understudy_drop_due() RETURNS INT LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1500ms' AS $$
DECLARE
    month   LogArchive;
    dropped INT := 0;
BEGIN
    FOR month IN SELECT * FROM LogArchive WHERE drop_after <= now() AND state = 'archived' ORDER BY id FOR UPDATE LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I.%I', current_schema(), month.detached_as);
        UPDATE LogArchive SET drop_after = NULL, changed_at = now() WHERE id = month.id;
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

CREATE OR REPLACE FUNCTION understudy_ensure_partitions(months_ahead INT DEFAULT 3, around TIMESTAMPTZ DEFAULT now())
RETURNS INT LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '4s' AS $$
DECLARE
    made       INT := 0;
    this_month TIMESTAMP := date_trunc('month', around AT TIME ZONE 'UTC');
    first_day  TIMESTAMP;
    partition  TEXT;
    place      TEXT;
BEGIN
    IF months_ahead NOT BETWEEN 0 AND 24 OR around NOT BETWEEN now() - INTERVAL '2 years' AND now() + INTERVAL '1 year' THEN
        PERFORM understudy_refuse('partitions are made for 0 to 24 months ahead, two years back to one year ahead of now',
                                  'For example: SELECT understudy_ensure_partitions(3)');
    END IF;
    FOR month IN -1..months_ahead LOOP
        first_day := this_month + make_interval(months => month);
        partition := 'predictionlog_' || to_char(first_day, 'YYYY_MM');
        place := format('%I.%I', current_schema(), partition);
        CONTINUE WHEN to_regclass(place) IS NOT NULL;
        -- What ATTACH takes anyway; inserts and readers go on.
        LOCK TABLE ONLY PredictionLog IN SHARE UPDATE EXCLUSIVE MODE;
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_class WHERE relname = partition AND relnamespace = current_schema()::REGNAMESPACE);
        EXECUTE format('CREATE TABLE %s (LIKE PredictionLog INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', place);
        EXECUTE format('ALTER TABLE PredictionLog ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', place,
                       first_day || '+00', (first_day + INTERVAL '1 month') || '+00');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_log_table', 'understudy_archive_fingerprint', 'understudy_detach_archived', 'understudy_drop_due',
            'understudy_ensure_partitions')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
