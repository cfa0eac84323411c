DROP FUNCTION understudy_rollback(TEXT, TEXT);
DROP TRIGGER rollout_touch ON Rollout;
DROP FUNCTION understudy_touch_rollout();
DROP INDEX rollout_to_be_announced;
ALTER TABLE Rollout DROP COLUMN state, DROP COLUMN revision, DROP COLUMN slow_us, DROP COLUMN salt_before,
    DROP COLUMN announced_at;
ALTER TABLE ProxyInstance DROP COLUMN in_flight;
DROP TABLE MonitorLease, DriftHour, PredictionWindow;
