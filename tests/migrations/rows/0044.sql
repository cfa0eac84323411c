UPDATE Rollout SET state = state || '{"guard_judge": {"name": "quality", "cost_per_call": 0.002, "money_per_day": 5}}'
WHERE kind = 'guard';
