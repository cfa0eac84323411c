import numpy as np
import orjson
import pytest

from understudy.core.schema.cached_output import (
    MAX_OUTPUT_BYTES,
    decode_with_output,
    encode_with_output,
    is_cacheable_output,
)
from understudy.core.schema.outputs import Origin, Prediction, decode_cached, encode_cached
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import Datatype

SCHEMA = OutputSchema()
ORIGIN = Origin(7, "ab" * 8, "cd" * 32)
NUMBERS = RowOutput("p\n", Datatype.FP32, (2,), np.array([0.1, 10.0], "<f4").tobytes())
WORDS = RowOutput("", Datatype.BYTES, (2,), b"\1\0\0\0\n\0\0\0\0")


def a_prediction(output: RowOutput) -> Prediction:
    return Prediction(b'{"score":0.25}', 0.25, output)


@pytest.mark.parametrize("output", [NUMBERS, WORDS])
def test_a_value_gives_back_the_prediction_and_every_byte_of_its_output(output):
    value = encode_with_output(ORIGIN, a_prediction(output))

    assert decode_with_output(SCHEMA, ORIGIN, value) == a_prediction(output)


@pytest.mark.parametrize("output", [NUMBERS, WORDS])
def test_a_value_that_is_cut_or_of_another_origin_is_a_miss(output):
    value = encode_with_output(ORIGIN, a_prediction(output))

    assert [length for length in range(len(value)) if decode_with_output(SCHEMA, ORIGIN, value[:length])] == []
    assert decode_with_output(SCHEMA, ORIGIN._replace(input_hash="ef" * 32), value) is None


@pytest.mark.parametrize(
    "head",
    [b"{", b"[]", b"{}", b'{"name":"p","datatype":"FP33","shape":[2]}', b'{"name":"p","datatype":"FP32","shape":[-2]}'],
)
def test_a_value_with_another_head_is_a_miss(head):
    text, _, content = encode_with_output(ORIGIN, a_prediction(NUMBERS)).split(b"\n", 2)

    assert decode_with_output(SCHEMA, ORIGIN, b"\n".join((text, head, content))) is None


def test_the_two_kinds_of_values_are_not_taken_for_each_other():
    plain = Prediction(b'{"score":0.25}', 0.25)

    assert decode_with_output(SCHEMA, ORIGIN, encode_cached(ORIGIN, plain)) is None
    assert decode_cached(SCHEMA, ORIGIN, encode_with_output(ORIGIN, a_prediction(NUMBERS))) is None


def test_a_long_output_is_not_cached():
    longest = RowOutput("p", Datatype.UINT8, (MAX_OUTPUT_BYTES,), bytes(MAX_OUTPUT_BYTES))

    assert is_cacheable_output(a_prediction(longest))
    assert not is_cacheable_output(a_prediction(longest.but(content=bytes(MAX_OUTPUT_BYTES + 1))))
    assert not is_cacheable_output(Prediction(b'{"score":0.25}', 0.25))


@pytest.mark.parametrize(
    ("schema", "output"),
    [
        (OutputSchema(datatype=Datatype.FP64), NUMBERS),
        (OutputSchema(shape=(3,)), NUMBERS),
        (SCHEMA, NUMBERS.but(content=np.array([0.1, np.inf], "<f4").tobytes())),
        (SCHEMA, NUMBERS.but(content=np.array([np.nan, 1], "<f4").tobytes())),
        (SCHEMA, WORDS.but(content=b"\1\0\0\0\xff\0\0\0\0")),
        (SCHEMA, WORDS.but(content=b"\1\0\0\0\0\0\0\0\0")),
    ],
)
def test_an_output_that_no_model_server_may_answer_is_a_miss(schema, output):
    assert decode_with_output(schema, ORIGIN, encode_with_output(ORIGIN, a_prediction(output))) is None


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2)])
def test_a_dimension_of_one_more_is_taken_as_from_a_model_server(shape):
    value = encode_with_output(ORIGIN, a_prediction(NUMBERS.but(shape=shape)))

    assert decode_with_output(OutputSchema(shape=(2,), score_index=0), ORIGIN, value) is not None


BESIDE = (
    RowOutput("rank", Datatype.FP64, (), np.array([np.nan], "<f8").tobytes()),
    RowOutput("raw", Datatype.BYTES, (1,), b"\3\0\0\0\xff\x00\n"),
)
WITH_MORE = OutputSchema(tensor="p", also=("rank", "raw"))


def test_outputs_beside_the_judged_one_are_kept_as_they_are():
    value = encode_with_output(ORIGIN, a_prediction(NUMBERS.but(beside=BESIDE)))

    assert decode_with_output(WITH_MORE, ORIGIN, value) == a_prediction(NUMBERS.but(beside=BESIDE))
    assert [length for length in range(len(value)) if decode_with_output(WITH_MORE, ORIGIN, value[:length])] == []
    assert decode_with_output(WITH_MORE, ORIGIN, value + b"x") is None


@pytest.mark.parametrize("beside", [(), BESIDE[:1], BESIDE[::-1], (BESIDE[0], BESIDE[1].but(content=b"\4\0\0\0abc"))])
def test_a_value_whose_outputs_are_not_those_of_the_schema_is_a_miss(beside):
    assert (
        decode_with_output(WITH_MORE, ORIGIN, encode_with_output(ORIGIN, a_prediction(NUMBERS.but(beside=beside))))
        is None
    )


@pytest.mark.parametrize("size", [-1, "x", None, 1.5, 10**9])
def test_a_value_with_another_size_of_an_output_is_a_miss(size):
    text, head, content = encode_with_output(ORIGIN, a_prediction(NUMBERS.but(beside=BESIDE))).split(b"\n", 2)
    for change in ({"bytes": size}, {"beside": [{"name": "rank", "datatype": "FP64", "shape": [], "bytes": size}]}):
        changed = orjson.dumps({**orjson.loads(head), **change})

        assert decode_with_output(WITH_MORE, ORIGIN, b"\n".join((text, changed, content))) is None


def test_outputs_that_are_long_together_are_not_cached():
    long = RowOutput("raw", Datatype.UINT8, (MAX_OUTPUT_BYTES,), bytes(MAX_OUTPUT_BYTES))

    assert not is_cacheable_output(a_prediction(NUMBERS.but(beside=(long,))))
