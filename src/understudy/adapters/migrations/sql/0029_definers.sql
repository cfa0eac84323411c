-- A trigger runs its function without the right of a login to execute it. A login that has the right can hang a function of
-- ours on a temporary table with columns of its choice, and write an audit or a change with the owner's rights.
DO $$
DECLARE
    definer REGPROCEDURE;
BEGIN
    FOR definer IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'understudy\_%'
          AND prosecdef AND prorettype = 'trigger'::regtype
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', definer);
    END LOOP;
END
$$;
