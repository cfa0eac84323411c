ALTER TABLE Placement DROP COLUMN idle_since;
ALTER TABLE LoadedVersion DROP COLUMN memory_bytes;
