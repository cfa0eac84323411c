-- Metrics are deleted by age. The index reads the table once, and the monitor's writes wait for it.
CREATE INDEX predictionmetric_computed_at ON PredictionMetric (computed_at);
