"""Analysis buckets: the 64 groups that a hash of its own puts entities in, for statistics, never for routing."""

from understudy.core.prediction_log.analysis_hash import analysis_hash

ANALYSIS_BUCKETS = 64


def analysis_bucket(entity_id: str) -> int:
    """Return the analysis bucket of an entity."""
    return analysis_hash(entity_id.encode()) % ANALYSIS_BUCKETS
