ALTER TABLE PredictionLog DROP COLUMN slices;
