"""``understudy ab``: plan A/B tests, report on them, bring outcomes in."""
