"""``understudy version``: register, compare, check, list, show and retire versions."""
