"""``understudy drift``: what drifted, and baselines."""
