ALTER TABLE ModelVersion DROP COLUMN base_model, DROP COLUMN family;
