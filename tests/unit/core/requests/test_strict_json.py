import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.requests.predict import PredictRequest, parse_predict, parse_predict_batch
from understudy.core.requests.strict_json import MAX_DEPTH, parse
from understudy.errors import BatchInvalid, EntityIdInvalid, InputInvalid, MalformedBody

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.deep
@given(json_values, st.sampled_from([None, 2]))
def test_what_is_json_is_read_as_it_is(value, indent):
    body = json.dumps(value, indent=indent).encode()

    assert parse(body) == orjson.loads(body)


@given(st.text() | st.binary())
def test_any_bytes_are_read_or_refused_with_a_position(text):
    body = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")

    try:
        parse(body)
    except MalformedBody as refused:
        assert "line " in refused.detail
        assert "(byte " in refused.detail


@pytest.mark.parametrize(
    ("body", "says", "byte"),
    [
        (b"", "empty", 0),
        (b"{", "", 1),
        (b'{"a":NaN}', "", 5),
        (b'{"a":1e400}', "infinity", 5),
        (b'{"a":1,"a":2}', "repeated", 7),
        (b'{"a":1,"b":{"c":":","c":2}}', "repeated", 20),
        (b'{"a":1,"\\u0061":2}', "repeated", 7),
        (b'{"a":"x\\u0000"}', "U+0000", 5),
        (b'{"\\u0000":1}', "U+0000", 1),
        (b'{"a":18446744073709551616}', "64 bits", 5),
        (b'{"a":[-9223372036854775809]}', "64 bits", 6),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "deeper", MAX_DEPTH),
        (b'{"a":"\xff"}', "UTF-8", 6),
        (b"\xef\xbb\xbf{}", "", 0),
        ('{"é": 1,}'.encode(), "", 8),
    ],
)
def test_what_two_readers_could_read_differently_is_refused_where_it_stands(body, says, byte):
    with pytest.raises(MalformedBody) as refused:
        parse(body)

    assert says in refused.value.detail
    assert refused.value.detail.endswith(f"(byte {byte})")


@pytest.mark.parametrize("body", [b'{"a":"x:y"}', b'{"a":"\\\\u0000"}', b'{"a":1e30}', b'{"a":18446744073709551615}'])
def test_what_only_looks_suspicious_is_accepted(body):
    assert parse(body) == orjson.loads(body)


def test_a_predict_request_is_read():
    request = parse_predict(b'{"entity_id":"c:42","inputs":{"age":41},"category":"vip"}')

    assert request == PredictRequest("c:42", {"age": 41}, "vip")


@pytest.mark.parametrize(
    ("body", "error", "pointers"),
    [
        (b'{"inputs":{}}', EntityIdInvalid, ["/entity_id"]),
        (b'{"entity_id":"","inputs":{}}', EntityIdInvalid, ["/entity_id"]),
        (b'{"entity_id":5,"inputs":{}}', EntityIdInvalid, ["/entity_id"]),
        (b'{"entity_id":"' + b"x" * 256 + b'","inputs":{}}', EntityIdInvalid, ["/entity_id"]),
        (b'{"entity_id":"a"}', InputInvalid, ["/inputs"]),
        (b'{"entity_id":"a","inputs":[]}', InputInvalid, ["/inputs"]),
        (b'{"entity_id":"a","inputs":{},"category":1}', InputInvalid, ["/category"]),
        (b'{"entity_id":"a","inputs":{},"version/x":1}', InputInvalid, ["/version~1x"]),
        (b'{"entity_id":null,"input":{}}', EntityIdInvalid, ["/entity_id", "/inputs", "/input"]),
    ],
)
def test_each_field_that_is_wrong_is_named(body, error, pointers):
    with pytest.raises(InputInvalid) as refused:
        parse_predict(body)

    assert type(refused.value) is error
    assert [violation.pointer for violation in refused.value.violations] == pointers


def test_a_body_that_is_no_object_is_malformed():
    for body in (b"[]", b"5", b'"x"', b"null"):
        with pytest.raises(MalformedBody):
            parse_predict(body)


def test_a_batch_keeps_its_good_members():
    good, bad, worse = parse_predict_batch(b'{"entities":[{"entity_id":"a","inputs":{}},{"inputs":{}},7]}')

    assert good == PredictRequest("a", {})
    assert isinstance(bad, EntityIdInvalid)
    assert isinstance(worse, MalformedBody)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"entities":[]}',
        b'{"entities":{}}',
        b'{"entities":[1],"x":1}',
        b'{"entities":[' + b"1," * 256 + b"1]}",
    ],
)
def test_a_batch_that_is_none_is_refused(body):
    with pytest.raises(BatchInvalid):
        parse_predict_batch(body)
