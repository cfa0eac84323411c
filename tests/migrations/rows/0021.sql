INSERT INTO EntityErasure (model_name, digest, salt, erased_before, actor, via, reason)
VALUES ('armed', repeat('a0', 32), '\x00', now(), 'dana', 'cli', 'request 118');
INSERT INTO EntityErasureFile (erasure_id, archive_id, old_key, new_key)
SELECT id, 1, 'predictionlog/model=armed/day=2026-01-01/a.parquet', 'predictionlog/model=armed/day=2026-01-01/b.parquet'
FROM EntityErasure;
