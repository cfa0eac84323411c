-- A rollback undoes the newest move of a model's traffic and reaches no further back, so that doing it twice is harmless.

-- The champion that the newest move of traffic replaced; NULL where that move was of weights or arms, or itself put the
-- champion before back. A champion that went to and fro is counted: 1 → 2 → 1 is back, 1 → 2 → 1 → 2 is not.
CREATE FUNCTION understudy_way_back(model TEXT) RETURNS BIGINT LANGUAGE plpgsql STABLE AS $$
DECLARE
    move     RECORD;
    replaced BIGINT;
    expected BIGINT;
    moves    INT := 0;
BEGIN
    FOR move IN
        SELECT action, (before ->> 'champion_version')::BIGINT AS was, (after ->> 'champion_version')::BIGINT AS is_now
        FROM (SELECT * FROM PolicyAudit WHERE model_name = model ORDER BY id DESC LIMIT 10000) AS newest
        WHERE action <> 'update' OR before -> 'champion_version' <> after -> 'champion_version'
              OR before -> 'challenger_weight' <> after -> 'challenger_weight'
              OR before -> 'arms' IS DISTINCT FROM after -> 'arms'
        ORDER BY id DESC
    LOOP
        IF moves = 0 THEN
            IF move.action <> 'update' OR move.was = move.is_now THEN
                RETURN NULL;
            END IF;
            replaced := move.was;
            expected := move.is_now;
            moves := 1;
        ELSIF move.action = 'update' AND move.was = move.is_now THEN
            CONTINUE;
        ELSE
            EXIT WHEN move.action <> 'update' OR move.was <> expected;
            expected := move.is_now;
            moves := moves + 1;
        END IF;
    END LOOP;
    RETURN CASE moves % 2 WHEN 1 THEN replaced END;
END $$;

CREATE OR REPLACE FUNCTION understudy_rollback(model TEXT, why TEXT DEFAULT NULL) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    policy  ServingPolicy;
    current Rollout;
    way     ModelVersion;
    did     TEXT := 'nothing: no challenger has weight, and there is no change of champion to take back';
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
        -- A shadow must not keep its version from answering: whoever gave it that role did not mean the rollback.
        UPDATE ServingPolicy SET champion_version = current.champion_version, challenger_version = current.challenger_version,
            shadow_version = nullif(shadow_version, current.champion_version)
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    ELSE
        SELECT * INTO way FROM ModelVersion WHERE id = understudy_way_back(model);
        IF way.status = 'retired' THEN
            did := format('nothing: version %s, the champion before, is retired', way.version);
        ELSIF way.id IS NOT NULL THEN
            -- The audit says of itself that this was no choice of a version but the way back.
            PERFORM set_config('understudy.reason', concat_ws(': ', 'rollback to the champion before',
                               nullif(current_setting('understudy.reason', TRUE), '')), TRUE);
            UPDATE ServingPolicy SET champion_version = way.id, challenger_version = nullif(challenger_version, way.id),
                shadow_version = nullif(shadow_version, way.id)
            WHERE model_name = model RETURNING * INTO policy;
            did := 'previous champion back';
        END IF;
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
    EXECUTE format('ALTER FUNCTION understudy_way_back(TEXT) SET search_path = %I, pg_temp', current_schema());
END $$;
