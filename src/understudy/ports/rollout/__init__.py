"""Rollouts, and warm-ups through proxies."""
