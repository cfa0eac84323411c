ALTER TABLE PredictionLog DROP COLUMN deadline_us;
