UPDATE Experiment SET ended_at = now() WHERE ended_at IS NULL;
