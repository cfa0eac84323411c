"""Tensors that are not what they say, over REST and gRPC: each call is refused by its tensor's name, and is no row."""

from typing import Any

import grpc
import numpy as np
import orjson
import pytest
from worlds.grpc import ROWS, refused, start, up

from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tfs

__all__ = ["start", "up"]
INFER, PREDICT = "/inference.GRPCInferenceService/ModelInfer", "/tensorflow.serving.PredictionService/Predict"
RAW = ROWS.tobytes()
NAMES = b"\1\0\0\0a\1\0\0\0b"
LARGEST = 2**63 - 1
WRONG: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "datatype": ({"datatype": "FP64"}, RAW, "input"),
    "no datatype": ({"datatype": "FP7"}, RAW, "input"),
    "another shape": ({"shape": [2, 3]}, RAW, "input"),
    "shape of fewer elements": ({"shape": [1, 2]}, RAW, "input"),
    "negative shape": ({"shape": [-1, 2]}, RAW, "input"),
    "two negative sizes": ({"shape": [-2, -1]}, RAW, "input"),
    "a largest size": ({"shape": [LARGEST, 2]}, RAW, "input"),
    "sizes whose product is no 64 bits": ({"shape": [LARGEST, LARGEST]}, RAW, "input"),
    "65 sizes": ({"shape": [1] * 65}, RAW, "input"),
    "no rows": ({"shape": [0, 2]}, b"", "input"),
    "short bytes": ({}, RAW[:-1], "input"),
    "no bytes": ({}, b"", "input"),
    "long bytes": ({}, RAW + b"\0", "input"),
    "NaN": ({}, np.array([1, np.nan, 2, 3], "<f4").tobytes(), "input"),
    "unknown input": ({"name": "nothing"}, RAW, "nothing"),
}
"""What is wrong with the tensor of the rows: its fields, its bytes, and the name that is told."""
WRONG_NAMES = {
    "a length over the end": b"\1\0\0\0a\xff\xff\xff\xffb",
    "a length that is cut": b"\1\0\0\0a\1\0",
    "one string too few": b"\1\0\0\0a",
    "one string too many": NAMES + b"\1\0\0\0c",
    "no UTF-8": b"\1\0\0\0a\1\0\0\0\xff",
    "U+0000": b"\1\0\0\0a\1\0\0\0\0",
}
"""Of the strings that name the rows' entities."""
TENSOR = {"name": "input", "datatype": "FP32", "shape": [2, 2]}
ENTITIES = {"name": "entity_id", "datatype": "BYTES", "shape": [2]}


async def ask_rest(proxy: Any, *tensors: tuple[dict[str, Any], bytes], **changes: Any) -> Any:
    """Send tensors as Triton's client does, as bytes behind the JSON."""
    listed = [{**tensor, "parameters": {"binary_data_size": len(content)}} for tensor, content in tensors]
    text = orjson.dumps({"inputs": listed, **changes})
    body = text + b"".join(content for _, content in tensors)
    return await proxy.client.post(
        "/v2/models/visits/infer", content=body, headers={"inference-header-content-length": str(len(text))}
    )


def assert_names(response: Any, name: str) -> None:
    body = response.json()
    assert 400 <= response.status_code < 500, body
    assert name in body["error"]


async def assert_refuses(client: Any, request: oip.ModelInferRequest, name: str) -> None:
    status, sentence, _ = await refused(client.ask(INFER, request, oip.ModelInferResponse))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert name in sentence


def infer(*tensors: tuple[dict[str, Any], bytes], **changes: Any) -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(model_name="visits", inputs=[tensor for tensor, _ in tensors], **changes)
    request.raw_input_contents.extend(content for _, content in tensors)
    return request


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_tensor_that_is_not_what_it_says_is_refused_by_its_name(up, wrong):
    proxy, client = await up()
    changes, content, name = WRONG[wrong]

    assert_names(await ask_rest(proxy, ({**TENSOR, **changes}, content)), name)
    await assert_refuses(client, infer(({**TENSOR, **changes}, content)), name)

    assert proxy.spool.rows == []


@pytest.mark.parametrize("wrong", WRONG_NAMES)
async def test_strings_that_are_not_what_they_say_are_refused_by_their_tensors_name(up, wrong):
    proxy, client = await up()
    tensors = (TENSOR, RAW), (ENTITIES, WRONG_NAMES[wrong])

    assert_names(await ask_rest(proxy, *tensors), "entity_id")
    await assert_refuses(client, infer(*tensors), "entity_id")

    assert proxy.spool.rows == []


LISTED: dict[str, tuple[dict[str, Any], str]] = {
    "too few": ({"data": [1.0, 2.0, 3.0]}, "input"),
    "nested unlike its shape": ({"data": [[1.0, 2.0], 3.0, 4.0]}, "input"),
    "an object": ({"data": {"a": 1}}, "input"),
    "beside bytes": ({"data": [1.0] * 4, "parameters": {"binary_data_size": 16}}, "input"),
    "neither": ({}, "input"),
    "a size that is no number": ({"parameters": {"binary_data_size": "16"}}, "input"),
    "a negative size": ({"parameters": {"binary_data_size": -1}}, "input"),
    "a size beyond the body": ({"parameters": {"binary_data_size": LARGEST}}, "input"),
    "a size that is no 64 bits": ({"parameters": {"binary_data_size": 2**64 - 1}}, "input"),
    "a shape that is no 64 bits": ({"shape": [2**64 - 1, 2], "data": [1.0] * 4}, "input"),
    "a shape of text": ({"shape": ["2", 2], "data": [1.0] * 4}, "input"),
}


@pytest.mark.parametrize("wrong", LISTED)
async def test_json_that_is_not_what_it_says_is_refused_by_its_tensors_name(up, wrong):
    proxy, _ = await up()
    changes, name = LISTED[wrong]

    response = await proxy.client.post("/v2/models/visits/infer", json={"inputs": [{**TENSOR, **changes}]})

    assert_names(response, name)
    assert proxy.spool.rows == []


async def test_an_output_that_there_is_not_is_refused_by_its_name(up):
    proxy, client = await up()
    outputs = [{"name": "logits"}, {"name": "wrong"}]

    assert_names(await ask_rest(proxy, (TENSOR, RAW), outputs=outputs), "wrong")
    await assert_refuses(client, infer((TENSOR, RAW), outputs=outputs), "wrong")
    request = tfs.PredictRequest(model_spec={"name": "visits"}, output_filter=["wrong"])
    request.inputs["input"].CopyFrom(of_tensorflow())
    status, sentence, _ = await refused(client.ask(PREDICT, request, tfs.PredictResponse))

    assert (status, "wrong" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert proxy.spool.rows == []


def of_tensorflow(sizes: Any = (2, 2), **fields: Any) -> tfs.TensorProto:
    shape = tfs.TensorShapeProto(dim=[tfs.TensorShapeProto.Dim(size=size) for size in sizes])
    return tfs.TensorProto(**{"dtype": tfs.DT_FLOAT, "tensor_shape": shape, "tensor_content": RAW, **fields})


TENSORFLOW = {
    "type": of_tensorflow(dtype=tfs.DT_DOUBLE),
    "no type": of_tensorflow(dtype=tfs.DT_INVALID),
    "short content": of_tensorflow(tensor_content=RAW[:-1]),
    "negative shape": of_tensorflow((-1, 2)),
    "a largest size": of_tensorflow((LARGEST, 2)),
    "sizes whose product is no 64 bits": of_tensorflow((LARGEST, LARGEST), tensor_content=b"", float_val=[1.0]),
    "another shape": of_tensorflow((2, 3)),
    "no shape": of_tensorflow(tensor_shape={"unknown_rank": True}),
    "too many values": of_tensorflow(tensor_content=b"", float_val=[1.0] * 5),
    "no values": of_tensorflow(tensor_content=b""),
}


@pytest.mark.parametrize("wrong", TENSORFLOW)
async def test_a_tensor_of_tensorflow_that_is_not_what_it_says_is_refused_by_its_name(up, wrong):
    proxy, client = await up()
    request = tfs.PredictRequest(model_spec={"name": "visits"}, inputs={"input": TENSORFLOW[wrong]})

    status, sentence, _ = await refused(client.ask(PREDICT, request, tfs.PredictResponse))

    assert (status, "input" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert proxy.spool.rows == []


@pytest.mark.parametrize("wrong", ["a", "\xff"])
async def test_entities_of_tensorflow_that_are_too_few_or_no_text_are_refused_by_their_name(up, wrong):
    proxy, client = await up()
    named = of_tensorflow(
        (2,), dtype=tfs.DT_STRING, tensor_content=b"", string_val=[b"a", b"\xff"] if wrong == "\xff" else [b"a"]
    )
    request = tfs.PredictRequest(model_spec={"name": "visits"}, inputs={"input": of_tensorflow(), "entity_id": named})

    status, sentence, _ = await refused(client.ask(PREDICT, request, tfs.PredictResponse))

    assert (status, "entity_id" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert proxy.spool.rows == []
