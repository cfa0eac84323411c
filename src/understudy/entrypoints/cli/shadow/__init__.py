"""``understudy shadow``: the shadow's answers beside the champion's."""
