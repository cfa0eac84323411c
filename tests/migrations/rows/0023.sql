INSERT INTO EntityErasureSwap (erasure_id, archive_id, old_key, new_key, old_byte_count, old_sha256, longer, actor)
SELECT id, 1, 'predictionlog/model=armed/day=2026-01-01/a.parquet', format('predictionlog/model=armed/day=2026-01-01/a-e%s.parquet', id),
       4000, repeat('a1', 32), 25, 'dana'
FROM EntityErasure;
