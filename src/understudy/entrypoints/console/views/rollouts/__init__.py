"""The page of a rollout: its first screen, its checks and charts, and its stored verdicts judged again."""
