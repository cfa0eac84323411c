-- What a stolen login of one process may do to the others. Rows that exist stay as they are; readers leave out what they
-- cannot read.

-- Whether this session may write what guards keep from the roles: as the tables' owner, as a function of the owner, or as a
-- superuser. Not the depth of triggers: any role has triggers on a temporary table of its own.
CREATE FUNCTION understudy_is_owner() RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(CURRENT_USER, relowner, 'MEMBER') FROM pg_class WHERE oid = 'servingpolicy'::REGCLASS
$$;

-- -- what another process acts on -----------------------------------------------------------------------------------------

-- Triggers and no CHECK: rows of before may break the rule, and the tables need not be read while writers wait.
CREATE FUNCTION understudy_refuse_row() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', DETAIL = 'E203', CONSTRAINT = TG_NAME,
        MESSAGE = format('%s: no row of %s is like that', TG_NAME, TG_TABLE_NAME),
        HINT = 'Leave this table to Understudy''s own processes';
END $$;

-- The archiver deletes files by these keys.
CREATE TRIGGER logarchivefile_key_below_root BEFORE INSERT OR UPDATE OF key ON LogArchiveFile FOR EACH ROW WHEN (NOT (
    NEW.key ~ '^predictionlog/' AND NEW.key !~ '(^|/)[.]{0,2}(/|$)')) EXECUTE FUNCTION understudy_refuse_row();

-- The monitor and operators read these two.
CREATE TRIGGER proxyinstance_readable BEFORE INSERT OR UPDATE ON ProxyInstance FOR EACH ROW WHEN (NOT (
    isfinite(NEW.seen_at) AND octet_length(NEW.instance) <= 1000
    AND jsonb_typeof(NEW.generations) = 'object' AND jsonb_typeof(NEW.in_flight) = 'object'
    AND NOT jsonb_path_exists(NEW.generations, 'strict $.* ? (@.type() != "number" || @ < 0 || @ > 9007199254740991 '
                                               '|| @.floor() != @)', '{}', TRUE)
    AND NOT jsonb_path_exists(NEW.in_flight, 'strict $.* ? (@.type() != "number" || @ < 0 || @ > 9007199254740991 '
                                             '|| @.floor() != @)', '{}', TRUE)
    AND NOT jsonb_path_exists(NEW.in_flight, 'strict $.keyvalue() ? (!(@.key like_regex "^[0-9]{1,18}$"))', '{}', TRUE)
)) EXECUTE FUNCTION understudy_refuse_row();
CREATE TRIGGER predictionwindow_readable BEFORE INSERT OR UPDATE ON PredictionWindow FOR EACH ROW WHEN (NOT (
    isfinite(NEW.window_start) AND NEW.calls >= 0 AND NEW.errors >= 0 AND octet_length(NEW.shipper) <= 1000
    AND NEW.role IN ('champion', 'challenger', 'shadow') AND jsonb_typeof(NEW.counts) = 'object'
    AND NOT jsonb_path_exists(NEW.counts, 'strict $.keyvalue() ? (!('
        '(@.value.type() == "array") || '
        '(@.key like_regex "_squares$" && @.value.type() == "string" && @.value like_regex "^[0-9]{1,39}$") || '
        '(@.value.type() == "number" && @.value.floor() == @.value && @.value.abs() <= 9223372036854775807)))', '{}', TRUE)
    AND NOT jsonb_path_exists(NEW.counts, 'lax $.latencies[*] ? (@.type() != "number")')
    AND NOT jsonb_path_exists(NEW.counts, 'lax $.scores[*] ? (@.type() != "number")')
    AND NOT jsonb_path_exists(NEW.counts, 'lax $.buckets[*] ? (@.type() != "number")')
    AND NOT jsonb_path_exists(NEW.counts, 'lax $.tails[*] ? (@.type() != "number")')
)) EXECUTE FUNCTION understudy_refuse_row();

-- -- offsets of spools ----------------------------------------------------------------------------------------------------

-- The login whose proxy ships the spool; NULL until one does.
ALTER TABLE SpoolOffset ADD COLUMN owner TEXT;

CREATE OR REPLACE FUNCTION understudy_guard_offset() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    has_moved BOOLEAN := TG_OP = 'INSERT';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.spool_id <> OLD.spool_id OR (NEW.segment, NEW.byte_offset) < (OLD.segment, OLD.byte_offset) THEN
            PERFORM understudy_refuse(
                'SpoolOffset says which rows are in PredictionLog: it only moves forward',
                'Leave it to the proxies. Rows that could not be written: SELECT * FROM PredictionDeadLetter');
        END IF;
        has_moved := (NEW.segment, NEW.byte_offset) <> (OLD.segment, OLD.byte_offset);
    END IF;
    IF understudy_is_owner() THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        NEW.owner := OLD.owner;
        NEW.updated_at := greatest(OLD.updated_at, least(NEW.updated_at, now()));
        IF has_moved AND OLD.owner <> SESSION_USER AND EXISTS (SELECT FROM pg_roles WHERE rolname = OLD.owner) THEN
            IF NOT pg_has_role(SESSION_USER, OLD.owner::NAME, 'MEMBER') THEN
                RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                    MESSAGE = format('the offset of spool %s belongs to the login %s: %s may not move it', OLD.spool_id,
                                     OLD.owner, SESSION_USER),
                    DETAIL = 'E203',
                    HINT = format('Where the proxy of that spool has another login now: GRANT %I TO %I, or DROP ROLE %I once '
                                  'no proxy uses it', OLD.owner, SESSION_USER, OLD.owner);
            END IF;
        END IF;
    ELSE
        NEW.updated_at := now();
    END IF;
    IF has_moved THEN
        NEW.owner := SESSION_USER;
        -- Proxies number a segment from their clock's seconds, and read numbers of at most 15 digits. No bound by the clock
        -- of the database: after a clock of a proxy was years ahead, its segments go on from that number.
        IF NEW.segment NOT BETWEEN 0 AND 999999999999999 OR NEW.byte_offset NOT BETWEEN 0 AND 1099511627776 THEN
            PERFORM understudy_refuse(
                format('no spool has a place %s, %s: segments have numbers of at most 15 digits', NEW.segment,
                       NEW.byte_offset),
                'Leave it to the proxies');
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER spooloffset_guard BEFORE INSERT OR UPDATE ON SpoolOffset
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_offset();

-- -- what only the owner's triggers write ---------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION understudy_guard_change() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 2 OR NOT understudy_is_owner() THEN
        PERFORM understudy_refuse('PolicyChange is written by triggers only: it keeps generations from going back',
                                  'Change the policy itself: UPDATE ServingPolicy SET … WHERE model_name = ''…''');
    END IF;
    RETURN NULL;
END $$;

-- The columns are granted so that retention can erase them.
CREATE FUNCTION understudy_guard_erasure() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT understudy_is_owner() THEN
        PERFORM understudy_refuse(format('inputs of %s are erased or stay as they were logged', TG_TABLE_NAME),
                                  'SELECT understudy_redact_inputs(''…'') erases those of one entity');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER predictionlog_guard_erasure BEFORE UPDATE OF inputs ON PredictionLog
    FOR EACH ROW WHEN (NEW.inputs IS NOT NULL AND NEW.inputs IS DISTINCT FROM OLD.inputs)
    EXECUTE FUNCTION understudy_guard_erasure();
CREATE TRIGGER rolloutevent_guard_erasure BEFORE UPDATE OF inputs ON RolloutEvent
    FOR EACH ROW WHEN (NEW.inputs <> '{}' AND NEW.inputs IS DISTINCT FROM OLD.inputs)
    EXECUTE FUNCTION understudy_guard_erasure();

-- -- who and why ----------------------------------------------------------------------------------------------------------

-- Names and reasons come from the session, and audits are kept for two years: so much of each.
CREATE FUNCTION understudy_bound_words() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    NEW.reason := left(NEW.reason, 1000);
    NEW.actor := left(NEW.actor, 255);
    NEW.via := left(NEW.via, 255);
    RETURN NEW;
END $$;
CREATE TRIGGER policyaudit_bound BEFORE INSERT ON PolicyAudit
    FOR EACH ROW WHEN (length(NEW.reason) > 1000 OR length(NEW.actor) > 255 OR length(NEW.via) > 255)
    EXECUTE FUNCTION understudy_bound_words();
CREATE TRIGGER registryaudit_bound BEFORE INSERT ON RegistryAudit
    FOR EACH ROW WHEN (length(NEW.reason) > 1000 OR length(NEW.actor) > 255 OR length(NEW.via) > 255)
    EXECUTE FUNCTION understudy_bound_words();

-- Who may say what a monitor did.
CREATE FUNCTION understudy_speaks_for_monitor() RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
    SELECT understudy_is_owner()
        OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'understudy_monitor' AND pg_has_role(SESSION_USER, oid, 'MEMBER'))
$$;
CREATE FUNCTION understudy_sign_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT understudy_speaks_for_monitor() THEN
        NEW.actor := understudy_actor();
        NEW.reason := left(NEW.reason, 1000);
    END IF;
    NEW.actor := left(NEW.actor, 255);
    RETURN NEW;
END $$;
CREATE TRIGGER rolloutevent_sign BEFORE INSERT ON RolloutEvent FOR EACH ROW EXECUTE FUNCTION understudy_sign_event();
CREATE FUNCTION understudy_sign_rollout() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT understudy_speaks_for_monitor() THEN
        NEW.started_by := CASE WHEN TG_OP = 'UPDATE' THEN OLD.started_by ELSE understudy_actor() END;
    END IF;
    NEW.started_by := left(NEW.started_by, 255);
    NEW.reason := left(NEW.reason, 1000);
    RETURN NEW;
END $$;
CREATE TRIGGER rollout_sign BEFORE INSERT OR UPDATE OF started_by, reason ON Rollout
    FOR EACH ROW EXECUTE FUNCTION understudy_sign_rollout();

-- A role is what a policy gives.
CREATE FUNCTION understudy_guard_new_version() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT understudy_is_owner() THEN
        PERFORM understudy_refuse(
            format('version %s of %s is registered with the status %s: a policy gives it', NEW.version, NEW.model_name,
                   NEW.status),
            'Leave status out, and name the version in the policy: UPDATE ServingPolicy SET … WHERE model_name = ''…''');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER modelversion_guard_new BEFORE INSERT ON ModelVersion
    FOR EACH ROW WHEN (NEW.status NOT IN ('staging', 'retired')) EXECUTE FUNCTION understudy_guard_new_version();

-- -- partitions -----------------------------------------------------------------------------------------------------------

-- One at a time, by a lock that only who may write the table's definition can take: any session can take an advisory lock,
-- and keep it.
CREATE OR REPLACE FUNCTION understudy_ensure_partitions(months_ahead INT DEFAULT 3, around TIMESTAMPTZ DEFAULT now())
RETURNS INT LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '4s' AS $$
DECLARE
    made       INT := 0;
    this_month TIMESTAMP := date_trunc('month', around AT TIME ZONE 'UTC');
    first_day  TIMESTAMP;
    partition  TEXT;
BEGIN
    IF months_ahead NOT BETWEEN 0 AND 24 OR around NOT BETWEEN now() - INTERVAL '2 years' AND now() + INTERVAL '1 year' THEN
        PERFORM understudy_refuse('partitions are made for 0 to 24 months ahead, two years back to one year ahead of now',
                                  'For example: SELECT understudy_ensure_partitions(3)');
    END IF;
    FOR month IN -1..months_ahead LOOP
        first_day := this_month + make_interval(months => month);
        partition := 'predictionlog_' || to_char(first_day, 'YYYY_MM');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL;
        -- What ATTACH takes anyway; inserts and readers go on.
        LOCK TABLE ONLY PredictionLog IN SHARE UPDATE EXCLUSIVE MODE;
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_class WHERE relname = partition AND relnamespace = current_schema()::REGNAMESPACE);
        EXECUTE format('CREATE TABLE %I (LIKE PredictionLog INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
        EXECUTE format('ALTER TABLE PredictionLog ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition,
                       first_day || '+00', (first_day + INTERVAL '1 month') || '+00');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_is_owner', 'understudy_refuse_row', 'understudy_guard_offset', 'understudy_guard_change', 'understudy_guard_erasure',
            'understudy_bound_words', 'understudy_speaks_for_monitor', 'understudy_sign_event', 'understudy_sign_rollout',
            'understudy_guard_new_version', 'understudy_ensure_partitions')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
