"""A document as JSON text, and moments in it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

SCHEMA = "understudy/v1"


def json_text(document: Mapping[str, Any]) -> bytes:
    """Return a document as one line of JSON that names its schema; a ``datetime`` is ISO 8601 in UTC."""
    return orjson.dumps({"schema": SCHEMA, **document}, option=orjson.OPT_UTC_Z, default=str)


def moment_of(seconds: float | None) -> datetime | None:
    """Return a time in seconds since the epoch as documents have it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
