DROP FUNCTION understudy_redact_inputs(TEXT);
DROP TRIGGER servingpolicy_guard_inputs ON ServingPolicy;
DROP FUNCTION understudy_guard_inputs();
ALTER TABLE PredictionLog DROP COLUMN inputs;
ALTER TABLE ServingPolicy DROP COLUMN input_sample_percent;
