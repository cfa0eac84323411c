-- Roles to be granted to the logins of people and processes, with the least that each needs. They belong to the whole
-- server and their rights to this database, so that several installations on one server share the names and nothing else.

-- Every right of every role. A table that is not named here belongs to its owner alone.
CREATE FUNCTION understudy_rights() RETURNS TABLE (role TEXT, privileges TEXT, object TEXT) LANGUAGE sql IMMUTABLE AS $$
    VALUES
    -- The request path: policies in, rows of the log out. It deletes its own sign of life and nothing else.
    ('understudy_proxy', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyChange, SpoolOffset, alembic_version'),
    ('understudy_proxy', 'SELECT (id, sha256, scopes, tenant, calls_per_second, bytes_per_second, revoked_at)', 'ApiKey'),
    ('understudy_proxy', 'SELECT (id, slow_us)', 'Rollout'),
    ('understudy_proxy', 'INSERT', 'PredictionLog'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE (calls, errors, counts)', 'PredictionWindow'),
    ('understudy_proxy', 'INSERT, UPDATE (segment, byte_offset, updated_at)', 'SpoolOffset'),
    ('understudy_proxy', 'INSERT, SELECT (spool_id, segment, byte_offset)', 'PredictionDeadLetter'),
    ('understudy_proxy', 'INSERT, SELECT (event_id)', 'OutcomeEvent'),
    ('understudy_proxy', 'SELECT, INSERT, UPDATE, DELETE', 'ProxyInstance'),
    ('understudy_proxy', 'USAGE', 'SEQUENCE predictionlog_id_seq, predictiondeadletter_id_seq'),
    ('understudy_proxy', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- The control loop: it moves weights and champions, and never invents a version, an endpoint or a key.
    ('understudy_monitor', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, DriftHour, MonitorLease, ProxyInstance, Rollout, RolloutEvent, Experiment, '
        'OutcomeEvent, AlertOutbox, alembic_version, understudy_status, understudy_split, understudy_arms'),
    ('understudy_monitor', 'UPDATE (champion_version, challenger_version, challenger_weight, shadow_version, rollout_id, '
        'salt, arms)', 'ServingPolicy'),
    ('understudy_monitor', 'UPDATE (status)', 'ModelVersion'),
    ('understudy_monitor', 'UPDATE (state, phase, step, step_started_at, revision, slow_us, finished_at, announced_at)',
        'Rollout'),
    ('understudy_monitor', 'INSERT', 'RolloutEvent'),
    ('understudy_monitor', 'INSERT, UPDATE', 'PredictionMetric, DriftHour, AlertOutbox, MonitorLease'),
    ('understudy_monitor', 'USAGE', 'SEQUENCE rolloutevent_id_seq, alertoutbox_id_seq'),
    ('understudy_monitor', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- People with a SQL prompt or the command line: versions, policies, rollouts, tests. Neither audit nor log nor keys.
    ('understudy_engineer', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, Installation, alembic_version, understudy_status, '
        'understudy_split, understudy_arms'),
    ('understudy_engineer', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey'),
    ('understudy_engineer', 'INSERT, UPDATE, DELETE', 'ModelVersion, ModelEndpoint, ServingPolicy, Experiment'),
    ('understudy_engineer', 'INSERT, UPDATE', 'Rollout'),
    ('understudy_engineer', 'INSERT', 'RolloutEvent, OutcomeEvent'),
    ('understudy_engineer', 'USAGE', 'SEQUENCE modelversion_id_seq, modelendpoint_id_seq, rollout_id_seq, rolloutevent_id_seq, '
        'experiment_id_seq'),
    ('understudy_engineer', 'EXECUTE', 'FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ)'),
    -- What age or a person's wish ends. The columns of the second group only let it lock rows (FOR UPDATE asks for that);
    -- the guards of these tables judge every change of them.
    ('understudy_retention', 'SELECT', 'ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, PredictionMetric, '
        'PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, Rollout, RolloutEvent, OutcomeEvent, '
        'AlertOutbox, alembic_version'),
    ('understudy_retention', 'DELETE', 'PolicyAudit, PolicyChange, PredictionMetric, PredictionWindow, PredictionDeadLetter, '
        'SpoolOffset, DriftHour, Rollout, RolloutEvent, OutcomeEvent, AlertOutbox'),
    ('understudy_retention', 'UPDATE (inputs)', 'PredictionLog, RolloutEvent'),
    ('understudy_retention', 'UPDATE (changed_at)', 'PolicyChange'),
    ('understudy_retention', 'UPDATE (updated_at)', 'SpoolOffset'),
    ('understudy_retention', 'UPDATE (reason)', 'Rollout'),
    ('understudy_retention', 'UPDATE (last_error)', 'AlertOutbox'),
    ('understudy_retention', 'UPDATE (renewed_at)', 'MonitorLease'),
    -- Dashboards and notebooks.
    ('understudy_reader', 'SELECT', 'ModelVersion, ModelEndpoint, ServingPolicy, PolicyAudit, PolicyChange, PredictionLog, '
        'PredictionMetric, PredictionWindow, PredictionDeadLetter, SpoolOffset, DriftHour, MonitorLease, ProxyInstance, '
        'Rollout, RolloutEvent, Experiment, OutcomeEvent, AlertOutbox, Installation, alembic_version, understudy_status, '
        'understudy_split, understudy_arms'),
    ('understudy_reader', 'SELECT (id, scopes, note, tenant, calls_per_second, bytes_per_second, created_at, created_by, '
        'revoked_at)', 'ApiKey')
$$;

-- Takes back what a role may with our relations and functions in this database.
CREATE FUNCTION understudy_revoke_role(name TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    object TEXT;
BEGIN
    FOR object IN
        SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || oid::REGCLASS FROM pg_class
        WHERE relnamespace = current_schema()::REGNAMESPACE AND relkind IN ('r', 'p', 'v', 'S')
          AND pg_has_role(relowner, 'MEMBER')
        UNION ALL
        SELECT 'FUNCTION ' || oid::REGPROCEDURE FROM pg_proc
        WHERE pronamespace = current_schema()::REGNAMESPACE AND proname LIKE 'understudy\_%'
          AND pg_has_role(proowner, 'MEMBER')
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', object, name);
    END LOOP;
END $$;

-- Makes the roles that are missing, when the calling role may, and gives each exactly its rights in this database. Returns
-- the roles that are still missing. For the owner of the tables; doing it again changes nothing.
CREATE FUNCTION understudy_grant_roles() RETURNS TEXT[] LANGUAGE plpgsql AS $$
DECLARE
    missing TEXT[] := '{}';
    name    TEXT;
    rights  RECORD;
    schema  TEXT := current_schema();
BEGIN
    FOR name IN SELECT DISTINCT given.role FROM understudy_rights() AS given ORDER BY 1 LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION
                -- Another database of this server makes the same roles at this moment.
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN missing := missing || name;
            END;
        END IF;
        CONTINUE WHEN name = ANY (missing);
        PERFORM understudy_revoke_role(name);
        IF NOT has_schema_privilege(name, schema, 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', schema, name);
        END IF;
        FOR rights IN SELECT * FROM understudy_rights() AS given WHERE given.role = name LOOP
            EXECUTE format('GRANT %s ON %s TO %I', rights.privileges, rights.object, name);
        END LOOP;
    END LOOP;
    IF missing <> '{}' THEN
        RAISE WARNING 'the roles % are missing, and % may not make them', array_to_string(missing, ', '), current_user
            USING HINT = 'Have somebody who may run CREATE ROLE … NOLOGIN for each, then: SELECT understudy_grant_roles()';
    END IF;
    RETURN missing;
END $$;

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOREACH function IN ARRAY ARRAY['understudy_rights()', 'understudy_revoke_role(TEXT)', 'understudy_grant_roles()']::REGPROCEDURE[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ) FROM PUBLIC;
SELECT understudy_grant_roles();
