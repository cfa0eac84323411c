-- As it was: functions of triggers may be executed by everybody.
DO $$
DECLARE
    definer REGPROCEDURE;
BEGIN
    FOR definer IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'understudy\_%'
          AND prosecdef AND prorettype = 'trigger'::regtype
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', definer);
    END LOOP;
END
$$;
