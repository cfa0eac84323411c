ALTER TABLE VersionLoading DROP COLUMN replicas_min, DROP COLUMN replicas_max;
ALTER TABLE ModelServer DROP COLUMN room_bytes, DROP COLUMN draining_at;
ALTER TABLE LoadedVersion DROP COLUMN expected_bytes;
