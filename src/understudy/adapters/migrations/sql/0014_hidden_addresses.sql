-- An IPv6 address that a router translates to an IPv4 address is judged as that one, too. Proxies do the same
-- (core.upstream.endpoint_rules).
CREATE OR REPLACE FUNCTION understudy_host_problem(target TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
DECLARE
    host    TEXT := lower(rtrim(regexp_replace(target, ':[0-9]+$', ''), '.'));
    address INET;
    hidden  TEXT;
    problem TEXT;
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
    -- 6to4 (RFC 3056), local-use NAT64 with a prefix of 48 or 96 bits (RFC 8215, RFC 6052), SIIT (RFC 2765): a router makes
    -- an IPv4 address of these bytes. inet_send has four bytes before them.
    FOR hidden IN
        SELECT format('%s.%s.%s.%s', get_byte(raw, a), get_byte(raw, b), get_byte(raw, c), get_byte(raw, d))
        FROM inet_send(address) AS raw, (VALUES
            ('2002::/16'::INET, 6, 7, 8, 9), ('64:ff9b:1::/48', 10, 11, 13, 14), ('64:ff9b:1::/48', 16, 17, 18, 19),
            ('::ffff:0:0:0/96', 16, 17, 18, 19)) AS hiding (network, a, b, c, d)
        WHERE address <<= network
    LOOP
        problem := CASE WHEN hidden <> '0.0.0.0' THEN understudy_host_problem(hidden || ':1') END;
        IF problem IS NOT NULL THEN
            RETURN format('leads to %s, which %s', hidden, problem);
        END IF;
    END LOOP;
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
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_host_problem(TEXT) SET search_path = %I, pg_temp', current_schema());
END $$;
