-- Makes the monthly partitions of PredictionLog, from the month before a moment to some months after it, in UTC.
-- CREATE and then ATTACH: CREATE … PARTITION OF takes a lock on the whole log, and behind one open transaction every
-- insert would wait for it; ATTACH lets inserts go on. Two callers at once: the second waits, then finds them made.
CREATE FUNCTION understudy_ensure_partitions(months_ahead INT DEFAULT 3, around TIMESTAMPTZ DEFAULT now())
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
