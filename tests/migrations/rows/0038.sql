INSERT INTO JudgeQuestion (rollout_id, judge, pair, challenger_first, entity_bucket, cost_micros)
SELECT min(id), 'quality', 'f00d', TRUE, 7, 2000 FROM Rollout;
