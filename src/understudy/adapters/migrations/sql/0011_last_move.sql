-- A rollback undoes the newest move of a model's traffic and reaches no further back, so that doing it twice is harmless.

-- The newest move of a model's traffic: from champion `was` to `is_now`, the same one where only weight or arms moved, and
-- NULL where none is known. `way_back` is the champion to bring back, NULL where that move itself put the champion before
-- back: one that went to and fro is counted, 1 → 2 → 1 is back, 1 → 2 → 1 → 2 is not.
CREATE FUNCTION understudy_newest_move(model TEXT, OUT was BIGINT, OUT is_now BIGINT, OUT way_back BIGINT)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    move     RECORD;
    expected BIGINT;
    earlier  BIGINT;
    moves    INT := 0;
    has_end  BOOLEAN := FALSE;
BEGIN
    FOR move IN
        SELECT action, (before ->> 'champion_version')::BIGINT AS was, (after ->> 'champion_version')::BIGINT AS is_now,
               (before ->> 'previous_champion')::BIGINT AS earlier
        FROM (SELECT * FROM PolicyAudit WHERE model_name = model ORDER BY id DESC LIMIT 10000) AS newest
        WHERE action <> 'update' OR before -> 'champion_version' <> after -> 'champion_version'
              OR before -> 'challenger_weight' <> after -> 'challenger_weight'
              OR before -> 'arms' IS DISTINCT FROM after -> 'arms'
        ORDER BY id DESC
    LOOP
        IF moves = 0 THEN
            IF move.action <> 'update' THEN
                RETURN;
            END IF;
            was := move.was;
            is_now := move.is_now;
            IF was = is_now THEN
                RETURN;
            END IF;
        ELSIF move.action = 'update' AND move.was = move.is_now THEN
            CONTINUE;
        ELSE
            has_end := move.action <> 'update' OR move.was <> expected;
            EXIT WHEN has_end;
        END IF;
        expected := move.is_now;
        earlier := move.earlier;
        moves := moves + 1;
    END LOOP;
    -- The audit forgets: a champion that went to and fro before what is left of it may have come or gone with this move.
    IF moves % 2 = 1 AND (has_end OR earlier IS DISTINCT FROM expected) THEN
        way_back := was;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION understudy_rollback(model TEXT, why TEXT DEFAULT NULL) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    policy  ServingPolicy;
    current Rollout;
    newest  RECORD;
    way     ModelVersion;
    said    TEXT;
    back    TEXT; -- The audit says of itself that this was no choice of a version but the way back.
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
    said := current_setting('understudy.reason', TRUE);
    SELECT * INTO current FROM Rollout
    WHERE model_name = model AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING');
    SELECT * INTO newest FROM understudy_newest_move(model);
    SELECT * INTO way FROM ModelVersion WHERE id = newest.way_back;
    back := concat_ws(': ', 'rollback to the champion before', nullif(said, ''));
    IF policy.challenger_weight > 0 OR policy.arms <> '[]' THEN
        did := CASE WHEN policy.arms = '[]' THEN 'weight 0' ELSE 'weight 0 and the end of all further arms' END;
        IF way.status = 'retired' THEN
            way := NULL;
        ELSIF way.id IS NOT NULL THEN
            did := did || ', previous champion back';
            PERFORM set_config('understudy.reason', back, TRUE);
        END IF;
        UPDATE ServingPolicy SET challenger_weight = 0, arms = '[]', champion_version = coalesce(way.id, champion_version),
            challenger_version = nullif(challenger_version, way.id), shadow_version = nullif(shadow_version, way.id)
        WHERE model_name = model RETURNING * INTO policy;
    ELSIF policy.champion_version = current.challenger_version AND policy.rollout_id = current.id
          AND newest.was = current.champion_version AND newest.is_now = current.challenger_version THEN
        -- A shadow must not keep its version from answering: the operator who gave it that role did not mean the rollback.
        UPDATE ServingPolicy SET champion_version = current.champion_version, challenger_version = current.challenger_version,
            shadow_version = nullif(shadow_version, current.champion_version)
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    ELSIF policy.champion_version = current.champion_version THEN
        did := format('nothing: rollout %s has no share of the traffic, and the champion was there before it', current.id);
    ELSIF way.status = 'retired' THEN
        did := format('nothing: version %s, the champion before, is retired', way.version);
    ELSIF way.id IS NOT NULL THEN
        PERFORM set_config('understudy.reason', back, TRUE);
        UPDATE ServingPolicy SET champion_version = way.id, challenger_version = nullif(challenger_version, way.id),
            shadow_version = nullif(shadow_version, way.id)
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    END IF;
    PERFORM set_config('understudy.reason', coalesce(said, ''), TRUE);
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
    EXECUTE format('ALTER FUNCTION understudy_newest_move(TEXT) SET search_path = %I, pg_temp', current_schema());
END $$;

-- A role that may roll back may look: defaults of the database may have taken that from functions that are made later.
GRANT EXECUTE ON FUNCTION understudy_newest_move(TEXT) TO PUBLIC;
