"""One call's features as they were served, beside what the feature store has for its entity: alike, different, missing.

Source:
    TFX, "Training-serving skew: feature skew": values are joined by key and compared one by one, which finds what no
    comparison of distributions does, such as values that go to the wrong entities.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from math import isclose, isfinite
from typing import Any, NamedTuple

from understudy.core.drift.baseline import category_of

RELATIVE_ERROR = 1e-5
"""Numbers that are as near as this are the same: a float32 has seven digits."""
ABSOLUTE_ERROR = 1e-9


class Match(StrEnum):
    """How a served value compares with the stored one; also the categories that are counted."""

    SAME = "same"
    DIFFERS = "differs"
    MISSING = "missing"
    """The call was served none, or the feature's default, though the store has a value."""


class Pair(NamedTuple):
    """One feature of one call."""

    feature: str
    match: Match
    ratio: float | None = None
    """The served number over the stored one, of those that differ; ``None`` where that is no number."""


def compared(served: Mapping[str, Any], defaulted: Collection[str], stored: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield a pair for each feature that was logged and that the store has a value of.

    Args:
        served: The logged inputs of a call.
        defaulted: Features that took their default, whatever is logged of them.
        stored: What the store has for the entity; ``None`` is no value.
    """
    for name, value in stored.items():
        if value is None or name not in served:
            continue
        if name in defaulted or served[name] is None:
            yield Pair(name, Match.MISSING)
        elif _are_same(served[name], value):
            yield Pair(name, Match.SAME)
        else:
            yield Pair(name, Match.DIFFERS, _ratio(served[name], value))


def are_equal(one: Any, other: Any) -> bool:
    """Whether two values of the store are the same: then it did not move between the two times that it was asked."""
    return (one is None and other is None) or (one is not None and other is not None and _are_same(one, other))


def _are_same(served: Any, stored: Any) -> bool:
    if isinstance(served, int | float) and isinstance(stored, int | float):
        return _is_close(served, stored)
    if isinstance(served, str) and isinstance(stored, str):
        return served == stored
    if not isinstance(served, str | int | float) or not isinstance(stored, str | int | float):
        return bool(served == stored)
    # An enum may be numbers here and their texts there; a store that has texts for numbers is another matter.
    return category_of(served) == category_of(stored)


def _is_close(one: float, other: float) -> bool:
    try:
        return isclose(one, other, rel_tol=RELATIVE_ERROR, abs_tol=ABSOLUTE_ERROR)
    except OverflowError:  # a whole number beyond any float
        return one == other


def _ratio(served: Any, stored: Any) -> float | None:
    if not isinstance(served, int | float) or not isinstance(stored, int | float) or not stored:
        return None
    try:
        found = served / stored
    except OverflowError:
        return None
    return found if isfinite(found) else None
