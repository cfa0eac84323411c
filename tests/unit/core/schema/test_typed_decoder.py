"""What the decoder of a version's inputs takes, it takes as the ordinary reader does."""

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.requests.predict import TypedRequest, parse_predict, read_predict
from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.typed_decoder import MAX_ORDERED_FIELDS, MAX_TYPED_FIELDS
from understudy.errors import UnderstudyError

BIG = 9.2e18
"""A number beyond this may have been an integer of more than 64 bits: the general way decides."""

FEATURES: list[dict[str, Any]] = [
    {"name": "age", "dtype": "float32", "min": 0, "max": 130},
    {"name": "income", "dtype": "float64"},
    {"name": "visits", "dtype": "int32", "min": -2.5, "max": 1e9},
    {"name": "account", "dtype": "int64"},
    {"name": "insured", "dtype": "bool"},
]
NUMBERS = (
    "0", "-0", "1", "130", "131", "-1", "-3", "1.0", "1e2", "0.1", "-0.0", "1e-320", "1e38", "1e39", "1e308", "1e400",
    "0.1000000000000000055511151231257827021181583404541015625", "2147483647", "2147483648", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615",
    "18446744073709551616", "12345678901234567890123", "9.3e18", "-9.3e18", "01", "1.", ".5", "+1", "NaN", "Infinity",
    "true", "false", "null", '"1"', "[1]", "{}", "1" * 400, "0." + "123456789" * 30,
)  # fmt: skip
TEXTS = ("a", "customer 42", "x" * 255, "x" * 256, "", "a:b", "a\\u0062", "\\u0000", "é", "\x7f", "a\tb", "\\ud800")


def a_schema(dtype: str = "float64", features: list[dict[str, Any]] = FEATURES) -> InputSchema:
    names = [feature["name"] for feature in features]
    return compile_input_schema({"features": features, "tensors": [{"name": "t", "dtype": dtype, "features": names}]})


number = st.sampled_from(NUMBERS) | st.floats(allow_nan=False).map(repr) | st.integers(-(2**66), 2**66).map(str)
space = st.sampled_from(["", "", "", " ", "\n", "\t\r"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """JSON texts around what a good one is: most have all inputs once and in any order."""
    likely = {"age": "37.5", "income": "-1e3", "visits": "3", "account": "9007199254740993", "insured": "true"}
    inputs = [(name, draw(number) if draw(st.integers(0, 7)) == 0 else value) for name, value in likely.items()]
    inputs = draw(st.permutations(inputs))
    if draw(st.integers(0, 9)) == 0:
        inputs = inputs[1:] if draw(st.booleans()) else [*inputs, draw(st.sampled_from([("other", "1"), inputs[0]]))]
    gap = draw(space)
    members = ",".join(f'{gap}"{name}"{gap}:{value}' for name, value in inputs)
    fields = [("inputs", "{" + members + gap + "}"), ("entity_id", '"' + draw(st.sampled_from(TEXTS)) + '"')]
    if draw(st.integers(0, 2)) == 0:
        fields.append(("category", draw(st.sampled_from(["null", '"vip"', '"a:b"', "7", '"' + "x" * 256 + '"']))))
    if draw(st.integers(0, 9)) == 0:
        fields.append(draw(st.sampled_from([("extra", "1"), fields[0], fields[-1]])))
    text = "{" + ",".join(f'{gap}"{name}":{gap}{value}' for name, value in draw(st.permutations(fields))) + "}" + gap
    return text.encode(errors="surrogatepass") + (b"\xff" if draw(st.integers(0, 29)) == 0 else b"")


def outcome(body: bytes, schema: InputSchema, *, typed: bool) -> object:
    """Return everything that a version is given of a body, or why it is given nothing."""
    decoder = schema.decoder if typed else None
    version: Any = type("Version", (), {"input_schema": schema})
    try:
        request = read_predict(body, decoder)
        return request.entity_id, request.category, request.assemble(version, None), dict(request.inputs)
    except UnderstudyError as problem:
        return type(problem), problem.detail, getattr(problem, "violations", ())


@pytest.mark.deep
@settings(max_examples=600)
@given(bodies(), st.sampled_from(["float32", "float64"]))
def test_reading_in_one_pass_gives_what_reading_step_by_step_gives(body, dtype):
    schema = a_schema(dtype)
    assert schema.decoder is not None
    assert outcome(body, schema, typed=True) == outcome(body, schema, typed=False)


def many_alike(**each: Any) -> list[dict[str, Any]]:
    return [{"name": f"f{place}", **each} for place in range(MAX_ORDERED_FIELDS + 1)]


SPOILT: dict[str, Callable[[list[tuple[str, str]]], list[tuple[str, str]]]] = {
    "not at all": lambda inputs: inputs,
    "one missing": lambda inputs: inputs[1:],
    "one twice": lambda inputs: [*inputs, inputs[0]],
    "one twice and one missing": lambda inputs: [*inputs[1:], inputs[1]],
    "one unknown": lambda inputs: [*inputs, ("other", "1")],
    "one of another name": lambda inputs: [*inputs[1:], ("other", "1")],
}


@pytest.mark.deep
@settings(max_examples=100)
@given(
    st.randoms(use_true_random=False),
    number,
    st.sampled_from(list(SPOILT)),
    st.sampled_from(TEXTS),
    st.sampled_from([{"dtype": "float32"}, {"dtype": "float64", "min": -1, "max": 130}, {"dtype": "int32"}]),
)
def test_many_inputs_that_are_alike_are_read_in_any_order_as_step_by_step(chance, value, spoilt, entity_id, each):
    schema = a_schema("float64", many_alike(**each))
    inputs = [(feature.name, "1") for feature in schema.features]
    chance.shuffle(inputs)
    inputs[1] = (inputs[1][0], value)
    members = ",".join(f'"{name}":{one}' for name, one in SPOILT[spoilt](inputs))
    body = f'{{"entity_id":"{entity_id}","inputs":{{{members}}}}}'.encode()

    assert outcome(body, schema, typed=True) == outcome(body, schema, typed=False)


def test_many_inputs_that_are_alike_are_read_in_one_pass_though_in_another_order():
    schema = a_schema("float32", many_alike(dtype="float32"))
    names = [feature.name for feature in schema.features]
    body = json.dumps({"entity_id": "a", "inputs": {name: int(name[1:]) for name in reversed(names)}}).encode()

    request = read_predict(body, schema.decoder)

    assert isinstance(request, TypedRequest)
    assert struct.unpack(f"<{len(names)}f", request.assembled.row[0]) == tuple(range(len(names)))


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53), st.booleans())
def test_good_bodies_are_read_in_one_pass_to_the_last_bit(income, account, insured):
    schema = a_schema(features=[FEATURES[1], FEATURES[3], FEATURES[4]])
    body = json.dumps({"entity_id": "a", "inputs": {"income": income, "account": account, "insured": insured}}).encode()

    request = read_predict(body, schema.decoder)

    is_typed = -9.2e18 <= income <= 9.2e18  # beyond it, it may be an integer that does not fit
    assert isinstance(request, TypedRequest) is is_typed
    if is_typed:
        assert struct.unpack("<3d", request.assemble(version_of(schema), None).row[0]) == (income, account, insured)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_whole_number_of_64_bits_is_read_exactly(account):
    schema = a_schema("int64", [FEATURES[3]])
    request = read_predict(b'{"entity_id":"a","inputs":{"account":%d}}' % account, schema.decoder)

    assert isinstance(request, TypedRequest)
    assert struct.unpack("<q", request.assemble(version_of(schema), None).row[0]) == (account,)


def version_of(schema: InputSchema) -> Any:
    return type("Version", (), {"input_schema": schema})


def test_versions_that_take_the_same_inputs_share_a_decoder_and_others_read_again():
    same, other = a_schema(), a_schema(features=FEATURES[::-1])
    body = json.dumps(
        {"entity_id": "a", "inputs": {"age": 1, "income": 2, "visits": 3, "account": 4, "insured": True}}
    ).encode()

    request = read_predict(body, same.decoder)

    assert a_schema().decoder is same.decoder
    assert isinstance(request, TypedRequest)
    assert struct.unpack("<5d", request.assemble(version_of(other), None).row[0]) == (1, 4, 3, 2, 1)
    assert request.assemble(version_of(other), None) == parse_predict(body).assemble(version_of(other), None)


@pytest.mark.parametrize(
    "features",
    [
        [{**FEATURES[0], "default": 3}],
        [{"name": "city", "dtype": "string"}],
        [{"name": "size", "dtype": "int32", "enum": [1, 2]}],
        [{**FEATURES[0], "source": "store"}],
        [{"name": 'height 5" up', "dtype": "float32"}],
        [{"name": "a\\b", "dtype": "float32"}],
        [{"name": "a:b", "dtype": "float32"}],
        [{"name": "größe", "dtype": "float32"}],
        [{"name": "\ud800", "dtype": "float32"}],
        [{"name": "amount", "dtype": "float32", "max": 2**53}],
        [{"name": "amount", "dtype": "float32", "min": -(2**60)}],
        [{"name": "history", "dtype": "float32", "shape": [2]}],
        [{"name": f"f{place}", "dtype": "float32", "min": -place} for place in range(MAX_TYPED_FIELDS + 1)],
    ],
)
def test_there_is_no_decoder_where_bodies_would_often_not_fit_it(features):
    dtype = "string" if features[0]["dtype"] == "string" else "float32"
    assert a_schema(dtype, features).decoder is None


@given(
    st.lists(
        st.one_of(
            st.floats(width=32),
            st.sampled_from([0.0, -0.0, 1.0, 1e-45, -9e18, 9e18, 9.1e18, 1e19, -1e19, 3e38, math.nan, math.inf]),
        ),
        min_size=2,
        max_size=2,
    ),
    st.sampled_from([{}, {"min": 0}, {"max": 1}, {"min": 0, "max": 1}, {"min": -1e9}]),
)
def test_packed_numbers_are_taken_as_they_are_where_they_would_be_as_json(values: list[float], bounds: dict[str, Any]):
    features = [{"name": name, "dtype": "float32", **bounds} for name in "ab"]
    tensors = [{"name": "input", "dtype": "float32", "features": ["a", "b"]}]
    decoder = compile_input_schema({"features": features, "tensors": tensors, "batch": True}).decoder
    assert decoder is not None
    content = struct.pack("<2f", *values)
    least, greatest = bounds.get("min", -math.inf), bounds.get("max", math.inf)
    are_good = all(max(least, -BIG) <= one <= min(greatest, BIG) for one in struct.unpack("<2f", content))

    assert decoder.rows_in(content) == ((content,) if are_good else None)
