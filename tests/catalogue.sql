-- No object ids, no numbers of columns, and access lists in one order: those tell of the way and not of the schema.
WITH ours AS (
    SELECT oid, relname, relkind, relacl, relowner, relnamespace, reloptions, relpersistence, relrowsecurity,
           relispartition, relpartbound
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'S', 'm')
), rights (object, relation, acl) AS (
    SELECT 'rights ' || relname, oid,
           coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))
    FROM ours
    UNION ALL
    SELECT 'rights ' || relname || '.' || attname, ours.oid, attacl
    FROM ours JOIN pg_attribute ON attrelid = ours.oid AND attnum > 0 AND NOT attisdropped AND attacl IS NOT NULL
    UNION ALL
    SELECT 'rights ' || oid::regprocedure, oid, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'rights schema', oid, coalesce(nspacl, acldefault('n', nspowner)) FROM pg_namespace WHERE nspname = 'public'
)
SELECT 'relation ' || relname AS object,
       concat_ws(' ', relkind, relpersistence, pg_get_userbyid(relowner), reloptions::text, relrowsecurity,
                 CASE relkind WHEN 'p' THEN pg_get_partkeydef(oid) WHEN 'v' THEN pg_get_viewdef(oid) END,
                 CASE WHEN relispartition THEN (SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = oid)
                      || ' ' || pg_get_expr(relpartbound, oid) END) AS said
FROM ours
UNION ALL
SELECT 'column ' || relname || '.' || attname,
       concat_ws('|', format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'NOT NULL' ELSE '' END,
                 coalesce('DEFAULT ' || pg_get_expr(adbin, adrelid), ''),
                 concat_ws(' ', '#' || row_number() OVER (PARTITION BY relname ORDER BY attnum), attidentity,
                           attgenerated, attstorage, attcollation::regcollation))
FROM ours JOIN pg_attribute ON attrelid = ours.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relkind <> 'S'
UNION ALL
SELECT 'constraint ' || conname || ' on ' || conrelid::regclass,
       concat_ws(' ', pg_get_constraintdef(oid), CASE WHEN NOT convalidated THEN 'NOT VALID' END)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0
UNION ALL
SELECT 'index ' || indexrelid::regclass || ' on ' || indrelid::regclass,
       concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid, indisready, indisreplident)
FROM pg_index JOIN ours ON ours.oid = indrelid
UNION ALL
SELECT 'trigger ' || tgname || ' on ' || tgrelid::regclass, concat_ws(' ', pg_get_triggerdef(pg_trigger.oid), tgenabled)
FROM pg_trigger JOIN ours ON ours.oid = tgrelid WHERE NOT tgisinternal AND tgparentid = 0
UNION ALL
SELECT 'function ' || oid::regprocedure, concat_ws(' ', pg_get_userbyid(proowner), pg_get_functiondef(oid))
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL
SELECT 'sequence ' || relname,
       concat_ws(' ', format_type(seqtypid, NULL), seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle,
                 (SELECT refobjid::regclass::text FROM pg_depend WHERE objid = ours.oid AND deptype = 'a'))
FROM pg_sequence JOIN ours ON ours.oid = seqrelid
UNION ALL
SELECT 'policy ' || polname, polrelid::regclass::text FROM pg_policy
UNION ALL
SELECT 'type ' || typname, typtype::text FROM pg_type
WHERE typnamespace = 'public'::regnamespace AND typrelid = 0 AND typelem = 0
UNION ALL
SELECT object, string_agg(one, ', ' ORDER BY one) FROM (
    SELECT object, concat_ws(' ', CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END, privilege_type,
                             CASE WHEN is_grantable THEN 'WITH GRANT OPTION' END) AS one
    FROM rights CROSS JOIN LATERAL aclexplode(acl)
) AS given GROUP BY object
