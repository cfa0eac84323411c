"""Which entities' inputs are logged for drift on inputs, and which inputs cannot be logged."""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

MAX_SAMPLE_BYTES = 8 * 1024
"""Longest JSON text of one call's inputs; longer ones would leave too little of the spool for other rows."""
_WHOLE = 2**64
_ALL_PERCENT = 100
_NUL = b"\\u0000"


class SampleOutcome(StrEnum):
    """What happened to inputs that were to be logged."""

    STORED = "stored"
    TOO_LARGE = "too_large"
    UNSTORABLE = "unstorable"
    """JSONB cannot hold it: a NUL character, a lone surrogate, a number beyond 64 bits."""


class InputSample(NamedTuple):
    """The logged inputs of one call."""

    entity_id: str
    inputs: str | bytes
    """A JSON object."""


def is_sampled(model_name: str, entity_id: str, percent: int) -> bool:
    """Whether an entity's inputs are logged: always the same entities, and a larger percentage adds to them.

    The hash has a salt of its own, so the sample is independent of the challenger's entities, the shadow's, and the
    analysis buckets.
    """
    digest = blake2b(f"{model_name}:{entity_id}".encode(), digest_size=8, person=b"stored inputs").digest()
    return int.from_bytes(digest) * _ALL_PERCENT < percent * _WHOLE


def encode_sample(values: Mapping[str, Any]) -> tuple[bytes | None, SampleOutcome]:
    """Return the JSON text to be logged, or why there is none: inputs never fail a row."""
    try:
        text = orjson.dumps(values)
    except orjson.JSONEncodeError:
        return None, SampleOutcome.UNSTORABLE
    if len(text) > MAX_SAMPLE_BYTES:
        return None, SampleOutcome.TOO_LARGE
    if _NUL in text:
        return None, SampleOutcome.UNSTORABLE
    return text, SampleOutcome.STORED
