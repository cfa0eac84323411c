-- The time that a caller gave its call, in microseconds, where that is less than the champion has by itself. Windows are built
-- from it: what a caller's own deadline costs is no error of a version. Changes the catalogue only; rows that exist have none.
ALTER TABLE PredictionLog ADD COLUMN deadline_us BIGINT;
