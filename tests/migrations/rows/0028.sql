INSERT INTO ModelServer (name, group_name, target, build) VALUES ('server-a', 'onnx', '10.0.0.7:8500', 'understudy 1');
INSERT INTO AgentLease (name, holder, epoch) VALUES ('server-a', 'server-a:1:x', 3);
INSERT INTO VersionLoading (model_version_id, group_name, wanted_until, pinned_digest)
SELECT min(id), 'onnx', now() + INTERVAL '2 hours', 'sha256:' || repeat('ab', 32) FROM ModelVersion;
INSERT INTO Placement (model_version_id, server, why, epoch)
SELECT model_version_id, 'server-a', 'champion', 3 FROM VersionLoading;
INSERT INTO LoadedVersion (model_version_id, server, state, attempt, artifact_digest, epoch)
SELECT model_version_id, 'server-a', 'AVAILABLE', 1, pinned_digest, 3 FROM VersionLoading;
INSERT INTO ModelEndpoint (model_version_id, target, source, server)
SELECT model_version_id, '10.0.0.7:8500', 'agent', 'server-a' FROM VersionLoading;
UPDATE ProxyInstance SET read_xid = '42';
