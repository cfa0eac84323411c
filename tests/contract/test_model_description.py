"""What model servers say of their tensors, over real gRPC; the answers of real models are in the integration tests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tf
from understudy.adapters.model_servers.description import describe
from understudy.core.schema.described import DescribedModel, DescribedTensor
from understudy.core.upstream.endpoint_rules import parse_rules
from understudy.errors import BackendUnavailable, BadAnswer
from understudy.ports.upstream.model_description import ModelAt

OIP, TF = (methods.OIP_SERVICE, methods.OIP_MODEL_METADATA), (methods.TFSERVING_PREDICTION_SERVICE, "GetModelMetadata")


@asynccontextmanager
async def a_server(place: tuple[str, str], answer: Callable[[bytes], Any]) -> AsyncIterator[str]:
    """Serve one method, whose answers are messages or bytes; yield the address."""

    async def handle(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        found = answer(request)
        if isinstance(found, grpc.StatusCode):
            await context.abort(found, "no such\nmodel \x1b[31m")
        return found if isinstance(found, bytes) else found.SerializeToString()

    server = grpc.aio.server()
    service, method = place
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(handle)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def signatures(**inputs: tf.TensorInfo) -> tf.GetModelMetadataResponse:
    found = tf.SignatureDefMap(signature_def={"classify": tf.SignatureDef(inputs=inputs)})
    response = tf.GetModelMetadataResponse()
    response.metadata["signature_def"].value = found.SerializeToString()
    return response


async def test_a_model_is_asked_for_by_its_names_at_the_server():
    asked = []

    def answer(request: bytes) -> oip.ModelMetadataResponse:
        asked.append(oip.ModelMetadataRequest.FromString(request))
        tensor = oip.ModelMetadataResponse.TensorMetadata(name="x", datatype="FP32", shape=[-1, 3])
        return oip.ModelMetadataResponse(platform="tensorrt_plan", inputs=[tensor])

    async with a_server(OIP, answer) as endpoint:
        found = await describe(ModelAt("visits", "oip", endpoint, {"model_name": "v", "version": "7"}))

    assert [(one.name, one.version) for one in asked] == [("v", "7")]
    assert found == DescribedModel(
        f"the model server at {endpoint}", (DescribedTensor("x", "FP32", (-1, 3)),), (), "tensorrt"
    )


async def test_a_size_that_no_tensor_has_is_one_that_is_not_said_and_a_protocol_that_is_none_is_refused():
    tensor = oip.ModelMetadataResponse.TensorMetadata(name="x", datatype="FP32", shape=[-1, -5, 0, 3])

    async with a_server(OIP, lambda _: oip.ModelMetadataResponse(inputs=[tensor])) as endpoint:
        found = await describe(ModelAt("visits", "oip", endpoint))
        with pytest.raises(BackendUnavailable, match="there is no protocol 'http' to model servers: json, mlflow, oip"):
            await describe(ModelAt("visits", "http", endpoint))

    assert found.inputs == (DescribedTensor("x", "FP32", (-1, -1, -1, 3)),)


async def test_a_signature_of_tensorflow_serving_may_have_unknown_shapes_and_datatypes():
    unknown = tf.TensorInfo(dtype=tf.DT_HALF, tensor_shape=tf.TensorShapeProto(unknown_rank=True))

    async with a_server(TF, lambda _: signatures(x=unknown)) as endpoint:
        found = await describe(ModelAt("visits", "tfserving", endpoint, {"signature_name": "classify"}))
        with pytest.raises(BadAnswer, match="the model has no signature 'serving_default'; it has: classify"):
            await describe(ModelAt("visits", "tfserving", endpoint))

    assert found.inputs == (DescribedTensor("x", "DT_HALF", None),)


async def test_a_server_that_does_not_know_the_question_may_be_asked_at_a_wrong_port():
    async with a_server(TF, lambda _: b"") as endpoint:
        with pytest.raises(BadAnswer, match=r"says UNIMPLEMENTED: .*, or this is another port of it"):
            await describe(ModelAt("visits", "oip", endpoint))


async def test_a_protocol_without_the_question_tells_nothing():
    torchserve = await describe(ModelAt("visits", "torchserve", "nowhere.invalid:1"))

    assert (torchserve.inputs, torchserve.outputs) == ((), ())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (grpc.StatusCode.NOT_FOUND, r"says NOT_FOUND: no such model \[31m$"),
        (b"\xff\xff", "its answer cannot be read"),
        (
            oip.ModelMetadataResponse(inputs=[oip.ModelMetadataResponse.TensorMetadata(name="x" * 300)]),
            "a name or a shape that no schema has",
        ),
        (
            oip.ModelMetadataResponse(inputs=[oip.ModelMetadataResponse.TensorMetadata()] * 4_097),
            "more than 4,096 inputs or outputs",
        ),
    ],
    ids=["not found", "bytes", "long name", "many"],
)
async def test_an_answer_that_is_no_description_is_told_in_words(answer, words):
    async with a_server(OIP, lambda _: answer) as endpoint:
        with pytest.raises(BadAnswer, match=words):
            await describe(ModelAt("visits", "oip", endpoint))


async def test_an_address_that_the_operator_does_not_permit_and_a_token_that_is_not_there_are_not_tried():
    with pytest.raises(BackendUnavailable, match=r"10\.1\.2\.3"):
        await describe(ModelAt("visits", "oip", "10.1.2.3:1"), rules=parse_rules("127.0.0.1"))
    with pytest.raises(BackendUnavailable, match=r"UNDERSTUDY_BACKEND_TOKEN_X, which backend.token_env names, is not"):
        await describe(ModelAt("visits", "oip", "127.0.0.1:1", {"token_env": "UNDERSTUDY_BACKEND_TOKEN_X"}), {})
