DROP TRIGGER servingpolicy_guard_loaded ON ServingPolicy;
DROP FUNCTION understudy_guard_loaded();

CREATE OR REPLACE FUNCTION understudy_add_agent_endpoint(version_id BIGINT, server_name TEXT) RETURNS VOID
LANGUAGE sql SECURITY DEFINER AS $$
    INSERT INTO ModelEndpoint (model_version_id, target, source, server)
    SELECT version_id, target, 'agent', name FROM ModelServer WHERE name = server_name
    ON CONFLICT (model_version_id, target) DO UPDATE SET server = excluded.server
        WHERE ModelEndpoint.source = 'agent' AND ModelEndpoint.server <> excluded.server;
    DELETE FROM ModelEndpoint AS endpoint USING ModelServer AS its
    WHERE endpoint.model_version_id = version_id AND endpoint.server = server_name AND its.name = server_name
      AND endpoint.target <> its.target;
$$;
CREATE OR REPLACE FUNCTION understudy_remove_agent_endpoint(version_id BIGINT, server_name TEXT) RETURNS VOID
LANGUAGE sql SECURITY DEFINER AS $$
    DELETE FROM ModelEndpoint WHERE model_version_id = version_id AND server = server_name AND source = 'agent'
$$;
DROP FUNCTION understudy_left_endpoints(TEXT);

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_add_agent_endpoint', 'understudy_remove_agent_endpoint')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
