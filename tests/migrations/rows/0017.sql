INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)
VALUES ('e1', 'armed', 'customer-1', 'bought', 1, now());
