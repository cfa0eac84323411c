"""Whose inputs are stored for drift on inputs, and what of them is not stored as it came."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from typing import Any

import orjson

_HASH_BYTES = 16
_KEY_BYTES = 16
_WHOLE = 2**64
_ALL_PERCENT = 100


@dataclass(frozen=True, slots=True)
class InputSampling:
    """What one model stores of its inputs. The default stores nothing: the inputs are other people's data.

    Raises:
        ValueError: Naming the field.
    """

    percent: float = 0.0
    """Of the entities, from 0 to 100; fractions count."""
    hashed: frozenset[str] = frozenset()
    """Features stored as a keyed hash: equal values stay equal, so the shares of categories can still be compared."""
    dropped: frozenset[str] = frozenset()
    """Features that are not stored."""

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if not (isfinite(self.percent) and 0 <= self.percent <= _ALL_PERCENT):
            raise ValueError(f"percent: expected a number from 0 to 100, got {self.percent:g}")
        if both := self.hashed & self.dropped:
            raise ValueError(f"hashed, dropped: expected each feature in one of them, got {sorted(both)} in both")


def is_sampled(model_name: str, entity_id: str, percent: float) -> bool:
    """Whether an entity's inputs are stored: always the same entities, and a larger percentage adds to them.

    The hash has a salt of its own, so it is neither the challenger's entities that are seen first, nor the shadow's.
    """
    digest = blake2b(f"{model_name}:{entity_id}".encode(), digest_size=8, person=b"stored inputs").digest()
    return int.from_bytes(digest) * _ALL_PERCENT < percent * _WHOLE


def redacted(inputs: Mapping[str, Any], sampling: InputSampling, key: bytes) -> dict[str, Any]:
    """Return what may be stored of a call's inputs.

    A null stays null under a hash, because the share of nulls is watched. What a feature's values can be (a country, an
    age) can be tried out by whoever has the key, and by nobody else.

    Args:
        inputs: JSON values by feature.
        sampling: Which features are hashed and which are dropped.
        key: The installation's secret, at least 16 bytes; only looked at when a feature is to be hashed.

    Raises:
        ValueError: If a feature is to be hashed and the key is too short.
    """
    if sampling.hashed and len(key) < _KEY_BYTES:
        raise ValueError(f"key: expected at least {_KEY_BYTES} bytes to hash {sorted(sampling.hashed)} with")
    return {
        name: _hash_of(name, value, key) if name in sampling.hashed and value is not None else value
        for name, value in inputs.items()
        if name not in sampling.dropped
    }


def _hash_of(name: str, value: Any, key: bytes) -> str:
    """Return 32 hexadecimal digits that tell nothing without the key; equal values of two features differ."""
    text = orjson.dumps([name, value], option=orjson.OPT_SORT_KEYS)
    # blake2b takes a key of at most 64 bytes; a longer one is hashed first, as HMAC does.
    short = key if len(key) <= blake2b.MAX_KEY_SIZE else blake2b(key).digest()
    return blake2b(text, key=short, digest_size=_HASH_BYTES).hexdigest()
