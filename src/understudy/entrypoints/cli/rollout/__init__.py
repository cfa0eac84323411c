"""``understudy rollout``: start, follow and steer rollouts."""
