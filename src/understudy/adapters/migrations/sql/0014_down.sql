CREATE OR REPLACE FUNCTION understudy_host_problem(target TEXT) RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
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
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION understudy_host_problem(TEXT) SET search_path = %I, pg_temp', current_schema());
END $$;
