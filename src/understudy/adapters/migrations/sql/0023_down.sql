ALTER TABLE ServingPolicy DROP COLUMN on_drift;
