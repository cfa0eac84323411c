INSERT INTO LakeFile (key, spool_id, segment, byte_offset, layout) VALUES ('predictionlog/data/x.parquet', 'lake:a', 0, 0, 1);
INSERT INTO iceberg_tables VALUES ('understudy', 'understudy', 'predictionlog', 'file:///lake/1.metadata.json', NULL, 'TABLE');
INSERT INTO iceberg_namespace_properties VALUES ('understudy', 'understudy', 'exists', 'true');
