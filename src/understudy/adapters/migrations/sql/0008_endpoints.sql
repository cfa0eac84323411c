-- Which addresses a model server may have. Proxies look again at what a name resolves to (adapters.endpoint_addresses).

-- One row: what this installation says of itself. Only the owner of the tables changes it.
CREATE TABLE Installation (
    is_only            BOOLEAN PRIMARY KEY DEFAULT TRUE CONSTRAINT installation_is_only_check CHECK (is_only),
    loopback_endpoints BOOLEAN NOT NULL DEFAULT FALSE
);
-- An installation that has model servers on its own machine keeps them, and one whose Postgres is on the machine that
-- migrates it is on one machine.
INSERT INTO Installation (loopback_endpoints) VALUES (
    inet_client_addr() IS NULL OR inet_client_addr() <<= '127.0.0.0/8' OR inet_client_addr() = '::1'
    OR EXISTS (SELECT FROM ModelEndpoint WHERE target ~* '^(127\.|localhost:|\[::1\])'));

-- Says what is wrong with the host of a target, and NULL when nothing is.
CREATE FUNCTION understudy_host_problem(target TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
DECLARE
    host    TEXT := lower(rtrim(regexp_replace(target, ':[0-9]+$', ''), '.'));
    address INET;
BEGIN
    IF host ~ '^\[.*\]$' OR host ~ '^[0-9.]+$' THEN
        BEGIN
            address := trim(BOTH '[]' FROM host)::INET;
        EXCEPTION WHEN invalid_text_representation THEN
            RETURN 'is no address';
        END;
        -- An IPv4 address in the clothes of IPv6 (mapped, compatible, NAT64) is judged as what it is.
        IF family(address) = 6 AND (address <<= '::ffff:0:0/96' OR address <<= '64:ff9b::/96'
                                    OR (address <<= '::/96' AND address > '::ffff')) THEN
            address := '0.0.0.0'::INET + (address - CASE WHEN address <<= '::ffff:0:0/96' THEN '::ffff:0:0'::INET
                                                         WHEN address <<= '64:ff9b::/96' THEN '64:ff9b::'::INET
                                                         ELSE '::'::INET END);
        END IF;
    END IF;
    RETURN CASE
        WHEN address <<= '169.254.0.0/16' OR address <<= 'fe80::/10' THEN 'is link-local'
        WHEN address IN ('fd00:ec2::254', '100.100.100.200', '168.63.129.16', '192.0.0.192')
             OR host ~ '^(metadata|instance-data|metadata\.google\.internal|metadata\.goog|instance-data\.ec2\.internal)$'
            THEN 'is a cloud''s metadata service'
        WHEN address <<= '0.0.0.0/8' OR address = '::' THEN 'is the unspecified address'
        WHEN address <<= '224.0.0.0/3' OR address <<= 'ff00::/8' THEN 'is no single machine'
        WHEN (address <<= '127.0.0.0/8' OR address = '::1'
              OR host ~ '(^|\.)localhost$' OR host ~ '^(localhost\.localdomain|ip6-localhost|ip6-loopback)$')
             AND NOT EXISTS (SELECT FROM Installation WHERE loopback_endpoints)
            THEN 'is the machine of whoever calls it'
    END;
END $$;

CREATE FUNCTION understudy_guard_endpoint() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    problem TEXT := understudy_host_problem(NEW.target);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM understudy_refuse(
            format('the endpoint %s %s', left(NEW.target, 60), problem),
            CASE WHEN problem LIKE '%whoever calls it' THEN
                'When this installation is one machine, its owner says so: UPDATE Installation SET loopback_endpoints = TRUE'
            ELSE 'Give the model server''s own name or address and its port, such as tfs-churn-7:8500.' END);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER modelendpoint_guard BEFORE INSERT OR UPDATE OF target ON ModelEndpoint
    FOR EACH ROW EXECUTE FUNCTION understudy_guard_endpoint();

DO $$
DECLARE
    function REGPROCEDURE;
BEGIN
    FOREACH function IN ARRAY ARRAY['understudy_host_problem(TEXT)', 'understudy_guard_endpoint()']::REGPROCEDURE[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
