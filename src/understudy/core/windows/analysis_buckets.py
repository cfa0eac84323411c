"""Analysis buckets: the 64 groups that a hash of its own puts entities in, for statistics, never for routing."""

from hashlib import blake2b
from struct import Struct

ANALYSIS_BUCKETS = 64
ANALYSIS_HASH = blake2b(b"analysis:", digest_size=8)
"""Where every analysis hash begins. Its copy costs half as much as beginning anew."""
_as_integer = Struct("<Q").unpack


def analysis_hash(entity: bytes) -> int:
    """Return an entity's 64-bit hash for analyses, which no routing depends on; its analysis bucket is ``% 64``."""
    hasher = ANALYSIS_HASH.copy()
    hasher.update(entity)
    value: int = _as_integer(hasher.digest())[0]
    return value


def analysis_bucket(entity_id: str) -> int:
    """Return the analysis bucket of an entity."""
    return analysis_hash(entity_id.encode()) % ANALYSIS_BUCKETS
