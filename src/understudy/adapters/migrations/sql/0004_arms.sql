-- Further arms: buckets of their own for up to four more versions, as ranges that stay where they are. Each is
-- {"version_id": 9, "first": 90, "last": 99}, both included.
ALTER TABLE ServingPolicy ADD COLUMN arms JSONB NOT NULL DEFAULT '[]';

-- Who has a role by a policy, and so the status of that name; a version with several ranges has a row for each. It looks
-- no name up, so it needs no search_path of its own, and can be read as a part of the queries that call it.
CREATE FUNCTION understudy_role_holders(policy ServingPolicy)
RETURNS TABLE (version_id BIGINT, role TEXT, is_arm BOOLEAN) LANGUAGE sql STABLE ROWS 4 AS $$
    SELECT holder.version_id, holder.role, FALSE
    FROM (VALUES (policy.champion_version, 'champion'), (policy.challenger_version, 'challenger'),
                 (policy.shadow_version, 'shadow')) AS holder (version_id, role)
    WHERE holder.version_id IS NOT NULL
    UNION ALL
    SELECT (arm ->> 'version_id')::BIGINT, 'challenger', TRUE FROM jsonb_array_elements(policy.arms) AS arm
$$;

-- Fires before servingpolicy_guard (triggers of one kind go by their names), which judges the rest.
CREATE FUNCTION understudy_guard_arms() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    model   TEXT := NEW.model_name;
    here    TEXT := format(' WHERE model_name = %L', NEW.model_name);
    example TEXT := 'For example: UPDATE ServingPolicy SET arms = ''[{"version_id": 9, "first": 90, "last": 99}]''' || here;
    look_up TEXT := format('Look the id up: SELECT id, version, status FROM ModelVersion WHERE model_name = %L',
                           NEW.model_name);
    had     JSONB := '[]';
    entry   JSONB;
    arm     RECORD;
    known   RECORD;
    place   TEXT;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        had := OLD.arms;
    END IF;
    IF NEW.arms = '[]' AND had = '[]' THEN
        RETURN NEW;
    END IF;
    IF NEW.arms IS NULL OR jsonb_typeof(NEW.arms) <> 'array' THEN
        PERFORM understudy_refuse(format('arms of %s is an array of ranges of buckets', model),
                                  'For none: UPDATE ServingPolicy SET arms = ''[]''' || here);
    END IF;
    FOR entry IN SELECT value FROM jsonb_array_elements(NEW.arms) LOOP
        IF jsonb_typeof(entry) <> 'object' THEN
            PERFORM understudy_refuse(
                format('arms of %s: a range is an object, not %s', model, left(entry::TEXT, 40)), example);
        ELSIF (SELECT array_agg(key ORDER BY key) FROM jsonb_object_keys(entry) AS key)
              IS DISTINCT FROM ARRAY['first', 'last', 'version_id'] THEN
            PERFORM understudy_refuse(
                format('arms of %s: a range has version_id, first and last, and nothing else, not %s', model,
                       left(entry::TEXT, 80)), example);
        ELSIF jsonb_typeof(entry -> 'version_id') <> 'number' OR entry ->> 'version_id' !~ '^[0-9]{1,18}$' THEN
            PERFORM understudy_refuse(
                format('arms of %s: version_id is the id of a version, not %s', model,
                       left(entry ->> 'version_id', 40)), look_up);
        ELSIF jsonb_typeof(entry -> 'first') <> 'number' OR entry ->> 'first' !~ '^[0-9]{1,2}$'
              OR jsonb_typeof(entry -> 'last') <> 'number' OR entry ->> 'last' !~ '^[0-9]{1,2}$' THEN
            PERFORM understudy_refuse(
                format('arms of %s: first and last are buckets from 0 to 99, not %s and %s', model,
                       left(entry ->> 'first', 20), left(entry ->> 'last', 20)), example);
        ELSIF (entry -> 'first') > (entry -> 'last') THEN
            PERFORM understudy_refuse(
                format('arms of %s: the first bucket, %s, comes after the last, %s', model, entry -> 'first',
                       entry -> 'last'), example);
        END IF;
    END LOOP;
    IF jsonb_array_length(NEW.arms) > 8 THEN
        PERFORM understudy_refuse(
            format('arms of %s: %s ranges; at most 8', model, jsonb_array_length(NEW.arms)),
            'Begin again with one range for each version: UPDATE ServingPolicy SET arms = ''[]''' || here);
    ELSIF (SELECT count(DISTINCT value -> 'version_id') FROM jsonb_array_elements(NEW.arms)) > 4 THEN
        PERFORM understudy_refuse(
            format('arms of %s: at most 4 versions beside champion and challenger', model),
            'With more, each has too few entities to tell anything: end one first, UPDATE ServingPolicy SET arms = …' || here);
    END IF;
    IF NEW.arms <> '[]' AND NEW.rollout_id IS NOT NULL THEN
        IF had <> '[]' THEN
            PERFORM understudy_refuse(
                format('%s has further arms, so no rollout can begin', model),
                'End their test first: UPDATE ServingPolicy SET arms = ''[]''' || here);
        END IF;
        PERFORM understudy_refuse(
            format('rollout %s of %s is under way, so there are no further arms', NEW.rollout_id, model),
            format('Let it end first, or take it back: SELECT understudy_rollback(%L)', model));
    END IF;

    -- As servingpolicy_guard does, which would lock only its own three: all in one order, and only whose role changes.
    PERFORM 1 FROM ModelVersion
    WHERE id IN (
        SELECT changed.version_id FROM (
            (SELECT version_id, role FROM understudy_role_holders(NEW)
             EXCEPT SELECT version_id, role FROM understudy_role_holders(OLD))
            UNION
            (SELECT version_id, role FROM understudy_role_holders(OLD)
             EXCEPT SELECT version_id, role FROM understudy_role_holders(NEW))) AS changed)
    ORDER BY id FOR NO KEY UPDATE;
    FOR arm IN SELECT DISTINCT version_id AS id FROM understudy_role_holders(NEW) AS holder WHERE holder.is_arm LOOP
        SELECT * INTO known FROM ModelVersion WHERE ModelVersion.id = arm.id;
        IF NOT FOUND THEN
            PERFORM understudy_refuse(
                format('arms of %s: there is no model version with the id %s', model, arm.id), look_up);
        ELSIF known.model_name <> model THEN
            PERFORM understudy_refuse(
                format('version %s is of model %s, not %s', known.version, known.model_name, model), look_up);
        ELSIF known.status = 'retired' THEN
            PERFORM understudy_refuse(
                format('version %s of %s is retired and cannot be an arm', known.version, model),
                format('Bring it back first: UPDATE ModelVersion SET status = ''staging'' WHERE model_name = %L '
                       'AND version = %L', model, known.version));
        END IF;
        place := CASE arm.id WHEN NEW.champion_version THEN 'champion' WHEN NEW.challenger_version THEN 'challenger'
                             WHEN NEW.shadow_version THEN 'shadow' END;
        IF place IS NOT NULL THEN
            PERFORM understudy_refuse(
                format('version %s of %s cannot be an arm and %s at once', known.version, model, place),
                format('End its arm in the same statement: UPDATE ServingPolicy SET %s_version = %s, arms = %L', place,
                       arm.id, (SELECT coalesce(jsonb_agg(value), '[]') FROM jsonb_array_elements(NEW.arms)
                                WHERE value -> 'version_id' <> to_jsonb(arm.id))) || here);
        END IF;
    END LOOP;

    FOR arm IN
        SELECT one.value AS one, other.value AS other
        FROM jsonb_array_elements(NEW.arms) WITH ORDINALITY AS one, jsonb_array_elements(NEW.arms) WITH ORDINALITY AS other
        WHERE one.ordinality < other.ordinality
          AND one.value -> 'first' <= other.value -> 'last' AND other.value -> 'first' <= one.value -> 'last'
    LOOP
        PERFORM understudy_refuse(
            format('arms of %s: the buckets %s to %s and %s to %s overlap', model, arm.one -> 'first', arm.one -> 'last',
                   arm.other -> 'first', arm.other -> 'last'),
            'Give each bucket to one arm: UPDATE ServingPolicy SET arms = …' || here);
    END LOOP;
    SELECT version, (value ->> 'first')::INT AS first, value ->> 'last' AS last INTO arm
    FROM jsonb_array_elements(NEW.arms) JOIN ModelVersion ON id = (value ->> 'version_id')::BIGINT
    ORDER BY 2 LIMIT 1;
    IF arm.first < NEW.challenger_weight AND NEW.challenger_weight <= 100 THEN
        PERFORM understudy_refuse(
            format('at weight %s the challenger of %s has the buckets 0 to %s, and version %s has %s to %s',
                   NEW.challenger_weight, model, NEW.challenger_weight - 1, arm.version, arm.first, arm.last),
            format('The largest weight beside it: UPDATE ServingPolicy SET challenger_weight = %s', arm.first) || here);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER servingpolicy_arms_guard BEFORE INSERT OR UPDATE ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_arms();

CREATE OR REPLACE FUNCTION understudy_record_policy() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    model  TEXT := coalesce(NEW.model_name, OLD.model_name);
    number BIGINT := coalesce(NEW.generation, OLD.generation + 1);
    gone   BIGINT[] := ARRAY(SELECT version_id FROM understudy_role_holders(OLD));
    roles  BIGINT[] := ARRAY(SELECT version_id FROM understudy_role_holders(NEW));
BEGIN
    IF TG_OP = 'UPDATE' AND NEW IS NOT DISTINCT FROM OLD THEN
        RETURN NULL;
    END IF;
    INSERT INTO PolicyAudit (model_name, generation, actor, via, reason, action, before, after)
    VALUES (model, number, understudy_actor(),
            coalesce(nullif(current_setting('understudy.via', TRUE), ''),
                     nullif(current_setting('application_name', TRUE), ''), 'sql'),
            nullif(current_setting('understudy.reason', TRUE), ''), lower(TG_OP),
            CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END);
    PERFORM understudy_touch(model, 'policy', number);

    UPDATE ModelVersion SET status = 'staging'
    WHERE id = ANY (gone) AND id <> ALL (roles) AND status NOT IN ('staging', 'retired');
    UPDATE ModelVersion
    SET status = CASE id WHEN NEW.champion_version THEN 'champion' WHEN NEW.shadow_version THEN 'shadow'
                         ELSE 'challenger' END,
        deployed_at = coalesce(deployed_at, now())
    WHERE id = ANY (roles) AND (deployed_at IS NULL OR status <>
          CASE id WHEN NEW.champion_version THEN 'champion' WHEN NEW.shadow_version THEN 'shadow' ELSE 'challenger' END);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION understudy_guard_version() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    held    RECORD;
    label   TEXT := format('version %s of %s', OLD.version, OLD.model_name);
    changed TEXT;
BEGIN
    SELECT holder.role, CASE WHEN holder.is_arm THEN 'an arm' ELSE 'the ' || holder.role END AS words, policy.arms
    INTO held FROM ServingPolicy AS policy CROSS JOIN LATERAL understudy_role_holders(policy) AS holder
    WHERE policy.model_name = OLD.model_name AND holder.version_id = OLD.id;
    IF held.role IS NOT NULL AND (TG_OP = 'DELETE' OR NEW.status = 'retired') THEN
        PERFORM understudy_refuse(
            format('%s is %s and cannot be %s', label, held.words,
                   CASE TG_OP WHEN 'DELETE' THEN 'deleted' ELSE 'retired' END),
            format('Take its role away first: UPDATE ServingPolicy SET %s WHERE model_name = %L',
                   CASE held.words WHEN 'the champion' THEN 'champion_version = …'
                                   WHEN 'the challenger' THEN 'challenger_version = NULL, challenger_weight = 0'
                                   WHEN 'the shadow' THEN 'shadow_version = NULL'
                                   ELSE format('arms = %L', (
                                       SELECT coalesce(jsonb_agg(value), '[]') FROM jsonb_array_elements(held.arms)
                                       WHERE value -> 'version_id' <> to_jsonb(OLD.id))) END, OLD.model_name));
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status THEN
        IF held.role IS NOT NULL AND NEW.status IS DISTINCT FROM held.role THEN
            PERFORM understudy_refuse(
                format('%s is %s: its status follows ServingPolicy', label, held.words),
                format('Change the policy: UPDATE ServingPolicy SET … WHERE model_name = %L', OLD.model_name));
        ELSIF held.role IS NULL AND NEW.status IN ('champion', 'challenger', 'shadow') THEN
            PERFORM understudy_refuse(
                format('%s does not become %s by its status: that follows ServingPolicy', label, NEW.status),
                format('Change the policy: UPDATE ServingPolicy SET %s_version = %s WHERE model_name = %L', NEW.status,
                       OLD.id, OLD.model_name));
        END IF;
    END IF;
    IF OLD.deployed_at IS NOT NULL THEN
        -- Answers are logged and cached under this version: it must go on meaning what it meant.
        changed := CASE WHEN NEW.model_name IS DISTINCT FROM OLD.model_name THEN 'model_name'
                        WHEN NEW.version IS DISTINCT FROM OLD.version THEN 'version'
                        WHEN NEW.artifact_path IS DISTINCT FROM OLD.artifact_path THEN 'artifact_path'
                        WHEN NEW.input_schema IS DISTINCT FROM OLD.input_schema THEN 'input_schema'
                        WHEN NEW.output_schema IS DISTINCT FROM OLD.output_schema THEN 'output_schema'
                        WHEN NEW.backend IS DISTINCT FROM OLD.backend THEN 'backend'
                        WHEN NEW.id IS DISTINCT FROM OLD.id THEN 'id'
                        WHEN OLD.artifact_digest IS NOT NULL
                             AND NEW.artifact_digest IS DISTINCT FROM OLD.artifact_digest THEN 'artifact_digest' END;
        IF changed IS NOT NULL THEN
            PERFORM understudy_refuse(
                format('%s was deployed: its %s does not change any more', label, changed),
                format('Register the next version: INSERT INTO ModelVersion (model_name, version, artifact_path, '
                       'framework, input_schema) VALUES (%L, …)', OLD.model_name));
        END IF;
        NEW.deployed_at := coalesce(NEW.deployed_at, OLD.deployed_at);
    END IF;
    RETURN NEW;
END $$;

-- One row for each range of buckets of a further arm.
CREATE VIEW understudy_arms AS
SELECT policy.model_name AS model, version.version, version.id AS version_id, (arm ->> 'first')::INT AS first,
       (arm ->> 'last')::INT AS last
FROM ServingPolicy AS policy
CROSS JOIN LATERAL jsonb_array_elements(policy.arms) AS arm
JOIN ModelVersion AS version ON version.id = (arm ->> 'version_id')::BIGINT;

CREATE OR REPLACE VIEW understudy_status AS
SELECT policy.model_name AS model, champion.version AS champion, challenger.version AS challenger,
       policy.challenger_weight, shadow.version AS shadow, policy.generation, policy.updated_at AS changed_at,
       policy.updated_by AS changed_by,
       (SELECT count(*) FROM ProxyInstance WHERE seen_at > now() - INTERVAL '30 seconds') AS proxies,
       (SELECT count(*) FROM ProxyInstance WHERE seen_at > now() - INTERVAL '30 seconds'
        AND generations ->> policy.model_name = policy.generation::TEXT) AS proxies_on_generation,
       (SELECT coalesce(jsonb_object_agg(version, percent), '{}')
        FROM (SELECT version, sum(last - first + 1) AS percent FROM understudy_arms AS arm
              WHERE arm.model = policy.model_name GROUP BY version) AS share) AS arms
FROM ServingPolicy AS policy
JOIN ModelVersion AS champion ON champion.id = policy.champion_version
LEFT JOIN ModelVersion AS challenger ON challenger.id = policy.challenger_version
LEFT JOIN ModelVersion AS shadow ON shadow.id = policy.shadow_version;

CREATE OR REPLACE VIEW understudy_split AS
SELECT policy.model_name AS model, roles.role, version.version, version.id AS version_id, roles.percent
FROM ServingPolicy AS policy
CROSS JOIN LATERAL (
    SELECT coalesce(sum(last - first + 1), 0)::INT AS percent FROM understudy_arms WHERE model = policy.model_name
) AS further
CROSS JOIN LATERAL (
    VALUES ('champion', policy.champion_version, 100 - policy.challenger_weight - further.percent),
           ('challenger', policy.challenger_version, policy.challenger_weight),
           ('shadow', policy.shadow_version, policy.shadow_percent)
    UNION ALL
    SELECT 'challenger', version_id, sum(last - first + 1)::INT
    FROM understudy_arms WHERE model = policy.model_name GROUP BY version_id
) AS roles (role, version_id, percent)
JOIN ModelVersion AS version ON version.id = roles.version_id;

-- Sends all traffic of a model back: to the champion while a challenger has weight or a further arm has buckets; after a
-- promotion, while the old champion is kept warm, to that one. Says what it did, and which versions get no more calls;
-- calling it again does nothing.
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
        UPDATE ServingPolicy SET champion_version = current.champion_version, challenger_version = current.challenger_version
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
DECLARE
    function REGPROCEDURE;
BEGIN
    FOREACH function IN ARRAY ARRAY['understudy_guard_arms()', 'understudy_record_policy()',
        'understudy_guard_version()', 'understudy_rollback(TEXT, TEXT)']::REGPROCEDURE[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
