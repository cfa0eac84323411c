"""Calls that a version's schema permits and that models seldom see: bounds, ends of enums, zeros, longest strings."""

from collections.abc import Iterator
from math import ceil, floor
from typing import Any, Final

from understudy.core.requests.example import example_inputs
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.features import Feature
from understudy.core.schema.tensors import Datatype

CALLS: Final = 100
_TINIEST: Final = {Datatype.FP32: 2.0**-149, Datatype.FP64: 2.0**-1074}
"""The least number above 0 (denormal). Source: IEEE 754."""
_SIZES: Final = ((25, 64), (10, 7))
"""Each so many-th call has so many rows; all others but the last one have one."""


def hard_calls(version: ModelVersion, most_rows: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of :data:`CALLS` calls, the same ones each time; the last has ``most_rows``.

    In every second row one feature is at one of its ends, and all others are as in an example; in the rest all are.
    Each third row leaves out what has a default. A version that takes no batch gets one row a call.
    """
    usual = example_inputs(version)
    features = version.input_schema.features
    ends = [hard_values(feature) or [usual[feature.name]] for feature in features]
    number = 0
    for call in range(1, CALLS + 1):
        rows = []
        for _ in range(_size(call, most_rows) if version.input_schema.batch else 1):
            rows.append(_row(features, ends, usual, number))
            number += 1
        yield rows


def hard_values(feature: Feature) -> list[Any]:
    """Return what a feature permits at its ends; of a number without a bound -1, 0 and 1 stand for them."""
    elements = _elements(feature)
    for size in reversed(feature.shape):
        elements = [[element] * size for element in elements]
    return elements


def _size(call: int, most_rows: int) -> int:
    if call == CALLS:
        return most_rows
    return min(next((rows for each, rows in _SIZES if call % each == 0), 1), most_rows)


def _row(features: tuple[Feature, ...], ends: list[list[Any]], usual: dict[str, Any], number: int) -> dict[str, Any]:
    turn, is_single = number // 2, number % 2 == 0
    row = dict(usual)
    for place, (feature, values) in enumerate(zip(features, ends, strict=True)):
        if is_single and place == turn % len(features):
            row[feature.name] = values[turn // len(features) % len(values)]
        elif not is_single:
            row[feature.name] = values[(turn + place) % len(values)]
    if number % 3 == 0:
        row = {feature.name: row[feature.name] for feature in features if not feature.has_default} or row
    return row


def _elements(feature: Feature) -> list[Any]:
    if feature.enum:
        return [feature.enum[0], feature.enum[-1]]
    if feature.datatype is Datatype.BOOL:
        return [True, False]
    if feature.datatype is Datatype.BYTES:
        texts = ["", "x" * feature.max_bytes, "\N{GREEK SMALL LETTER OMEGA}" * (feature.max_bytes // 2)]
        return list(dict.fromkeys(texts))
    low, high = feature.minimum, feature.maximum
    if feature.datatype.is_integer:
        wholes = [*([] if low is None else [ceil(low)]), *([] if high is None else [floor(high)]), 0, 1]
        wholes += [] if feature.datatype is Datatype.UINT8 else [-1]
        return [one for one in dict.fromkeys(wholes) if _permits(feature, one)]
    tiny = _TINIEST[feature.datatype]
    bounds = [float(one) for one in (low, high) if one is not None]
    return [one for one in (*bounds, 0.0, -0.0, tiny, -tiny, 1.0, -1.0) if _permits(feature, one)]


def _permits(feature: Feature, value: float) -> bool:
    low, high = feature.minimum, feature.maximum
    return (low is None or value >= low) and (high is None or value <= high)
