UPDATE VersionLoading SET requires_validation = TRUE;
INSERT INTO VersionValidation (model_version_id, server, build, artifact_digest, passed, said, judged_by)
SELECT model_version_id, 'server-a', 'understudy 1', pinned_digest, TRUE, '3 cases answered as expected', 'server-a'
FROM VersionLoading;
