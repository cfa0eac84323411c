"""Values for a schema's features, good ones and bad ones, and the JSON texts that no caller writes by accident."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from understudy.core.schema.tensors import parse_datatype
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID

MARK = "Zq7RawInputMark"
"""Stands in strings of a request's values; no answer may repeat it."""
ENTITY_MARK = "e-"
_BAD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    1e300,
    -1e300,
    2**63,
    -(2**63),
    300,
    "",
    MARK,
    "\ud7ff" + MARK,
    "1",
    [],
    [MARK],
    {},
    {"a": MARK},
    [[[]]],
    "🦊" * 50,
    5e-324,
    -0.0,
)
HOSTILE_TEXTS = (
    b"",
    b"null",
    b"[]",
    b'""',
    b"{",
    b"NaN",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
    b"\x00" * 40,
    b"[" * 1_100 + b"]" * 1_100,
    b'{"a":' * 40 + b"1" + b"}" * 40,
    b'{"entity_id":"x","entity_id":"y","inputs":{}}',
    b'{"entity_id":"x\\u0000","inputs":{}}',
    b'{"entity_id":"\\ud800","inputs":{}}',
    b'{"entity_id":"x","inputs":{"a":18446744073709551616}}',
    b'{"entity_id":"x","inputs":{"a":1e400}}',
    b'{"entity_id":"x","inputs":{"a":-}}',
    b'{"entity_id":"x","inputs":{"a":01}}',
    b"{'entity_id':'x'}",
    b'{"entity_id":"x","inputs":{}} trailing',
    b'{"__proto__":{},"constructor":1,"inputs":{}}',
)


class Inputs(NamedTuple):
    """What a request says of its features, and whether the schema permits it."""

    values: Mapping[str, Any]
    is_good: bool


def inputs_for(schema: Mapping[str, Any], *, per: str | None = None) -> SearchStrategy[Inputs]:
    """Draw inputs of all features, or of those of ``entity`` or ``treatment``: good, or good but for a few places."""
    features = [one for one in schema["features"] if per is None or one.get("per", "entity") == per]
    good = st.fixed_dictionaries(
        {one["name"]: good_value(one) for one in features if "default" not in one},
        optional={one["name"]: good_value(one) for one in features if "default" in one},
    )
    return st.one_of(
        good.map(lambda values: Inputs(values, is_good=True)),
        st.tuples(good, _damage(features)).map(lambda drawn: Inputs(drawn[1](drawn[0]), is_good=False)),
    )


def good_value(feature: Mapping[str, Any]) -> SearchStrategy[Any]:
    """Draw a value that the feature permits."""
    single = _good_single(feature)
    return _nested(single, tuple(feature.get("shape", ())))


def _good_single(feature: Mapping[str, Any]) -> SearchStrategy[Any]:
    if feature.get("enum"):
        return st.sampled_from(feature["enum"])
    datatype = parse_datatype(feature["dtype"])
    if feature["dtype"] == "bool":
        return st.booleans()
    if feature["dtype"] == "string":
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20).map(MARK.__add__)
    if datatype.is_integer:
        limits = np.iinfo(datatype.numpy_dtype)
        least, most = max(feature.get("min", limits.min), limits.min), min(feature.get("max", limits.max), limits.max)
        return st.integers(int(least), int(most))
    least, most = feature.get("min", -1e30), feature.get("max", 1e30)
    if feature["dtype"] == "float32" and _fits(feature):
        return st.floats(least, most, width=32)
    return st.floats(least, most)


def _fits(feature: Mapping[str, Any]) -> bool:
    """Whether hypothesis can draw such floats: it wants bounds that the width has exactly."""
    bounds = (feature.get("min", -1e30), feature.get("max", 1e30))
    return all(float(np.float32(bound)) == bound for bound in bounds)


def _nested(single: SearchStrategy[Any], shape: tuple[int, ...]) -> SearchStrategy[Any]:
    if not shape:
        return single
    flat = st.lists(single, min_size=prod(shape), max_size=prod(shape))
    return flat.map(lambda values: np.array(values, dtype=object).reshape(shape).tolist())


def _damage(features: list[Mapping[str, Any]]) -> SearchStrategy[Any]:
    """Draw a function from good values to bad ones; that may happen to be good all the same."""
    unknown = st.dictionaries(st.text(max_size=6) | st.just("x" * 5_000), bad_values, min_size=1, max_size=3)
    more = unknown.map(lambda other: lambda values: {**values, **other})
    if not features:
        return more
    names = st.sampled_from([feature["name"] for feature in features])
    replace = st.tuples(names, bad_values).map(lambda drawn: {drawn[0]: drawn[1]})
    return st.one_of(
        replace.map(lambda other: lambda values: {**values, **other}),
        more,
        names.map(lambda name: lambda values: {key: value for key, value in values.items() if key != name}),
    )


bad_values: SearchStrategy[Any] = st.sampled_from(_BAD) | st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
entity_ids: SearchStrategy[str] = st.integers(0, 10**9).map(lambda number: f"{ENTITY_MARK}{number}")
bad_entity_ids: SearchStrategy[Any] = st.sampled_from(["", "x" * (MAX_ENTITY_ID + 1), None, 1, [], {}, True, MARK * 30])


def mutated(text: bytes) -> SearchStrategy[bytes]:
    """Draw a JSON text with bytes cut out, doubled, or put in."""
    places = st.integers(0, max(len(text) - 1, 0))
    pieces = st.sampled_from(
        [b"\x00", b"\\u0000", b'"', b"{", b"}", b"[", b",", b":", b"\xff", b"1e999", b"9" * 30, b"\\", b"NaN", b"\xc3"]
    )
    return st.one_of(
        st.tuples(places, pieces).map(lambda drawn: text[: drawn[0]] + drawn[1] + text[drawn[0] :]),
        st.tuples(places, places).map(lambda drawn: text[: min(drawn)] + text[max(drawn) :]),
        st.tuples(places, places).map(lambda drawn: text[: max(drawn)] + text[min(drawn) :]),
        places.map(lambda place: text[:place]),
    )


def dumps(document: Any) -> bytes:
    """Return JSON; what orjson cannot write is written as a string."""
    return orjson.dumps(document, default=str)
