-- On how many servers of its group a version is to be, by its calls between the two; NULL: on every one, as ever.
ALTER TABLE VersionLoading
    ADD COLUMN replicas_min SMALLINT,
    ADD COLUMN replicas_max SMALLINT,
    ADD CONSTRAINT versionloading_replicas CHECK (
        (replicas_min IS NULL) = (replicas_max IS NULL) AND replicas_min BETWEEN 1 AND replicas_max AND replicas_max <= 64);
-- What the server's versions may take of its memory together, as its agent says; NULL: it keeps no account.
ALTER TABLE ModelServer ADD COLUMN room_bytes BIGINT CHECK (room_bytes >= 0);
-- When the agent last reported that the server is about to end. It drains while that is its last report, seen_at: an
-- agent of the release before, which does not know the column, ends that by its first one.
ALTER TABLE ModelServer ADD COLUMN draining_at TIMESTAMPTZ;
-- What the agent expected the version to take when there was no room for it.
ALTER TABLE LoadedVersion ADD COLUMN expected_bytes BIGINT CHECK (expected_bytes >= 0);
