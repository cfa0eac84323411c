-- The functions run with their owner's rights (an engineer may change a policy without being able to write the audit),
-- so each looks names up in our schema only, whatever the caller's search_path says.
DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname LIKE 'understudy\_%'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION understudy_touch(TEXT, TEXT, BIGINT) FROM PUBLIC;
SELECT understudy_ensure_partitions();
