"""Of a long message the event loop reads its head alone; all of it is parsed by the thread that reads it."""

from typing import Any

import pytest
from builders import a_version, an_input_schema
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tfserving
from understudy.entrypoints.proxy.dialects.open_inference_grpc import OpenInferenceGrpc
from understudy.entrypoints.proxy.dialects.protobuf import INLINE_MESSAGE_BYTES, MAX_FIELDS, parse, parse_head
from understudy.entrypoints.proxy.dialects.tfserving_examples import ExamplesGrpc
from understudy.entrypoints.proxy.dialects.tfserving_grpc import TfServingGrpc
from understudy.errors import BatchInvalid, InputInvalid, MalformedBody

INFER, PREDICT, CLASSIFY = oip.ModelInferRequest, tfserving.PredictRequest, tfserving.ClassificationRequest
VERSION = a_version(
    "1",
    input_schema=an_input_schema(
        features=[{"name": name, "dtype": "fp32"} for name in ("a", "b")],
        tensors=[{"name": "input", "features": ["a", "b"]}],
    ),
)
EMPTY_INPUT, EMPTY_EXAMPLE = b"\x2a\x00", b"\x0a\x00"


def infer() -> oip.ModelInferRequest:
    request = INFER(model_name="visits", model_version="7", raw_input_contents=[bytes(8)])
    request.inputs.add(name="input", datatype="FP32", shape=[1, 2])
    return request


def predict() -> tfserving.PredictRequest:
    shape = tfserving.TensorShapeProto(dim=[tfserving.TensorShapeProto.Dim(size=size) for size in (1, 2)])
    tensor = tfserving.TensorProto(dtype=tfserving.DT_FLOAT, tensor_shape=shape, float_val=[1, 2])
    return PREDICT(model_spec={"name": "visits"}, inputs={"input": tensor})


def classify() -> tfserving.ClassificationRequest:
    request = CLASSIFY(model_spec={"name": "visits"})
    example = request.input.example_list.examples.add()
    for name in ("a", "b"):
        example.features.feature[name].float_list.value.append(1.5)
    return request


def sized(tag: int, content: bytes) -> bytes:
    length, digits = len(content), bytearray()
    while length > 0x7F:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([tag]) + bytes([*digits, length]) + content


def head_of(dialect: type[Any], request: Message) -> Any:
    return parse_head(type(request), request.SerializeToString(), dialect.HEAD)


DIALECTS = {
    "infer": (OpenInferenceGrpc, infer),
    "predict": (TfServingGrpc, predict),
    "classify": (ExamplesGrpc, classify),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_message_that_is_parsed_later_is_the_same_call(name):
    dialect, made = DIALECTS[name]
    request, message = made(), made().SerializeToString()

    later = dialect(head_of(dialect, request), is_whole=False)
    found = later.read(message, {}, VERSION).request

    assert list(found.rows) == list(dialect(request).read(message, {}, VERSION).request.rows) != []
    assert not later.is_short(message + bytes(40_000), {})


def test_whose_answer_is_asked_for_is_known_of_the_head():
    assert (
        OpenInferenceGrpc(head_of(OpenInferenceGrpc, infer()), is_whole=False).target
        == OpenInferenceGrpc(infer()).target
    )
    assert head_of(TfServingGrpc, predict()).model_spec == predict().model_spec
    assert head_of(ExamplesGrpc, classify()).model_spec == classify().model_spec


@pytest.mark.parametrize(
    ("dialect", "head", "message", "kind"),
    [
        (OpenInferenceGrpc, INFER(), EMPTY_INPUT * 1_025, InputInvalid),
        (OpenInferenceGrpc, INFER(), b"", InputInvalid),
        (OpenInferenceGrpc, INFER(), EMPTY_INPUT + b"\x32\x00" * 1_025, InputInvalid),
        (TfServingGrpc, PREDICT(), b"", InputInvalid),
        (ExamplesGrpc, CLASSIFY(), sized(0x12, sized(0x0A, EMPTY_EXAMPLE * 20_000)), BatchInvalid),
        (OpenInferenceGrpc, INFER(), b"\x2a\xff", MalformedBody),
        (TfServingGrpc, PREDICT(), b"\x12\xff", MalformedBody),
        (ExamplesGrpc, CLASSIFY(), b"\x12\xff", MalformedBody),
    ],
)
def test_what_is_wrong_with_the_rest_is_said_when_it_is_read(dialect, head, message, kind):
    later = dialect(head, is_whole=False)

    with pytest.raises(kind):
        later.read(message, {}, VERSION)


parameters = st.dictionaries(
    st.text(max_size=3), st.fixed_dictionaries({"int64_param": st.integers(-(2**63), 2**63 - 1)}), max_size=3
)
tensors = st.fixed_dictionaries(
    {"name": st.text(max_size=200), "shape": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)}
)
requests = st.builds(
    lambda fields: INFER(**fields),
    st.fixed_dictionaries(
        {"model_name": st.text(max_size=300), "id": st.text(max_size=3), "inputs": st.lists(tensors, max_size=4)},
        optional={
            "model_version": st.text(max_size=3),
            "parameters": parameters,
            "raw_input_contents": st.lists(st.binary(max_size=40), max_size=3),
        },
    ),
)
foreign = st.sampled_from([b"", b"\xa0\x06\x05", b"\xa5\x06abcd", b"\xa1\x06abcdefgh", sized(0x7A, b"x" * 300)])
"""Fields that the message has not, one of each kind."""


@given(requests, foreign, foreign)
def test_a_head_is_the_message_without_its_other_fields(request_, before, after):
    head = parse_head(INFER, before + request_.SerializeToString() + after, OpenInferenceGrpc.HEAD)

    assert head == INFER(model_name=request_.model_name, model_version=request_.model_version)


@given(requests, st.data())
def test_what_cannot_be_parsed_has_no_head_or_is_refused_with_the_rest(request_, data):
    message = bytearray(request_.SerializeToString() or b"\x00")
    message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        whole = parse(INFER, bytes(message))
    except MalformedBody:
        return
    try:
        head = parse_head(INFER, bytes(message), OpenInferenceGrpc.HEAD)
    except MalformedBody:
        assert any(byte & 7 in (3, 4) for byte in message)  # perhaps a group, which is taken in short messages alone
    else:
        assert (head.model_name, head.model_version) == (whole.model_name, whole.model_version)


@pytest.mark.parametrize(
    "message",
    [
        b"\x2a",
        b"\x2a\x05a",
        b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff" * 11,
        b"\x80",
        b"\x0d\x00\x00",
        b"\x09\x00",
        b"\x2b\x2c",
        b"\x0a\x02\xff\xfe",
    ],
)
def test_what_is_no_message_has_no_head(message):
    with pytest.raises(MalformedBody, match="the message is no ModelInferRequest"):
        parse_head(INFER, message, OpenInferenceGrpc.HEAD)


def test_a_long_message_of_more_fields_than_a_call_has_is_refused_unparsed():
    assert parse_head(INFER, EMPTY_INPUT * MAX_FIELDS, OpenInferenceGrpc.HEAD) == INFER()
    with pytest.raises(MalformedBody, match="more than 4,096 fields"):
        parse_head(INFER, EMPTY_INPUT * (MAX_FIELDS + 1), OpenInferenceGrpc.HEAD)


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_head_that_is_long_itself_is_refused_unparsed(pieces):
    names_model = sized(0x0A, b"\x12\x00" * ((INLINE_MESSAGE_BYTES // pieces - 4) // 2))  # of empty versions
    short, rest = names_model * pieces, sized(0x12, b"x" * 100)

    assert parse_head(PREDICT, short + rest, TfServingGrpc.HEAD).HasField("model_spec")
    with pytest.raises(MalformedBody, match="what names the model is longer than 32,768 bytes"):
        parse_head(PREDICT, short + rest + names_model, TfServingGrpc.HEAD)
