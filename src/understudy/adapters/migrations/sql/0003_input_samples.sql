-- The columns change the catalogue only. The two indexes read every row of the log once, and inserts wait for them: proxies
-- keep their rows on disk meanwhile.

ALTER TABLE ServingPolicy ADD COLUMN input_sample_percent SMALLINT NOT NULL DEFAULT 0
    CONSTRAINT servingpolicy_input_sample_percent_check CHECK (input_sample_percent BETWEEN 0 AND 100);

-- Beside servingpolicy_guard, and after it by its name.
CREATE FUNCTION understudy_guard_inputs() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.input_sample_percent IS NULL OR NEW.input_sample_percent NOT BETWEEN 0 AND 100 THEN
        PERFORM understudy_refuse(
            format('input_sample_percent of %s is a percentage from 0 to 100, not %s', NEW.model_name,
                   coalesce(NEW.input_sample_percent::TEXT, 'NULL')),
            format('To store no inputs: UPDATE ServingPolicy SET input_sample_percent = 0 WHERE model_name = %L',
                   NEW.model_name));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER servingpolicy_guard_inputs BEFORE INSERT OR UPDATE OF input_sample_percent ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_inputs();

-- NULL: not sampled, or erased.
ALTER TABLE PredictionLog ADD COLUMN inputs JSONB;
-- One version's samples of one hour in the order of the entities' hashes: the first thousand rows of an hour are those of
-- some entities, chosen by chance, and no further row is read. The oldest hours come first, for what is erased by age.
CREATE INDEX predictionlog_inputs_of_hour ON PredictionLog
    (date_trunc('hour', predicted_at AT TIME ZONE 'UTC'), model_version_id, hashtextextended(entity_id, 30))
    WHERE inputs IS NOT NULL;
CREATE INDEX predictionlog_inputs_of_entity ON PredictionLog (entity_id) WHERE inputs IS NOT NULL;

-- Erases the stored inputs of one entity, of every model, and says of how many rows; the rows themselves stay. Costs one
-- look into an index for each month, and one update for each row with inputs. Rows that a proxy has not shipped yet are
-- not there to be found: call it again when they are.
CREATE FUNCTION understudy_redact_inputs(entity TEXT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    erased BIGINT;
BEGIN
    IF coalesce(entity, '') = '' THEN
        PERFORM understudy_refuse('the inputs of no entity: the entity id is empty',
                                  'For example: SELECT understudy_redact_inputs(''customer-42'')');
    END IF;
    UPDATE PredictionLog SET inputs = NULL WHERE entity_id = entity AND inputs IS NOT NULL;
    GET DIAGNOSTICS erased = ROW_COUNT;
    RETURN erased;
END $$;

DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_redact_inputs(TEXT) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION understudy_guard_inputs() SET search_path = %I, pg_temp', current_schema());
END $$;
