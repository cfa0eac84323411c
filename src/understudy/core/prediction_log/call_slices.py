"""The slices of a call: its category and the features that its versions mark, as a row of the log has them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from understudy.core.schema.features import Feature, as_whole

CATEGORY = "category"
"""The slice that every call with a category has."""
ROUTED = "category route"
"""In its place in windows, for calls that the category routed, or that are held out of such a route."""
OTHER = "other"
"""In the place of a value that is no label."""
MAX_SLICES = 5
"""Of a call: its category, and a value of each of four features."""
MAX_CHARACTERS = 64
"""Of a value; a longer one is no label."""
_MAX_NAME = 255


class Slice(NamedTuple):
    """Calls that have one value of a feature, or one category."""

    feature: str
    value: str

    def __str__(self) -> str:
        """Return it as people write it: ``country=DE``."""
        return f"{self.feature}={self.value}"


def call_slices(
    entity_id: str,
    category: str | None,
    features: Sequence[Feature],
    inputs: Mapping[str, Any],
    stored: Mapping[str, Any] | None,
) -> bytes | None:
    """Return the slices of a call as a JSON object of texts; ``None`` for a call that has none.

    A value that is the entity's own id is none: what a slice counts is kept when the entity is erased.
    """
    found = {} if category is None else {CATEGORY: _label(category, entity_id)}
    for feature in features:
        name = feature.name
        kept = stored[name] if stored is not None and name in stored else feature.default
        value = as_whole(feature, inputs.get(name, kept))
        if value is not None:
            found[name] = _label(value, entity_id)
    return orjson.dumps(found) if found else None


@lru_cache(maxsize=4_096)
def slices_of(text: bytes) -> tuple[Slice, ...]:
    """Return what :func:`call_slices` wrote; none for anything else, which a spool may hold all the same."""
    try:
        found = orjson.loads(text)
        items = list(found.items())[:MAX_SLICES]
    except (orjson.JSONDecodeError, AttributeError):
        return ()
    return tuple(Slice(name, value) for name, value in items if _is_text(name, _MAX_NAME) and _is_label(value))


def _label(value: Any, entity_id: str) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    text = value if type(value) is str else str(value) if type(value) is int else ""
    return text if _is_label(text) and text != entity_id else OTHER


def _is_label(value: Any) -> bool:
    return _is_text(value, MAX_CHARACTERS)


def _is_text(value: Any, characters: int) -> bool:
    """Whether a text is short, and has nothing that JSON in Postgres refuses, such as U+0000 and lone surrogates."""
    return type(value) is str and 0 < len(value) <= characters and value.isprintable()
