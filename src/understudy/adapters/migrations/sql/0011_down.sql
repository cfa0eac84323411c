DROP FUNCTION understudy_newest_move(TEXT);
CREATE OR REPLACE FUNCTION understudy_rollback(model TEXT, why TEXT DEFAULT NULL) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    policy  ServingPolicy;
    current Rollout;
    did     TEXT := 'nothing: no challenger has weight, and no promotion can be taken back';
BEGIN
    SELECT * INTO policy FROM ServingPolicy WHERE model_name = model FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM understudy_refuse(format('%s has no serving policy, so there is nothing to roll back', model),
                                  'The models there are: SELECT model FROM understudy_status');
    END IF;
    IF coalesce(why, '') <> '' THEN
        PERFORM set_config('understudy.reason', why, TRUE);
    END IF;
    SELECT * INTO current FROM Rollout
    WHERE model_name = model AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
    IF policy.challenger_weight > 0 OR policy.arms <> '[]' THEN
        did := CASE WHEN policy.arms = '[]' THEN 'weight 0' ELSE 'weight 0 and the end of all further arms' END;
        UPDATE ServingPolicy SET challenger_weight = 0, arms = '[]' WHERE model_name = model RETURNING * INTO policy;
    ELSIF policy.champion_version = current.challenger_version AND policy.rollout_id = current.id THEN
        -- A shadow must not keep its version from answering: the operator who gave it that role did not mean the rollback.
        UPDATE ServingPolicy SET champion_version = current.champion_version, challenger_version = current.challenger_version,
            shadow_version = nullif(shadow_version, current.champion_version)
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    END IF;
    RETURN jsonb_build_object('model', model, 'did', did, 'generation', policy.generation,
        'champion', (SELECT version FROM ModelVersion WHERE id = policy.champion_version),
        'challenger', (SELECT version FROM ModelVersion WHERE id = policy.challenger_version),
        'rollout_id', current.id,
        'without_calls', (SELECT coalesce(jsonb_agg(id), '[]') FROM ModelVersion WHERE model_name = model
                          AND id NOT IN (policy.champion_version, coalesce(policy.shadow_version, 0))));
END $$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_rollback(TEXT, TEXT) SET search_path = %I, pg_temp', current_schema());
END $$;
