-- The roles stay: other databases of this server may use them.
DO $$
DECLARE
    name TEXT;
BEGIN
    FOR name IN SELECT DISTINCT role FROM understudy_rights() WHERE role IN (SELECT rolname FROM pg_roles) LOOP
        PERFORM understudy_revoke_role(name);
    END LOOP;
END $$;
GRANT EXECUTE ON FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ) TO PUBLIC;
DROP FUNCTION understudy_grant_roles();
DROP FUNCTION understudy_revoke_role(TEXT);
DROP FUNCTION understudy_rights();
DROP TRIGGER modelendpoint_guard ON ModelEndpoint;
DROP FUNCTION understudy_guard_endpoint();
DROP FUNCTION understudy_host_problem(TEXT);
DROP TABLE Installation;
ALTER TABLE ApiKey DROP COLUMN tenant, DROP COLUMN calls_per_second, DROP COLUMN bytes_per_second;
