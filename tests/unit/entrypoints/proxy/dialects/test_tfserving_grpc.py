"""What a PredictRequest says is what the same call says over REST."""

from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pytest
from builders import a_version, an_input_schema
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters._proto import understudy_tfserving_pb2 as pb
from understudy.core.requests.row_json import read_row_json
from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.proxy.dialects.dialect import Reading, Target
from understudy.entrypoints.proxy.dialects.tfserving_grpc import TfServingGrpc, number_of, target_of
from understudy.errors import BatchInvalid, InputInvalid, MalformedBody, RequestError

KINDS: dict[str, tuple[str, str, list[Any]]] = {
    "BOOL": ("DT_BOOL", "bool_val", [True, False]),
    "INT8": ("DT_INT8", "int_val", [-128, 127]),
    "INT64": ("DT_INT64", "int64_val", [-(2**63), 2**63 - 1]),
    "UINT8": ("DT_UINT8", "int_val", [0, 255]),
    "FP32": ("DT_FLOAT", "float_val", [0.1, -1e30]),
    "FP64": ("DT_DOUBLE", "double_val", [0.1, -1e300]),
    "BYTES": ("DT_STRING", "string_val", [b"a", "Zoë".encode()]),
}


def version_of(datatype: str = "FP32") -> ModelVersion:
    features = [{"name": name, "dtype": datatype.lower()} for name in ("a", "b")]
    tensors = [{"name": "input", "features": ["a", "b"]}]
    return a_version("1", input_schema=an_input_schema(features=features, tensors=tensors))


def read(request: pb.PredictRequest, version: ModelVersion) -> Reading:
    return TfServingGrpc(request).read(b"", {}, version)


def a_tensor(dtype: str = "DT_FLOAT", shape: Any = (1, 2), **values: Any) -> pb.TensorProto:
    sizes = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in shape])
    return pb.TensorProto(dtype=dtype, tensor_shape=sizes, **values)


def request_of(tensor: pb.TensorProto, **changes: Any) -> pb.PredictRequest:
    return pb.PredictRequest(model_spec=pb.ModelSpec(name="visits"), inputs={"input": tensor}, **changes)


@pytest.mark.parametrize("datatype", KINDS)
def test_listed_and_packed_elements_and_json_are_one_call(datatype):
    dtype, field, values = KINDS[datatype]
    version = version_of(datatype)
    plain = [one.decode() if isinstance(one, bytes) else one for one in values]
    over_rest = read_row_json(orjson.loads(orjson.dumps({"inputs": [plain]})), version.input_schema).request
    forms = [a_tensor(dtype, **{field: values})]
    if datatype != "BYTES":
        content = np.array(values, version.input_schema.tensors[0].datatype.numpy_dtype).tobytes()
        forms.append(a_tensor(dtype, tensor_content=content))

    for form in forms:
        assert list(read(request_of(form), version).request.rows) == list(over_rest.rows)


def test_one_number_stands_for_those_that_follow_it():
    found = read(request_of(a_tensor(shape=(3, 2), float_val=[1, 7])), version_of())

    assert list(found.request.rows) == [{"a": 1.0, "b": 7.0}, {"a": 7.0, "b": 7.0}, {"a": 7.0, "b": 7.0}]


@pytest.mark.parametrize(("inputs", "is_short"), [(1, True), (3, False)])
def test_what_a_short_message_stands_for_decides_where_it_is_read(inputs, is_short):
    tensors = {f"{number}": a_tensor(shape=(1_000,), float_val=[1]) for number in range(inputs)}

    assert TfServingGrpc(pb.PredictRequest(inputs=tensors)).is_short(b"", {}) is is_short


REFUSED: dict[str, tuple[pb.PredictRequest, type[RequestError], str]] = {
    "no inputs": (pb.PredictRequest(), InputInvalid, "expected 1 to 1,024 tensors"),
    "another input": (pb.PredictRequest(inputs={"x": a_tensor(float_val=[1, 2])}), InputInvalid, "/inputs/x/name"),
    "no type": (request_of(a_tensor("DT_INVALID")), InputInvalid, "a type that no version takes"),
    "half": (request_of(a_tensor("DT_HALF", half_val=[1, 2])), InputInvalid, "a type that no version takes"),
    "unknown rank": (request_of(pb.TensorProto(dtype=pb.DT_FLOAT, tensor_shape={"unknown_rank": True})),
                     InputInvalid, "expected a shape that is known"),
    "negative shape": (request_of(a_tensor(shape=(-1, 2), float_val=[1])), InputInvalid, "whole numbers from 0 on"),
    "too many to repeat": (request_of(a_tensor(shape=(256, 129), float_val=[1])), InputInvalid, "has 1 values"),
    "too many to repeat together": (
        pb.PredictRequest(inputs={f"{n}": a_tensor("DT_DOUBLE", (256, 128), double_val=[1]) for n in range(2)}),
        InputInvalid, "more than 32,768 elements are left out"),
    "no values": (request_of(a_tensor()), InputInvalid, "has 0 values, and the shape 2"),
    "no rows": (request_of(a_tensor(shape=(0, 2))), BatchInvalid, "a call has 1 to 256 rows"),
    "packed strings": (request_of(a_tensor("DT_STRING", tensor_content=b"x")), MalformedBody, "come in string_val"),
    "packed too short": (request_of(a_tensor(tensor_content=bytes(7))), MalformedBody, "has 7 bytes, its shape 8"),
    "not finite": (request_of(a_tensor(float_val=[1, float("inf")])), InputInvalid, "input 'input' is NaN"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(name):
    request, error, words = REFUSED[name]

    with pytest.raises(error) as refused:
        read(request, version_of())

    places = [f"{one.pointer}: {one.detail}" for one in refused.value.violations]
    assert words in "; ".join([refused.value.detail, *places])


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        ({}, (None, None)),
        ({"version": {"value": 0}}, (None, None)),
        ({"version": {"value": 7}}, ("7", None)),
        ({"version_label": "stable"}, (None, "stable")),
        ({"version_label": ""}, (None, None)),
    ],
)
def test_version_0_and_an_empty_label_name_none(spec, target):
    assert target_of(pb.ModelSpec(name="visits", **spec)) == Target("visits", *target)


@pytest.mark.parametrize(("label", "number"), [("7", 7), ("007", None), ("v7", None), ("0", None), ("9" * 19, None)])
def test_only_a_name_that_is_written_as_a_number_is_one(label, number):
    assert number_of(label) == number


@given(st.binary(max_size=400), st.integers(0, 400), st.binary(max_size=8))
def test_whatever_bytes_come_are_read_or_refused(noise, place, patch):
    whole = bytearray(request_of(a_tensor(float_val=[1, 2])).SerializeToString())
    whole[place % len(whole) : place % len(whole)] = patch
    for body in (noise, bytes(whole)):
        with suppress(DecodeError, RequestError):
            read(pb.PredictRequest.FromString(body), version_of())
