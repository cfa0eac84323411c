-- What a version may weigh, that it is not deleted while a proxy still has rows of it, and that a role keeps an endpoint.

-- Each proxy compiles a version's documents in the process that answers calls: 500,000 features took it 3 s. Existing rows
-- stay as they are until a session writes them.
CREATE FUNCTION understudy_guard_size() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    label TEXT := format('version %s of %s', NEW.version, NEW.model_name);
    size  INT;
    one   RECORD;
BEGIN
    FOR one IN
        SELECT * FROM (VALUES
            ('input_schema', NEW.input_schema, 524288, 'Give many features of one kind as one, with a shape'),
            ('output_schema', NEW.output_schema, 65536, 'Leave labels out that nobody reads'),
            ('backend', NEW.backend, 65536, 'Leave out what the model server does not need to be told')
        ) AS documents (name, document, most, next_step)
    LOOP
        size := octet_length(one.document::TEXT);
        IF size > one.most THEN
            PERFORM understudy_refuse(
                format('the %s of %s has %s bytes; at most %s', one.name, label, size, one.most), one.next_step);
        END IF;
    END LOOP;
    IF jsonb_typeof(NEW.input_schema -> 'features') = 'array' THEN
        size := jsonb_array_length(NEW.input_schema -> 'features');
        IF size > 4096 THEN
            PERFORM understudy_refuse(format('the input_schema of %s has %s features; at most 4096', label, size),
                                      'Give many features of one kind as one, with a shape');
        END IF;
    END IF;
    RETURN NEW;
END $$;
-- What is short breaks none of it, and is not looked at.
CREATE TRIGGER modelversion_guard_size BEFORE INSERT OR UPDATE OF input_schema, output_schema, backend ON ModelVersion
    FOR EACH ROW WHEN (octet_length(NEW.input_schema::TEXT) > 16384 OR octet_length(NEW.output_schema::TEXT) > 16384
                       OR octet_length(NEW.backend::TEXT) > 16384)
    EXECUTE FUNCTION understudy_guard_size();

-- A version without any role can be called by name, and the row of that call is shipped later: with the version gone it
-- would be buried in PredictionDeadLetter. Once a version is retired, proxies call it no more, and within the hour their
-- rows are here; those then keep it by their foreign key. A model without a policy was never called.
CREATE FUNCTION understudy_guard_deletion() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    changed TIMESTAMPTZ;
BEGIN
    PERFORM FROM PolicyChange WHERE model_name = OLD.model_name AND source = 'policy';
    IF NOT FOUND THEN
        RETURN OLD;
    END IF;
    SELECT changed_at INTO changed FROM PolicyChange
    WHERE model_name = OLD.model_name AND source = 'version:' || OLD.id;
    IF OLD.status <> 'retired' OR changed > now() - INTERVAL '1 hour' THEN
        PERFORM understudy_refuse(
            format('version %s of %s can be called, or could within the last hour: rows of its calls may be on their way',
                   OLD.version, OLD.model_name),
            CASE WHEN OLD.status = 'retired' THEN 'Delete it an hour after it was retired; meanwhile nobody calls it'
                 ELSE format('Retire it, and delete it an hour later: UPDATE ModelVersion SET status = ''retired'' '
                             'WHERE id = %s', OLD.id) END);
    END IF;
    RETURN OLD;
END $$;
-- After modelversion_guard, which has more to say about a version with a role: triggers fire in the order of their names.
CREATE TRIGGER modelversion_guard_deletion BEFORE DELETE ON ModelVersion
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_deletion();

-- Two sessions that each delete one of two endpoints must see each other. The version is locked before its change is told
-- (modelendpoint_touch), in the order in which a change of roles does it.
CREATE FUNCTION understudy_lock_version() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM FROM ModelVersion WHERE id = OLD.model_version_id FOR NO KEY UPDATE;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER modelendpoint_lock_version BEFORE DELETE OR UPDATE OF model_version_id ON ModelEndpoint
    FOR EACH ROW EXECUTE FUNCTION understudy_lock_version();

-- Asked when the transaction ends, so that all endpoints may be replaced in one.
CREATE FUNCTION understudy_guard_last_endpoint() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    known ModelVersion;
    role  TEXT;
BEGIN
    SELECT * INTO known FROM ModelVersion WHERE id = OLD.model_version_id;
    IF NOT FOUND OR EXISTS (SELECT FROM ModelEndpoint WHERE model_version_id = OLD.model_version_id) THEN
        RETURN NULL;
    END IF;
    SELECT CASE WHEN champion_version = known.id THEN 'champion'
                WHEN challenger_version = known.id THEN 'challenger'
                WHEN shadow_version = known.id THEN 'shadow'
                ELSE 'arm' END
    INTO role FROM ServingPolicy
    WHERE model_name = known.model_name
      AND (known.id IN (champion_version, challenger_version, shadow_version)
           OR arms @> jsonb_build_array(jsonb_build_object('version_id', known.id)));
    IF FOUND THEN
        PERFORM understudy_refuse(
            format('%s is the last endpoint of version %s of %s, which is the %s: nobody would answer for it', OLD.target,
                   known.version, known.model_name, role),
            format('Name another first, or in the same transaction: INSERT INTO ModelEndpoint (model_version_id, target) '
                   'VALUES (%s, ''host:port'')', known.id));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER modelendpoint_guard_last AFTER DELETE OR UPDATE OF model_version_id ON ModelEndpoint
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION understudy_guard_last_endpoint();

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::REGNAMESPACE AND proname IN (
            'understudy_guard_size', 'understudy_guard_deletion', 'understudy_lock_version',
            'understudy_guard_last_endpoint')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
