UPDATE Placement SET idle_since = now();
UPDATE LoadedVersion SET memory_bytes = 220000000;
