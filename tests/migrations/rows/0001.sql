INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, metrics, artifact_digest)
SELECT model, version, 's3://models/' || model || '/' || version, 'sklearn', '{"features": []}', '{"auc": 0.8}',
       'sha256:' || version
FROM unnest(ARRAY['churn', 'churn', 'churn', 'armed', 'armed'], ARRAY['6', '7', '8', '1', '2']) AS one (model, version);
INSERT INTO ModelEndpoint (model_version_id, target) SELECT id, 'models.example:' || 8500 + id FROM ModelVersion;
INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, shadow_version, shadow_percent, salt)
SELECT 'churn', max(id) FILTER (WHERE version = '6'), max(id) FILTER (WHERE version = '7'),
       max(id) FILTER (WHERE version = '8'), 50, 'winter' FROM ModelVersion WHERE model_name = 'churn';
UPDATE ServingPolicy SET challenger_weight = 10, category_roles = '{"vip": "champion"}';
INSERT INTO ServingPolicy (model_name, champion_version)
SELECT 'armed', id FROM ModelVersion WHERE model_name = 'armed' AND version = '1';
INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,
    prediction_id, assigned_version_id, score, latency_us, role, reason, status, error_code, bucket,
    policy_generation, rollout_id, cache_hit, defaulted)
SELECT id, 'customer-' || number, repeat('ab', 32), jsonb_build_object('score', number / 100.0), number % 40,
       now() - number * INTERVAL '4 hours', gen_random_uuid(), id, number / 100.0, number * 1000, 'champion',
       'bucket', CASE number % 7 WHEN 0 THEN 'error' ELSE 'ok' END, CASE number % 7 WHEN 0 THEN 'E504' END,
       number % 100, 1 + number % 2, NULL, number % 3 = 0, CASE number % 5 WHEN 0 THEN '["age"]'::jsonb END
FROM ModelVersion CROSS JOIN generate_series(1, 60) AS number WHERE version IN ('6', '1');
INSERT INTO PredictionMetric (model_version_id, metric_name, value, computed_at)
SELECT id, 'mean', 0.3, now() - INTERVAL '1 hour' FROM ModelVersion;
INSERT INTO SpoolOffset (spool_id, segment, byte_offset) VALUES ('proxy-1', 3, 4711);
INSERT INTO PredictionDeadLetter (spool_id, segment, byte_offset, "row", why) VALUES ('proxy-1', 3, 47, 'x', 'odd');
INSERT INTO ApiKey (id, sha256, scopes, note) VALUES ('k1', repeat('0a', 32), '{predict}', 'shop');
INSERT INTO ProxyInstance (instance, generations) VALUES ('proxy-1:1', '{"churn": 2}');
INSERT INTO Rollout (model_name, champion_version, challenger_version, plan, salt, reason)
SELECT 'churn', p.champion_version, p.challenger_version, '{"steps": [{"weight_percent": 10}]}', 's', 'retrained'
FROM ServingPolicy p WHERE model_name = 'churn';
DELETE FROM Rollout WHERE phase = 'SUCCEEDED'; -- the guard that the newest schema opened with the share
INSERT INTO RolloutEvent (rollout_id, step, phase, verdict, reason, evidence, inputs, thresholds, code_version)
SELECT id, 0, 'PROGRESSING', 'HOLD', 'too early', '[{"check": "errors"}]', '{"n": 4}', '{"p": 0.05}', '0.1.0'
FROM Rollout;
INSERT INTO Experiment (model_name, name, champion_version, challenger_version, metric, plan)
SELECT 'churn', 'spring', p.champion_version, p.challenger_version, 'bought', '{"looks": 2}'
FROM ServingPolicy p WHERE model_name = 'churn';
INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)
SELECT 'e' || number, 'churn', 'customer-' || number, 'bought', number % 2, now() FROM generate_series(1, 20) AS number;
INSERT INTO AlertOutbox (dedup_key, action, severity, model_name, payload)
VALUES ('understudy/churn', 'trigger', 'warning', 'churn', '{"summary": "drift"}');
