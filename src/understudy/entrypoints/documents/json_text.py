"""A document as JSON text, and results and moments as it has them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

SCHEMA = "understudy/v1"
_MOMENTS = frozenset({"since", "until", "at", "started_at", "predicted_at"})
"""Fields that are times, in seconds since the epoch."""


def json_text(document: Mapping[str, Any]) -> bytes:
    """Return a document as one line of JSON that names its schema; a ``datetime`` is ISO 8601 in UTC."""
    return orjson.dumps({"schema": SCHEMA, **document}, option=orjson.OPT_UTC_Z, default=str)


def moment_of(seconds: float | None) -> datetime | None:
    """Return a time in seconds since the epoch as documents have it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def document_of(value: Any) -> Any:
    """Return a result as documents have it: named tuples as objects, their times in ISO 8601."""
    if hasattr(value, "_asdict"):
        return {name: _member_of(name, member) for name, member in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): document_of(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [document_of(member) for member in value]
    return value


def _member_of(name: str, member: Any) -> Any:
    if name in _MOMENTS and isinstance(member, float):
        return moment_of(member)
    return document_of(member)
