"""What a ModelInferRequest says is what the same call says over REST."""

from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pytest
from builders import a_version, an_input_schema
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.core.requests.infer_body import read_infer
from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.proxy.dialects.dialect import Reading
from understudy.entrypoints.proxy.dialects.open_inference_grpc import OpenInferenceGrpc
from understudy.errors import BatchInvalid, InputInvalid, MalformedBody, NotOffered, RequestError

KINDS: dict[str, tuple[str, list[Any]]] = {
    "bool_contents": ("BOOL", [True, False]),
    "int_contents": ("INT8", [-128, 127]),
    "int64_contents": ("INT64", [-(2**63), 2**63 - 1]),
    "uint_contents": ("UINT8", [0, 255]),
    "fp32_contents": ("FP32", [0.1, -1e30]),
    "fp64_contents": ("FP64", [0.1, -1e300]),
    "bytes_contents": ("BYTES", [b"a", "Zoë".encode()]),
}


def version_of(datatype: str) -> ModelVersion:
    features = [{"name": name, "dtype": datatype.lower()} for name in ("a", "b")]
    tensors = [{"name": "input", "features": ["a", "b"]}]
    return a_version("1", input_schema=an_input_schema(features=features, tensors=tensors))


def read(request: pb.ModelInferRequest, version: ModelVersion) -> Reading:
    return OpenInferenceGrpc(request).read(b"", {}, version)


def request_of(datatype: str, shape: Any = (1, 2), **contents: Any) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="visits")
    request.inputs.add(name="input", datatype=datatype, shape=shape, contents=contents)
    return request


@pytest.mark.parametrize("field", KINDS)
def test_listed_and_raw_elements_and_json_are_one_call(field):
    datatype, values = KINDS[field]
    version = version_of(datatype)
    plain = [one.decode() if isinstance(one, bytes) else one for one in values]
    document = {"inputs": [{"name": "input", "datatype": datatype, "shape": [1, 2], "data": plain}]}
    listed = request_of(datatype, **{field: values})
    raw = request_of(datatype)
    (spec,) = version.input_schema.tensors
    assembled = read_infer(orjson.dumps(document), None, version.input_schema).request
    raw.raw_input_contents.append(
        b"".join(len(one).to_bytes(4, "little") + one for one in values)
        if datatype == "BYTES"
        else np.array(values, spec.datatype.numpy_dtype).tobytes()
    )

    assert list(read(listed, version).request.rows) == list(read(raw, version).request.rows) == list(assembled.rows)


def many(count: int) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest()
    for place in range(count):
        request.inputs.add(name=f"i{place}", datatype="FP32")
    return request


def both() -> pb.ModelInferRequest:
    request = request_of("FP32", fp32_contents=[1, 2])
    request.raw_input_contents.append(bytes(8))
    return request


def with_raw(*contents: bytes, datatype: str = "FP32") -> pb.ModelInferRequest:
    request = request_of(datatype)
    request.raw_input_contents.extend(contents)
    return request


def with_output(**parameters: Any) -> pb.ModelInferRequest:
    request = request_of("FP32", fp32_contents=[1, 2])
    request.outputs.add(name="scores", parameters=parameters)
    return request


REFUSED: dict[str, tuple[pb.ModelInferRequest, type[RequestError], str]] = {
    "no inputs": (pb.ModelInferRequest(), InputInvalid, "/inputs: expected 1 to"),
    "too many inputs": (many(1_025), InputInvalid, "expected 1 to 1,024 tensors"),
    "too many outputs": (
        pb.ModelInferRequest(inputs=[{}], outputs=[{}] * 1_025),
        InputInvalid,
        "at most 1,024 tensors",
    ),
    "negative shape": (request_of("FP32", (-1, 2), fp32_contents=[1, 2]), InputInvalid, "whole numbers from 0 on"),
    "huge shape": (request_of("FP32", (2**62, 2), fp32_contents=[1, 2]), InputInvalid, "has 2 values"),
    "65 dimensions": (request_of("FP32", (1,) * 65, fp32_contents=[1]), InputInvalid, "more than 64 dimensions"),
    "no rows": (request_of("FP32", (0, 2)), BatchInvalid, "a call has 1 to 256 rows"),
    "too many rows": (
        request_of("FP32", (257, 2), fp32_contents=[1] * 514),
        BatchInvalid,
        "input 'input' has 257",
    ),
    "other datatype": (request_of("FP64", fp64_contents=[1, 2]), InputInvalid, "is FP32, not FP64"),
    "no datatype of ours": (request_of("BF16", fp32_contents=[1, 2]), InputInvalid, "that no version takes"),
    "too few values": (request_of("FP32", fp32_contents=[1]), InputInvalid, "has 1 values, and [1, 2] has 2"),
    "values elsewhere": (request_of("FP32", fp64_contents=[1, 2]), InputInvalid, "has 0 values"),
    "beyond the datatype": (request_of("INT8", int_contents=[1, 300]), InputInvalid, "outside INT8"),
    "raw too short": (with_raw(bytes(7)), MalformedBody, "has 7 bytes, its shape 8"),
    "raw for two": (with_raw(bytes(8), bytes(8)), MalformedBody, "2 raw_input_contents for 1 inputs"),
    "both": (both(), MalformedBody, "contents beside raw_input_contents"),
    "string over the end": (with_raw(b"\xff\0\0\0a", datatype="BYTES"), MalformedBody, "longer than the rest"),
    "classification": (with_output(classification={"int64_param": 3}), NotOffered, "classification"),
    "shared memory": (with_output(shared_memory_region={"string_param": "x"}), NotOffered, "shared memory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(name):
    request, error, words = REFUSED[name]
    datatype = request.inputs[0].datatype if name in {"beyond the datatype", "string over the end"} else "FP32"

    with pytest.raises(error) as refused:
        read(request, version_of(datatype))

    places = [f"{one.pointer}: {one.detail}" for one in refused.value.violations]
    assert words in "; ".join([refused.value.detail, *places])


@given(st.binary(max_size=400), st.integers(0, 400), st.binary(max_size=8))
def test_whatever_bytes_come_are_read_or_refused(noise, place, patch):
    request = both() if len(noise) % 2 else request_of("FP32", fp32_contents=[1, 2])
    whole = bytearray(request.SerializeToString())
    whole[place % len(whole) : place % len(whole)] = patch
    for body in (noise, bytes(whole)):
        with suppress(DecodeError, RequestError):
            read(pb.ModelInferRequest.FromString(body), version_of("FP32"))
