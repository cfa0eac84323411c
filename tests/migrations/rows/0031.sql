INSERT INTO Subscription (name, receiver, format, model_name, kinds, severity)
VALUES ('ops', 'ops-chat', 'slack', 'armed', '{rollout,drift.found}', 'warning');
INSERT INTO Notification (subscription_id, event_id, kind, severity, model_name, payload)
SELECT id, '00000000-0000-4000-8000-000000000001', 'rollout.rolled_back', 'error', 'armed', '{"summary": "taken back"}'
FROM Subscription;
