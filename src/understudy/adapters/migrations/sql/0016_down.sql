DROP TRIGGER modelversion_guard_new ON ModelVersion;
DROP FUNCTION understudy_guard_new_version();
DROP TRIGGER rollout_sign ON Rollout;
DROP FUNCTION understudy_sign_rollout();
DROP TRIGGER rolloutevent_sign ON RolloutEvent;
DROP FUNCTION understudy_sign_event();
DROP FUNCTION understudy_speaks_for_monitor();
DROP TRIGGER registryaudit_bound ON RegistryAudit;
DROP TRIGGER policyaudit_bound ON PolicyAudit;
DROP FUNCTION understudy_bound_words();
DROP TRIGGER rolloutevent_guard_erasure ON RolloutEvent;
DROP TRIGGER predictionlog_guard_erasure ON PredictionLog;
DROP FUNCTION understudy_guard_erasure();
CREATE OR REPLACE FUNCTION understudy_guard_change() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 2 THEN
        PERFORM understudy_refuse('PolicyChange is written by triggers only: it keeps generations from going back',
                                  'Change the policy itself: UPDATE ServingPolicy SET … WHERE model_name = ''…''');
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER spooloffset_guard BEFORE UPDATE ON SpoolOffset
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_offset();
CREATE OR REPLACE FUNCTION understudy_guard_offset() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.spool_id = OLD.spool_id AND (NEW.segment, NEW.byte_offset) >= (OLD.segment, OLD.byte_offset) THEN
            RETURN NEW;
        END IF;
    END IF;
    PERFORM understudy_refuse('SpoolOffset says which rows are in PredictionLog: it only moves forward',
                              'Leave it to the proxies. Rows that could not be written: SELECT * FROM PredictionDeadLetter');
    RETURN NULL;
END $$;
ALTER TABLE SpoolOffset DROP COLUMN owner;
DROP TRIGGER predictionwindow_readable ON PredictionWindow;
DROP TRIGGER proxyinstance_readable ON ProxyInstance;
DROP TRIGGER logarchivefile_key_below_root ON LogArchiveFile;
DROP FUNCTION understudy_refuse_row();
DROP FUNCTION understudy_is_owner();
CREATE OR REPLACE FUNCTION understudy_ensure_partitions(months_ahead INT DEFAULT 3, around TIMESTAMPTZ DEFAULT now())
RETURNS INT LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '4s' AS $$
DECLARE
    made       INT := 0;
    this_month TIMESTAMP := date_trunc('month', around AT TIME ZONE 'UTC');
    first_day  TIMESTAMP;
    partition  TEXT;
BEGIN
    IF months_ahead NOT BETWEEN 0 AND 24 OR around NOT BETWEEN now() - INTERVAL '2 years' AND now() + INTERVAL '1 year' THEN
        PERFORM understudy_refuse('partitions are made for 0 to 24 months ahead, two years back to one year ahead of now',
                                  'For example: SELECT understudy_ensure_partitions(3)');
    END IF;
    FOR month IN -1..months_ahead LOOP
        first_day := this_month + make_interval(months => month);
        partition := 'predictionlog_' || to_char(first_day, 'YYYY_MM');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL;
        PERFORM pg_advisory_xact_lock(hashtextextended('understudy.partitions', 0));
        -- Not to_regclass again: it would answer from a cache that waiting for an advisory lock does not refresh.
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_class WHERE relname = partition AND relnamespace = current_schema()::REGNAMESPACE);
        EXECUTE format('CREATE TABLE %I (LIKE PredictionLog INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
        EXECUTE format('ALTER TABLE PredictionLog ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition,
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
            'understudy_guard_offset', 'understudy_guard_change', 'understudy_ensure_partitions')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
