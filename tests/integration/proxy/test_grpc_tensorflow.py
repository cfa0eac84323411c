"""TensorFlow Serving's gRPC API with real clients of grpcio."""

from typing import Any

import grpc
import numpy as np
import pytest
from worlds.grpc import EXPECTED, KEY, ROWS, VISITOR, refused, start, up, with_more

from understudy.adapters._proto import understudy_tfserving_pb2 as pb
from understudy.adapters.embedded.loopback_ports import free_port

__all__ = ["start", "up"]
PREDICT = "/tensorflow.serving.PredictionService/Predict"
CLASSIFY, REGRESS = (f"/tensorflow.serving.PredictionService/{name}" for name in ("Classify", "Regress"))
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


def predict(*, packed: bool = True, spec: Any = None, **changes: Any) -> pb.PredictRequest:
    sizes = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in ROWS.shape])
    tensor = pb.TensorProto(dtype=pb.DT_FLOAT, tensor_shape=sizes)
    if packed:
        tensor.tensor_content = ROWS.tobytes()
    else:
        tensor.float_val.extend(ROWS.ravel().tolist())
    return pb.PredictRequest(model_spec={"name": "visits", **(spec or {})}, inputs={"input": tensor}, **changes)


@pytest.mark.parametrize("packed", [True, False])
async def test_a_call_is_answered_with_the_servers_own_bits_and_is_logged_once(up, packed):
    proxy, client = await up()
    request = predict(packed=packed, output_filter=["logits"])
    names = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=2)])
    entities = pb.TensorProto(dtype=pb.DT_STRING, tensor_shape=names, string_val=[b"a", b"b"])
    request.inputs["entity_id"].CopyFrom(entities)

    answer = await client.ask(PREDICT, request, pb.PredictResponse)

    (output,) = answer.outputs.values()
    assert (list(answer.outputs), output.tensor_content) == (["logits"], EXPECTED.tobytes())
    assert (output.dtype, [dim.size for dim in output.tensor_shape.dim]) == (pb.DT_FLOAT, [2, 2])
    spec = answer.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("visits", 1, "serving_default")
    assert [row.entity_id for row in proxy.spool.rows] == ["a", "b"]
    assert client.trailing["x-prediction-id"] == proxy.spool.rows[0].prediction_id
    page = proxy.telemetry.exposition()[0].decode()
    assert 'dialect_calls_total{dialect="tfs_grpc",entity="row",model="visits"} 1.0' in page


async def test_outputs_beside_the_judged_one_come_where_they_are_not_filtered_out(up):
    _, client = await up(also=("rank", "raw"), function=with_more)

    every = await client.ask(PREDICT, predict(), pb.PredictResponse)
    one = await client.ask(PREDICT, predict(output_filter=["raw"]), pb.PredictResponse)
    unknown = await refused(client.ask(PREDICT, predict(output_filter=["y"]), pb.PredictResponse))

    assert sorted(every.outputs) == ["logits", "rank", "raw"]
    assert every.outputs["logits"].tensor_content == EXPECTED.tobytes()
    assert dict(one.outputs) == {"raw": every.outputs["raw"]}
    assert list(one.outputs["raw"].string_val) == [b"\xff\x000", b"\xff\x001"]
    assert "has no output 'y'; it has: logits, rank, raw" in unknown[1]


@pytest.mark.parametrize("spec", [{"version": {"value": 0}}, {"version_label": "stable"}, {"version": {"value": 1}}])
async def test_version_0_the_label_stable_and_the_champions_number_are_the_champion(up, spec):
    _, client = await up()

    answer = await client.ask(PREDICT, predict(spec=spec), pb.PredictResponse)

    assert answer.model_spec.version.value == 1


REFUSED = {
    "unknown model": (predict(spec={"name": "nope"}), (), "NOT_FOUND"),
    "unknown label": (predict(spec={"version_label": "x"}), (KEY,), "NOT_FOUND"),
    "another's version": (predict(spec={"version": {"value": 2}}), (VISITOR,), "PERMISSION_DENIED"),
    "signature": (predict(spec={"signature_name": "x"}), (), "INVALID_ARGUMENT"),
    "output": (predict(output_filter=["y"]), (), "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_an_error_is_a_status(up, name):
    proxy, client = await up()
    request, metadata, wanted = REFUSED[name]

    status, sentence, trailing = await refused(client.ask(PREDICT, request, pb.PredictResponse, *metadata))

    assert status.name == wanted
    assert sentence.startswith(str(trailing["understudy-code"]))
    assert proxy.spool.rows == []


async def test_what_is_asked_of_models(up):
    _, client = await up()
    spec = pb.ModelSpec(name="visits")
    asked = pb.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])

    metadata = await client.ask(METADATA, asked, pb.GetModelMetadataResponse)
    status = await client.ask(STATUS, pb.GetModelStatusRequest(model_spec=spec), pb.GetModelStatusResponse)

    packed = metadata.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signature = pb.SignatureDefMap.FromString(packed.value).signature_def["serving_default"]
    shapes = {name: [dim.size for dim in one.tensor_shape.dim] for name, one in signature.inputs.items()}
    assert (shapes, list(signature.outputs)) == ({"input": [-1, 2]}, ["logits"])
    states = {one.version: one.state for one in status.model_version_status}
    assert states == {1: pb.ModelVersionStatus.AVAILABLE, 2: pb.ModelVersionStatus.AVAILABLE}


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/tensorflow.serving.PredictionService/MultiInference", "by Predict"),
        ("/tensorflow.serving.ModelService/HandleReloadConfigRequest", "understudy version load"),
    ],
)
async def test_methods_that_are_not_offered_say_what_to_do(up, path, what):
    _, client = await up()

    status, sentence, _ = await refused(client.ask(path, predict(), pb.PredictResponse))

    assert status is grpc.StatusCode.UNIMPLEMENTED
    assert what in sentence


def examples(*rows: dict[str, Any], context: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return rows as examples; what is a text is bytes, and what is whole an integer."""

    def example(row: dict[str, Any]) -> pb.Example:
        found = pb.Example()
        for name, value in row.items():
            kind = {str: "bytes_list", int: "int64_list", float: "float_list"}[type(value)]
            written = value.encode() if isinstance(value, str) else value
            getattr(found.features.feature[name], kind).value.append(written)
        return found

    listed = [example(row) for row in rows]
    if context is None:
        kind, value = "example_list", dict[str, Any](examples=listed)
    else:
        kind, value = "example_list_with_context", {"examples": listed, "context": example(context)}
    return {"model_spec": {"name": "visits"}, "input": {kind: value}}


def pair(row: int, **more: Any) -> dict[str, Any]:
    return {"age": float(ROWS[row, 0]), "income": float(ROWS[row, 1]), **more}


async def test_examples_are_classified_each_for_its_entity(up):
    proxy, client = await up()
    asked = pb.ClassificationRequest(**examples(pair(0, entity_id="a"), pair(1, entity_id="b")))

    answer = await client.ask(CLASSIFY, asked, pb.ClassificationResponse)

    found = [[one.score for one in row.classes] for row in answer.result.classifications]
    assert np.array(found, "<f4").tobytes() == EXPECTED.tobytes()
    assert answer.model_spec.version.value == 1
    assert [row.entity_id for row in proxy.spool.rows] == ["a", "b"]


async def test_examples_have_what_they_share_and_a_number_each(start):
    port = free_port()
    await start(grpc_port=port)
    asked = pb.RegressionRequest(**examples({"age": 40.0}, {"age": 30, "income": 1}, context={"income": 2.0}))

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask: Any = channel.unary_unary(REGRESS)
        answer = pb.RegressionResponse.FromString(await ask(asked.SerializeToString()))

    assert [one.value for one in answer.result.regressions] == [21.0, 15.5]


NO_TEXT = pb.Feature(bytes_list={"value": [b"\xff"]})
UNUSABLE: dict[str, tuple[str, Any, str, str]] = {
    "several values": (REGRESS, pb.RegressionRequest(**examples(pair(0))), "UNIMPLEMENTED", "of another shape"),
    "no examples": (CLASSIFY, pb.ClassificationRequest(**examples()), "INVALID_ARGUMENT", "/examples"),
    "a name": (CLASSIFY, pb.ClassificationRequest(**examples(pair(0, x=1))), "INVALID_ARGUMENT", "/examples/0/x"),
    "shared": (
        CLASSIFY,
        pb.ClassificationRequest(**examples(pair(0), context={"x": 1})),
        "INVALID_ARGUMENT",
        "/context/x",
    ),
    "no number": (
        CLASSIFY,
        pb.ClassificationRequest(**examples(pair(0), {"age": float("nan"), "income": 1.0})),
        "INVALID_ARGUMENT",
        "/examples/1/age",
    ),
    "no text": (
        CLASSIFY,
        pb.ClassificationRequest(
            model_spec={"name": "visits"},
            input={"example_list": {"examples": [{"features": {"feature": {"age": NO_TEXT}}}]}},
        ),
        "INVALID_ARGUMENT",
        "/examples/0/age",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_examples_that_cannot_be_used_are_refused_with_their_place(up, name):
    _, client = await up()
    path, request, wanted, place = UNUSABLE[name]

    status, sentence, _ = await refused(client.ask(path, request, pb.ClassificationResponse))

    assert status.name == wanted
    assert place in sentence


async def test_a_number_stands_for_those_that_follow_it(up):
    _, client = await up()
    request = predict()
    tensor = request.inputs["input"]
    tensor.tensor_content = b""
    tensor.float_val.append(2)

    answer = await client.ask(PREDICT, request, pb.PredictResponse)

    assert answer.outputs["logits"].tensor_content == (np.full((2, 2), 2, "<f4") * np.float32(0.1)).tobytes()
