"""``understudy log``: queries over the prediction log, and replays."""
