"""``understudy explain``."""
