INSERT INTO LakeRewrite (kind, old_paths) VALUES ('merge', '{file:///lake/predictionlog/data/x.parquet}');
