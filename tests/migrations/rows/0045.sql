UPDATE VersionLoading SET replicas_min = 1, replicas_max = 4;
UPDATE ModelServer SET room_bytes = 900000000;
UPDATE LoadedVersion SET expected_bytes = 230000000;
