"""How many buckets the entities of a model are divided into."""

BUCKETS = 100
LAST_BUCKET = BUCKETS - 1
