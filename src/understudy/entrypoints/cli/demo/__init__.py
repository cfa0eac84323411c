"""``understudy demo``: the whole product on one machine, shown on one screen."""
