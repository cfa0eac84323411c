INSERT INTO LogArchive (id, partition_name, month_start, month_end, location, state, row_count, fingerprint,
                        detached_as)
VALUES (1, 'predictionlog_2020_01', '2020-01-01Z', '2020-02-01Z', 's3://archive', 'archived', 9, '9:45',
        'predictionlog_2020_01_archived_1');
INSERT INTO LogArchiveFile VALUES (1, 'predictionlog/model=churn/day=2020-01-01/part-1-1-00000.parquet', 'churn', '2020-01-01', 9, 900, repeat('0a', 32));
INSERT INTO ArchiveStatus (succeeded_at) VALUES (now());
