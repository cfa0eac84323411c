-- Months that the archiver took out of PredictionLog and did not drop yet: they refer to what goes below.
DO $$
DECLARE
    detached REGCLASS;
BEGIN
    FOR detached IN
        SELECT oid FROM pg_class WHERE relnamespace = current_schema()::REGNAMESPACE AND relkind = 'r'
          AND relname ~ '^predictionlog_[0-9]{4}_[0-9]{2}_archived_[0-9]+$'
    LOOP
        EXECUTE format('DROP TABLE %s', detached);
    END LOOP;
END $$;
DROP VIEW understudy_split, understudy_status;
DROP TABLE AlertOutbox, OutcomeEvent, Experiment, RolloutEvent, Rollout, ProxyInstance, ApiKey, PredictionDeadLetter,
    SpoolOffset, PredictionMetric, PredictionLog, PolicyChange, PolicyAudit, ServingPolicy, ModelEndpoint, ModelVersion;
DROP FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ);
DROP FUNCTION understudy_guard_offset();
DROP FUNCTION understudy_guard_change();
DROP FUNCTION understudy_guard_audit();
DROP FUNCTION understudy_touch_keys();
DROP FUNCTION understudy_touch_endpoint();
DROP FUNCTION understudy_touch_version();
DROP FUNCTION understudy_guard_version();
DROP FUNCTION understudy_refuse_truncate();
DROP FUNCTION understudy_record_policy();
DROP FUNCTION understudy_guard_policy();
DROP FUNCTION understudy_touch(TEXT, TEXT, BIGINT);
DROP FUNCTION understudy_actor();
DROP FUNCTION understudy_refuse(TEXT, TEXT);
