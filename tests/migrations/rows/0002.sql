INSERT INTO PredictionWindow (model_version_id, window_start, role, policy_generation, shipper, calls, errors, counts)
SELECT id, date_trunc('hour', now()), 'champion', 2, 'proxy-1:1', 100, 3, '{"calls": 100}' FROM ModelVersion;
INSERT INTO DriftHour SELECT id, 'prediction', date_trunc('hour', now()), 100, '{"sum": 31}' FROM ModelVersion;
INSERT INTO MonitorLease (name, holder, epoch) VALUES ('monitor', 'monitor-1', 7);
UPDATE ProxyInstance SET in_flight = '{"7": 2}';
UPDATE Rollout SET slow_us = 42000, salt_before = 'winter', revision = 3, state = jsonb_build_object(
    'rollout_id', id, 'model_name', 'churn', 'champion', '6', 'challenger', '7', 'started_at', 1.7e9,
    'limit_from', 1.7e9, 'phase', 'PROGRESSING', 'step_starts', '[1.7e9]'::jsonb, 'waiting_for', NULL, 'policy',
    '{"champion": "6", "challenger": "7", "weight_percent": 10, "generation": 2, "rollout_id": null}'::jsonb);
