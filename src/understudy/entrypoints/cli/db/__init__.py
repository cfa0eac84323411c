"""``understudy db``: migrations, archive, SQL prompt."""
