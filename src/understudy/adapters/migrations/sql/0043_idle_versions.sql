-- Since when nothing wants a version that a server has, or since its last call after that; NULL: it is wanted.
ALTER TABLE Placement ADD COLUMN idle_since TIMESTAMPTZ;
-- What the version takes of its server's memory: measured, or estimated where that cannot be.
ALTER TABLE LoadedVersion ADD COLUMN memory_bytes BIGINT CHECK (memory_bytes >= 0);
