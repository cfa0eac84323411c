UPDATE Rollout SET state = state || '{"guard_metrics": [{"name": "basket", "source": "shop", "promql": "avg(euros{version=\"$version\"})"}]}'
WHERE kind = 'guard';
