-- A version that agents load gets calls only once a server has it, and an agent's endpoints follow placements.

-- Fires after servingpolicy_guard (triggers of one kind go by their names), so the versions are there, and those that get a
-- role are locked as the deletion of an endpoint locks them. A version that has a role has an endpoint already: it is judged
-- again only where its share rises or it becomes champion. That the champion before is champion again is not judged, and
-- neither is a share that falls: nothing may be in the way of a rollback.
CREATE FUNCTION understudy_guard_loaded() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    had     ServingPolicy;
    asked   RECORD;
    known   RECORD;
    so_far  TEXT;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        had := OLD;
    ELSIF EXISTS (SELECT FROM ServingPolicy WHERE model_name = NEW.model_name) THEN
        -- INSERT … ON CONFLICT: the row's update follows, and it is the one that counts.
        RETURN NEW;
    END IF;
    FOR asked IN
        SELECT holder.version_id, CASE WHEN holder.is_arm THEN 'an arm' ELSE holder.role END AS role
        FROM understudy_role_holders(NEW) AS holder
        LEFT JOIN understudy_shares(NEW) AS share ON share.version_id = holder.version_id
        WHERE (holder.is_arm OR holder.role <> 'champion' OR holder.version_id IS DISTINCT FROM had.previous_champion)
          AND (TG_OP = 'INSERT'
               OR holder.role = 'champion' AND NEW.champion_version <> had.champion_version
               OR holder.version_id NOT IN (SELECT version_id FROM understudy_role_holders(had))
               OR share.percent > coalesce((SELECT percent FROM understudy_shares(had) AS before
                                            WHERE before.version_id = holder.version_id), 0))
    LOOP
        IF EXISTS (SELECT FROM VersionLoading WHERE model_version_id = asked.version_id)
           AND NOT EXISTS (SELECT FROM ModelEndpoint WHERE model_version_id = asked.version_id) THEN
            SELECT version, model_name INTO known FROM ModelVersion WHERE id = asked.version_id;
            SELECT string_agg(format('%s: %s', server, concat_ws(' ', state, error_code)), ', ' ORDER BY server) INTO so_far
            FROM (SELECT * FROM LoadedVersion WHERE model_version_id = asked.version_id ORDER BY server LIMIT 3) AS there;
            PERFORM understudy_refuse(
                format('version %s of %s is loaded on no server (%s), and cannot be %s', known.version, known.model_name,
                       coalesce(so_far, 'nothing has begun'), asked.role),
                format('Have agents load it first: understudy version load %s %s --wait', known.model_name, known.version));
        END IF;
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER servingpolicy_guard_loaded
    BEFORE INSERT OR UPDATE OF champion_version, challenger_version, challenger_weight, shadow_version, arms ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_loaded();

-- As before, but where the version is to be at the server alone: a login of an agent sends calls nowhere else.
CREATE OR REPLACE FUNCTION understudy_add_agent_endpoint(version_id BIGINT, server_name TEXT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM Placement WHERE model_version_id = version_id AND server = server_name) THEN
        PERFORM understudy_refuse(
            format('version %s is not placed on server %s', coalesce(version_id::TEXT, 'NULL'),
                   coalesce(left(server_name, 255), 'NULL')),
            'The monitor that leads places versions: SELECT * FROM Placement');
    END IF;
    INSERT INTO ModelEndpoint (model_version_id, target, source, server)
    SELECT version_id, target, 'agent', name FROM ModelServer WHERE name = server_name
    ON CONFLICT (model_version_id, target) DO UPDATE SET server = excluded.server
        WHERE ModelEndpoint.source = 'agent' AND ModelEndpoint.server <> excluded.server;
    DELETE FROM ModelEndpoint AS endpoint USING ModelServer AS its
    WHERE endpoint.model_version_id = version_id AND endpoint.server = server_name AND its.name = server_name
      AND endpoint.target <> its.target;
END $$;

-- As before, and an endpoint at the server's address that is left of a name of before goes as well: of a server whose agent
-- is silent, and on which the version is not to be.
CREATE FUNCTION understudy_left_endpoints(server_name TEXT) RETURNS TABLE (endpoint_id BIGINT, version_id BIGINT)
LANGUAGE sql STABLE AS $$
    SELECT endpoint.id, endpoint.model_version_id
    FROM ModelServer AS its
    JOIN ModelEndpoint AS endpoint ON endpoint.target = its.target AND endpoint.source = 'agent' AND endpoint.server <> its.name
    JOIN ModelServer AS former ON former.name = endpoint.server AND former.seen_at < now() - INTERVAL '30 seconds'
    WHERE its.name = server_name AND NOT EXISTS (
        SELECT FROM Placement WHERE model_version_id = endpoint.model_version_id AND server = former.name)
$$;
CREATE OR REPLACE FUNCTION understudy_remove_agent_endpoint(version_id BIGINT, server_name TEXT) RETURNS VOID
LANGUAGE sql SECURITY DEFINER AS $$
    DELETE FROM ModelEndpoint WHERE model_version_id = version_id AND source = 'agent' AND (
        server = server_name
        OR id IN (SELECT endpoint_id FROM understudy_left_endpoints(server_name)))
$$;

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_guard_loaded', 'understudy_add_agent_endpoint', 'understudy_left_endpoints',
            'understudy_remove_agent_endpoint')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;

-- A trigger runs its function without the right of a login to execute it (see 0029).
REVOKE EXECUTE ON FUNCTION understudy_guard_loaded() FROM PUBLIC;

-- It runs with the rights of who asks; defaults of the database may have taken that from functions that are made later.
GRANT EXECUTE ON FUNCTION understudy_left_endpoints(TEXT) TO PUBLIC;
