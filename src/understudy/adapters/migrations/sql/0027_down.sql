ALTER TABLE ServingPolicy DROP COLUMN category_holdout_percent;
