CREATE VIEW understudy_status AS
SELECT policy.model_name AS model, champion.version AS champion, challenger.version AS challenger,
       policy.challenger_weight, shadow.version AS shadow, policy.generation, policy.updated_at AS changed_at,
       policy.updated_by AS changed_by,
       (SELECT count(*) FROM ProxyInstance WHERE seen_at > now() - INTERVAL '30 seconds') AS proxies,
       (SELECT count(*) FROM ProxyInstance WHERE seen_at > now() - INTERVAL '30 seconds'
        AND generations ->> policy.model_name = policy.generation::TEXT) AS proxies_on_generation
FROM ServingPolicy AS policy
JOIN ModelVersion AS champion ON champion.id = policy.champion_version
LEFT JOIN ModelVersion AS challenger ON challenger.id = policy.challenger_version
LEFT JOIN ModelVersion AS shadow ON shadow.id = policy.shadow_version;

-- One row for each role of each model: what share of the calls its version answers, or is shown.
CREATE VIEW understudy_split AS
SELECT policy.model_name AS model, roles.role, version.version, version.id AS version_id, roles.percent
FROM ServingPolicy AS policy
CROSS JOIN LATERAL (VALUES
    ('champion', policy.champion_version, 100 - policy.challenger_weight),
    ('challenger', policy.challenger_version, policy.challenger_weight),
    ('shadow', policy.shadow_version, policy.shadow_percent)
) AS roles (role, version_id, percent)
JOIN ModelVersion AS version ON version.id = roles.version_id;
