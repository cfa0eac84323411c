-- What a call has in common with others, as far as versions are compared by it: its category, and features that a schema marks.
-- Windows are built from it, and examples of a slice that fails are found by it. Changes the catalogue only; rows that exist have none.
ALTER TABLE PredictionLog ADD COLUMN slices JSONB;
