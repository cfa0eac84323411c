INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)
VALUES ('e1', 'armed', 'customer-1', 'bought', 1, now());
UPDATE LogArchive SET drop_after = now() + INTERVAL '1 day', dropped_by = 'archiver_of_shop';
UPDATE Installation SET archive_grace = '1 day';
