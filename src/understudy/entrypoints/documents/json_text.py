"""A document as JSON text."""

from collections.abc import Mapping
from typing import Any

import orjson

SCHEMA = "understudy/v1"


def json_text(document: Mapping[str, Any]) -> bytes:
    """Return a document as one line of JSON that names its schema; a ``datetime`` is ISO 8601 in UTC."""
    return orjson.dumps({"schema": SCHEMA, **document}, option=orjson.OPT_UTC_Z, default=str)
