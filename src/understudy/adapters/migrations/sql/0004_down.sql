-- First of all, while what follows a policy still knows of arms: their versions become staging.
UPDATE ServingPolicy SET arms = '[]' WHERE arms <> '[]';
DROP TRIGGER servingpolicy_arms_guard ON ServingPolicy;
DROP FUNCTION understudy_guard_arms();
DROP VIEW understudy_split, understudy_status, understudy_arms;
CREATE OR REPLACE FUNCTION understudy_record_policy() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    gone   BIGINT[] := '{}';
    roles  BIGINT[] := '{}';
    model  TEXT;
    number BIGINT;
BEGIN
    IF TG_OP = 'UPDATE' AND NEW IS NOT DISTINCT FROM OLD THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' THEN
        model := OLD.model_name;
        number := OLD.generation + 1;
    ELSE
        model := NEW.model_name;
        number := NEW.generation;
        roles := ARRAY[NEW.champion_version, NEW.challenger_version, NEW.shadow_version];
    END IF;
    IF TG_OP <> 'INSERT' THEN
        gone := ARRAY[OLD.champion_version, OLD.challenger_version, OLD.shadow_version];
    END IF;
    INSERT INTO PolicyAudit (model_name, generation, actor, via, reason, action, before, after)
    VALUES (model, number, understudy_actor(),
            coalesce(nullif(current_setting('understudy.via', TRUE), ''),
                     nullif(current_setting('application_name', TRUE), ''), 'sql'),
            nullif(current_setting('understudy.reason', TRUE), ''), lower(TG_OP),
            CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END);
    PERFORM understudy_touch(model, 'policy', number);

    UPDATE ModelVersion SET status = 'staging'
    WHERE id = ANY (gone) AND id <> ALL (array_remove(roles, NULL)) AND status NOT IN ('staging', 'retired');
    UPDATE ModelVersion
    SET status = CASE id WHEN roles[1] THEN 'champion' WHEN roles[2] THEN 'challenger' ELSE 'shadow' END,
        deployed_at = coalesce(deployed_at, now())
    WHERE id = ANY (roles) AND (deployed_at IS NULL OR status IS DISTINCT FROM
          CASE id WHEN roles[1] THEN 'champion' WHEN roles[2] THEN 'challenger' ELSE 'shadow' END);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION understudy_guard_version() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    role    TEXT;
    label   TEXT := format('version %s of %s', OLD.version, OLD.model_name);
    changed TEXT;
BEGIN
    SELECT CASE OLD.id WHEN champion_version THEN 'champion' WHEN challenger_version THEN 'challenger' ELSE 'shadow' END
    INTO role FROM ServingPolicy
    WHERE model_name = OLD.model_name AND OLD.id IN (champion_version, challenger_version, shadow_version);
    IF role IS NOT NULL AND (TG_OP = 'DELETE' OR NEW.status = 'retired') THEN
        PERFORM understudy_refuse(
            format('%s is the %s and cannot be %s', label, role, CASE TG_OP WHEN 'DELETE' THEN 'deleted' ELSE 'retired' END),
            format('Take its role away first: UPDATE ServingPolicy SET %s WHERE model_name = %L',
                   CASE role WHEN 'champion' THEN 'champion_version = …'
                             WHEN 'challenger' THEN 'challenger_version = NULL, challenger_weight = 0'
                             ELSE 'shadow_version = NULL' END, OLD.model_name));
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status THEN
        IF role IS NOT NULL AND NEW.status IS DISTINCT FROM role THEN
            PERFORM understudy_refuse(
                format('%s is the %s: its status follows ServingPolicy', label, role),
                format('Change the policy: UPDATE ServingPolicy SET … WHERE model_name = %L', OLD.model_name));
        ELSIF role IS NULL AND NEW.status IN ('champion', 'challenger', 'shadow') THEN
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
    IF policy.challenger_weight > 0 THEN
        UPDATE ServingPolicy SET challenger_weight = 0 WHERE model_name = model RETURNING * INTO policy;
        did := 'weight 0';
    ELSIF policy.champion_version = current.challenger_version AND policy.rollout_id = current.id THEN
        UPDATE ServingPolicy SET champion_version = current.champion_version, challenger_version = current.challenger_version
        WHERE model_name = model RETURNING * INTO policy;
        did := 'previous champion back';
    END IF;
    RETURN jsonb_build_object('model', model, 'did', did, 'generation', policy.generation,
        'champion', (SELECT version FROM ModelVersion WHERE id = policy.champion_version),
        'challenger', (SELECT version FROM ModelVersion WHERE id = policy.challenger_version),
        'rollout_id', current.id);
END $$;

DROP FUNCTION understudy_role_holders(ServingPolicy);
ALTER TABLE ServingPolicy DROP COLUMN arms;

CREATE VIEW understudy_status AS
SELECT policy.model_name AS model, champion.version AS champion, challenger.version AS challenger,
       policy.challenger_weight, shadow.version AS shadow, policy.generation, policy.updated_at AS changed_at,
       policy.updated_by AS changed_by,
       (SELECT count(*) FROM ProxyInstance WHERE seen_at > now() - INTERVAL '30 seconds') AS proxies,
       (SELECT count(*) FROM ProxyInstance WHERE seen_at > now() - INTERVAL '30 seconds'
        AND generations ->> policy.model_name = policy.generation::TEXT) AS proxies_on_generation
FROM ServingPolicy AS policy
JOIN ModelVersion AS champion ON champion.id = policy.champion_version
LEFT JOIN ModelVersion AS challenger ON challenger.id = policy.challenger_version
LEFT JOIN ModelVersion AS shadow ON shadow.id = policy.shadow_version;

-- One row for each role of each model: what share of the calls its version answers, or is shown.
CREATE VIEW understudy_split AS
SELECT policy.model_name AS model, roles.role, version.version, version.id AS version_id, roles.percent
FROM ServingPolicy AS policy
CROSS JOIN LATERAL (VALUES
    ('champion', policy.champion_version, 100 - policy.challenger_weight),
    ('challenger', policy.challenger_version, policy.challenger_weight),
    ('shadow', policy.shadow_version, policy.shadow_percent)
) AS roles (role, version_id, percent)
JOIN ModelVersion AS version ON version.id = roles.version_id;

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOREACH function IN ARRAY ARRAY['understudy_record_policy()', 'understudy_guard_version()',
        'understudy_rollback(TEXT, TEXT)']::REGPROCEDURE[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
