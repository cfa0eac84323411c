"""The development model server as a real process, called over gRPC by both protocols."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tf
from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.dev_server.onnx import OnnxModel
from understudy.adapters.model_servers.oip import OipBackend
from understudy.adapters.model_servers.tfserving import TfServingBackend
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.core.schema.tensors import Datatype
from understudy.errors import BadAnswer

CALL_SECONDS = 30.0
ERRING_PERCENT = 30
SERVED = (
    "visits:1",
    "visits:2,typed_values",
    f"visits:3,latency_ms=40,jitter_ms=10,error_percent={ERRING_PERCENT}",
    "visits:4",
)


@contextmanager
def a_server(*served: str) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    command = [sys.executable, "-m", "understudy.entrypoints.modelserver", "--port", "0"]
    for spec in served:
        command += ["--serve", spec]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["port"], process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def port():
    with a_server(*SERVED) as (number, _):
        yield number


@pytest.fixture
def channel(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened


def call(channel: grpc.Channel, method: str, request: Any, response_type: Any) -> Any:
    stub = channel.unary_unary(method, type(request).SerializeToString, response_type.FromString)
    return stub(request, timeout=CALL_SECONDS)


def status_of(refused: "pytest.ExceptionInfo[grpc.RpcError]") -> tuple[grpc.StatusCode, str]:
    return refused.value.code(), refused.value.details() or ""


def some_inputs(count: int) -> NDArray[np.float32]:
    return np.array([list(row.inputs.values()) for row in example_rows()[:count]], np.float32)


def expected(version: int, inputs: NDArray[np.float32]) -> NDArray[Any]:
    onnx = OnnxModel(example_version("visits", version).read(), f"visits:{version}")
    return onnx.run({"input": inputs})["probabilities"]


# -- TensorFlow Serving ------------------------------------------------------------------------------------------------


def tf_spec(version: int | None, name: str = "visits", **fields: Any) -> tf.ModelSpec:
    spec = tf.ModelSpec(name=name, **fields)
    if version is not None:
        spec.version.value = version
    return spec


def tf_tensor(inputs: NDArray[np.float32], **form: Any) -> tf.TensorProto:
    shape = tf.TensorShapeProto(dim=[tf.TensorShapeProto.Dim(size=size) for size in inputs.shape])
    return tf.TensorProto(dtype=tf.DT_FLOAT, tensor_shape=shape, **(form or {"tensor_content": inputs.tobytes()}))


def tf_predict(channel: grpc.Channel, spec: tf.ModelSpec, tensor: tf.TensorProto, *wanted: str) -> tf.PredictResponse:
    request = tf.PredictRequest(model_spec=spec, inputs={"input": tensor}, output_filter=wanted)
    answer: tf.PredictResponse = call(channel, methods.TFSERVING_PREDICT, request, tf.PredictResponse)
    return answer


def test_tfserving_answers_the_models_probabilities_in_tensor_content(channel):
    inputs = some_inputs(3)

    answer = tf_predict(channel, tf_spec(1), tf_tensor(inputs))

    output = answer.outputs["probabilities"]
    assert [dim.size for dim in output.tensor_shape.dim] == [3, 2]
    assert np.array_equal(np.frombuffer(output.tensor_content, "<f4").reshape(3, 2), expected(1, inputs))
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("visits", 1)
    assert set(answer.outputs) == {"label", "probabilities"}


def test_tfserving_takes_typed_values_and_answers_them_when_told_to(channel):
    inputs = some_inputs(3)

    answer = tf_predict(channel, tf_spec(2), tf_tensor(inputs, float_val=inputs.ravel().tolist()), "probabilities")

    output = answer.outputs["probabilities"]
    assert output.tensor_content == b""
    assert np.array_equal(np.array(output.float_val, np.float32).reshape(3, 2), expected(2, inputs))
    assert set(answer.outputs) == {"probabilities"}


def test_tfserving_repeats_the_last_typed_value_over_the_shape(channel):
    answer = tf_predict(channel, tf_spec(1), tf_tensor(np.zeros((2, 9), np.float32), float_val=[0.0]))

    values = np.frombuffer(answer.outputs["probabilities"].tensor_content, "<f4").reshape(2, 2)
    assert np.array_equal(values, expected(1, np.zeros((2, 9), np.float32)))


@pytest.mark.parametrize("spec", [tf_spec(None), tf_spec(0)], ids=["unset", "zero"])
def test_tfserving_answers_with_the_newest_version_when_none_is_named(spec, channel):
    answer = tf_predict(channel, spec, tf_tensor(some_inputs(1)))

    assert answer.model_spec.version.value == 4


def test_tfserving_tells_the_status_of_every_version_and_of_one(channel):
    def versions(spec: tf.ModelSpec) -> list[tuple[int, int]]:
        request = tf.GetModelStatusRequest(model_spec=spec)
        answer = call(channel, methods.TFSERVING_GET_MODEL_STATUS, request, tf.GetModelStatusResponse)
        return [(status.version, status.state) for status in answer.model_version_status]

    available = tf.ModelVersionStatus.AVAILABLE
    assert versions(tf_spec(None)) == [(4, available), (3, available), (2, available), (1, available)]
    assert versions(tf_spec(2)) == [(2, available)]


def test_tfserving_tells_the_signature_as_an_any_of_the_official_type(channel):
    request = tf.GetModelMetadataRequest(model_spec=tf_spec(1), metadata_field=["signature_def"])

    answer = call(channel, methods.TFSERVING_GET_MODEL_METADATA, request, tf.GetModelMetadataResponse)

    packed = answer.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signature = tf.SignatureDefMap.FromString(packed.value).signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    assert signature.inputs["input"].dtype == tf.DT_FLOAT
    assert [dim.size for dim in signature.inputs["input"].tensor_shape.dim] == [-1, 9]
    assert [dim.size for dim in signature.outputs["probabilities"].tensor_shape.dim] == [-1, 2]


@pytest.mark.parametrize(
    ("spec", "tensor", "code", "details"),
    [
        (tf_spec(None, "parrots"), tf_tensor(some_inputs(1)), "NOT_FOUND", "'parrots' is not served"),
        (tf_spec(9), tf_tensor(some_inputs(1)), "NOT_FOUND", "version 9 is not served"),
        (tf_spec(1), tf_tensor(some_inputs(1)[:, :8]), "INVALID_ARGUMENT", "must have shape [-1, 9], has [1, 8]"),
        (tf_spec(1), tf_tensor(some_inputs(1), tensor_content=b"1234"), "INVALID_ARGUMENT", "4 bytes for 9 elements"),
        (tf_spec(1), tf_tensor(some_inputs(1), float_val=[1.0] * 10), "INVALID_ARGUMENT", "10 values for 9 elements"),
        (tf_spec(1), tf_tensor(some_inputs(1), int64_val=[1]), "INVALID_ARGUMENT", "0 values for 9 elements"),
        (tf_spec(1), tf.TensorProto(dtype=tf.DT_HALF), "INVALID_ARGUMENT", "which is not served"),
        (tf_spec(None, version_label="stable"), tf_tensor(some_inputs(1)), "INVALID_ARGUMENT", "version label: stable"),
        (tf_spec(1, signature_name="regress"), tf_tensor(some_inputs(1)), "INVALID_ARGUMENT", '"regress" not found'),
        (tf_spec(None, ""), tf_tensor(some_inputs(1)), "INVALID_ARGUMENT", "Missing ModelSpec"),
    ],
)
def test_tfserving_refuses_what_the_real_one_refuses(channel, spec, tensor, code, details):
    with pytest.raises(grpc.RpcError) as refused:
        tf_predict(channel, spec, tensor)

    assert status_of(refused)[0].name == code
    assert details in status_of(refused)[1]


def test_tfserving_bounds_the_elements_that_one_typed_value_may_stand_for(channel):
    shape = tf.TensorShapeProto(dim=[tf.TensorShapeProto.Dim(size=10**12), tf.TensorShapeProto.Dim(size=9)])

    with pytest.raises(grpc.RpcError) as refused:
        tf_predict(channel, tf_spec(1), tf.TensorProto(dtype=tf.DT_FLOAT, tensor_shape=shape, float_val=[0.0]))

    assert status_of(refused)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_tfserving_refuses_an_output_that_the_model_does_not_have(channel):
    with pytest.raises(grpc.RpcError) as refused:
        tf_predict(channel, tf_spec(1), tf_tensor(some_inputs(1)), "score")

    assert status_of(refused)[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "score" in status_of(refused)[1]


# -- Open Inference Protocol -------------------------------------------------------------------------------------------


def oip_call(channel: grpc.Channel, method: str, request: Any, response_type: Any) -> Any:
    return call(channel, methods.oip_method(methods.OIP_SERVICE, method), request, response_type)


def oip_request(inputs: NDArray[np.float32], version: str = "1", **fields: Any) -> oip.ModelInferRequest:
    request = oip.ModelInferRequest(**{"model_name": "visits", "model_version": version, "id": "a1", **fields})
    request.inputs.add(name="input", datatype="FP32", shape=inputs.shape)
    return request


def oip_infer(channel: grpc.Channel, request: oip.ModelInferRequest) -> oip.ModelInferResponse:
    answer: oip.ModelInferResponse = oip_call(channel, "ModelInfer", request, oip.ModelInferResponse)
    return answer


def test_oip_answers_raw_when_the_request_was_raw(channel):
    inputs = some_inputs(3)

    answer = oip_infer(channel, oip_request(inputs, raw_input_contents=[inputs.tobytes()]))

    assert [output.name for output in answer.outputs] == ["label", "probabilities"]
    assert list(answer.outputs[1].shape) == [3, 2]
    assert np.array_equal(np.frombuffer(answer.raw_output_contents[1], "<f4").reshape(3, 2), expected(1, inputs))
    assert not answer.outputs[1].contents.fp32_contents
    assert (answer.model_name, answer.model_version, answer.id) == ("visits", "1", "a1")


def test_oip_answers_typed_contents_when_the_request_had_them(channel):
    inputs = some_inputs(3)
    request = oip_request(inputs)
    request.inputs[0].contents.fp32_contents.extend(inputs.ravel().tolist())
    request.outputs.add(name="probabilities")

    answer = oip_infer(channel, request)

    assert not answer.raw_output_contents
    (output,) = answer.outputs
    values = np.array(output.contents.fp32_contents, np.float32).reshape(3, 2)
    assert np.array_equal(values, expected(1, inputs))


def test_oip_runs_a_batch_too_large_for_the_event_loop(channel):
    inputs = np.tile(some_inputs(100), (20, 1))

    answer = oip_infer(channel, oip_request(inputs, raw_input_contents=[inputs.tobytes()]))

    values = np.frombuffer(answer.raw_output_contents[1], "<f4").reshape(2_000, 2)
    assert np.array_equal(values, expected(1, inputs))


@pytest.mark.parametrize(
    ("change", "code", "details"),
    [
        ({"model_name": "parrots"}, "NOT_FOUND", "'parrots' is not served"),
        ({"model_version": "9"}, "NOT_FOUND", "version 9 is not served"),
        ({"model_version": "newest"}, "INVALID_ARGUMENT", "version string 'newest'"),
        ({"model_version": "9" * 5_000}, "INVALID_ARGUMENT", "version string"),
        ({"raw_input_contents": [b"1234"]}, "INVALID_ARGUMENT", "1 values for the shape [1, 9]"),
        ({"raw_input_contents": [b"123"]}, "INVALID_ARGUMENT", "3 bytes, no multiple of one FP32"),
        ({"raw_input_contents": [b"", b""]}, "INVALID_ARGUMENT", "2 raw_input_contents for 1 inputs"),
        ({"outputs": [{"name": "score"}]}, "INVALID_ARGUMENT", "unexpected inference output 'score'"),
    ],
)
def test_oip_refuses_what_the_real_ones_refuse(channel, change, code, details):
    inputs = some_inputs(1)
    request = oip_request(inputs, **{"raw_input_contents": [inputs.tobytes()], **change})

    with pytest.raises(grpc.RpcError) as refused:
        oip_infer(channel, request)

    assert status_of(refused)[0].name == code
    assert details in status_of(refused)[1]


def test_oip_refuses_a_wrong_width_a_wrong_type_and_both_forms_at_once(channel):
    narrow = some_inputs(1)[:, :8].copy()
    mixed = oip_request(some_inputs(1), raw_input_contents=[some_inputs(1).tobytes()])
    mixed.inputs[0].contents.fp32_contents.append(1.0)
    wide = oip_request(some_inputs(1), raw_input_contents=[some_inputs(1).astype(np.float64).tobytes()])
    wide.inputs[0].datatype = "FP64"

    for request in (oip_request(narrow, raw_input_contents=[narrow.tobytes()]), mixed, wide):
        with pytest.raises(grpc.RpcError) as refused:
            oip_infer(channel, request)

        assert status_of(refused)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_oip_tells_that_the_server_lives_and_which_models_are_ready(channel):
    live = oip_call(channel, "ServerLive", oip.ServerLiveRequest(), oip.ServerLiveResponse)
    ready = oip_call(channel, "ServerReady", oip.ServerReadyRequest(), oip.ServerReadyResponse)
    server = oip_call(channel, "ServerMetadata", oip.ServerMetadataRequest(), oip.ServerMetadataResponse)
    model = oip_call(channel, "ModelReady", oip.ModelReadyRequest(name="visits"), oip.ModelReadyResponse)

    assert (live.live, ready.ready, model.ready) == (True, True, True)
    assert server.name == "understudy-modelserver"
    with pytest.raises(grpc.RpcError) as refused:
        oip_call(channel, "ModelReady", oip.ModelReadyRequest(name="visits", version="9"), oip.ModelReadyResponse)
    assert status_of(refused)[0] is grpc.StatusCode.NOT_FOUND


def test_oip_tells_the_tensors_and_versions_of_a_model(channel):
    request = oip.ModelMetadataRequest(name="visits", version="2")

    answer = oip_call(channel, "ModelMetadata", request, oip.ModelMetadataResponse)

    assert list(answer.versions) == ["1", "2", "3", "4"]
    assert [(t.name, t.datatype, list(t.shape)) for t in answer.inputs] == [("input", "FP32", [-1, 9])]
    assert ("probabilities", "FP32", [-1, 2]) in [(t.name, t.datatype, list(t.shape)) for t in answer.outputs]


# -- faults ------------------------------------------------------------------------------------------------------------


def codes_of(channel: grpc.Channel, version: str, count: int) -> list[grpc.StatusCode]:
    """Return the status of each of ``count`` calls made at once."""
    inputs = some_inputs(1)
    request = oip_request(inputs, version, raw_input_contents=[inputs.tobytes()])
    method = methods.oip_method(methods.OIP_SERVICE, "ModelInfer")
    stub = channel.unary_unary(method, oip.ModelInferRequest.SerializeToString, oip.ModelInferResponse.FromString)
    calls = [stub.future(request, timeout=CALL_SECONDS) for _ in range(count)]
    return [one.code() for one in calls]


def seconds_of(channel: grpc.Channel, version: str, count: int) -> list[float]:
    """Return how long each of ``count`` calls took, one after another, the shortest first."""
    edges = [time.monotonic()]
    for _ in range(count):
        codes_of(channel, version, 1)
        edges.append(time.monotonic())
    return sorted(later - earlier for earlier, later in pairwise(edges))


def test_as_many_calls_fail_as_was_asked_for(channel):
    count = 1_600

    codes = [code for _ in range(4) for code in codes_of(channel, "3", count // 4)]

    # A binomial share of 30 % of 1,600 has a standard deviation of 1.15 points; six either way, twice in 10⁹ runs.
    erring_percent = 100 * codes.count(grpc.StatusCode.INTERNAL) / count
    assert erring_percent == pytest.approx(ERRING_PERCENT, abs=6 * 1.15)
    assert codes.count(grpc.StatusCode.OK) + codes.count(grpc.StatusCode.INTERNAL) == count


@pytest.mark.alone
def test_a_slow_version_takes_its_latency_and_leaves_the_others_alone(channel):
    codes_of(channel, "1", 1)

    slow, fast = seconds_of(channel, "3", 15), seconds_of(channel, "1", 15)

    # 40 ms, give or take 10; the others are medians, so that one pause of a busy machine does not count.
    assert slow[0] >= 0.030
    assert slow[7] < 0.100
    assert fast[7] < slow[7] / 2


def test_each_kind_of_broken_answer_is_given_when_asked_for():
    inputs = some_inputs(2)
    served = ("visits:1,nan_percent=100", "visits:2,wrong_shape", "visits:3,error_percent=100,error_code=unavailable")

    with a_server(*served) as (port, _), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        without_numbers = oip_infer(channel, oip_request(inputs, "1", raw_input_contents=[inputs.tobytes()]))
        narrow = oip_infer(channel, oip_request(inputs, "2", raw_input_contents=[inputs.tobytes()]))
        (code,) = codes_of(channel, "3", 1)

    assert np.isnan(np.frombuffer(without_numbers.raw_output_contents[1], "<f4")).all()
    assert list(narrow.outputs[1].shape) == [2, 1]
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_within_a_second_even_while_a_call_hangs(number):
    inputs = some_inputs(1)
    request = oip_request(inputs, raw_input_contents=[inputs.tobytes()])
    method = methods.oip_method(methods.OIP_SERVICE, "ModelInfer")

    with a_server("visits:1,hang") as (port, process), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = channel.unary_unary(method, oip.ModelInferRequest.SerializeToString, oip.ModelInferResponse.FromString)
        hanging = stub.future(request, timeout=CALL_SECONDS)
        with pytest.raises(grpc.FutureTimeoutError):
            hanging.result(timeout=0.3)
        signalled = time.monotonic()
        process.send_signal(number)
        exit_code = process.wait(timeout=60)
        took_seconds = time.monotonic() - signalled

    assert exit_code == 0
    assert took_seconds < 1.0


def test_a_hanging_version_ends_at_the_callers_deadline():
    inputs = some_inputs(1)
    tensor = tf_tensor(inputs)
    request = tf.PredictRequest(model_spec=tf_spec(1), inputs={"input": tensor})

    with a_server("visits:1,hang") as (port, _), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = channel.unary_unary(
            methods.TFSERVING_PREDICT, tf.PredictRequest.SerializeToString, tf.PredictResponse.FromString
        )
        with pytest.raises(grpc.RpcError) as late:
            stub(request, timeout=0.2)

    assert status_of(late)[0] is grpc.StatusCode.DEADLINE_EXCEEDED


# -- starting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [("visits:9", "no example model visits:9"), ("own:1,file=nowhere.onnx", "nowhere.onnx cannot be read")],
)
def test_a_version_that_cannot_be_loaded_ends_the_start_with_a_sentence(spec, message):
    command = [sys.executable, "-m", "understudy.entrypoints.modelserver", "--port", "0", "--serve", spec]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_taken_port_ends_the_start_with_a_sentence(port):
    command = [sys.executable, "-m", "understudy.entrypoints.modelserver", "--port", str(port), "--serve", "visits:1"]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_file_of_ones_own_is_served_under_the_name_it_is_given(tmp_path):
    path = tmp_path / "mine.onnx"
    path.write_bytes(example_version("visits", 2).read())
    inputs = some_inputs(2)

    with a_server(f"mine:7,file={path}") as (port, _), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = tf_predict(channel, tf_spec(7, "mine"), tf_tensor(inputs), "probabilities")

    values = np.frombuffer(answer.outputs["probabilities"].tensor_content, "<f4").reshape(2, 2)
    assert np.array_equal(values, expected(2, inputs))


# -- through the proxy's own adapters ----------------------------------------------------------------------------------


def a_version(protocol: str, port: int, number: int, **backend: Any) -> ModelVersion:
    example = example_version("visits", number)
    return ModelVersion(
        id=number,
        model_name="visits",
        version=str(number),
        protocol=protocol,
        endpoints=(f"127.0.0.1:{port}",),
        input_schema=compile_input_schema(example.input_schema),
        output_schema=compile_output_schema(example.output_schema),
        backend={"version": str(number), **backend},
        deterministic=True,
        cache_ttl_seconds=60,
        timeout_seconds=1.0,
        answer_digest="",
        source={},
    )


@pytest.mark.parametrize(
    ("connect", "protocol", "number", "backend"),
    [
        (TfServingBackend, "tfserving", 1, {}),
        (TfServingBackend, "tfserving", 2, {}),
        (OipBackend, "oip", 1, {}),
        (OipBackend, "oip", 2, {"typed_contents": True}),
        (OipBackend, "oip", 1, {"service_path": methods.OIP_SERVICE_OF_TORCHSERVE}),
    ],
)
async def test_the_backends_of_the_proxy_get_the_models_answers(port, connect, protocol, number, backend):
    version = a_version(protocol, port, number, **backend)
    rows = [version.input_schema.assemble(row.inputs).row for row in example_rows()[:5]]
    opened = connect(version)

    try:
        ready = await opened.ready(CALL_SECONDS)
        tensor = await opened.infer(rows, CALL_SECONDS)
    finally:
        await asyncio.wait_for(opened.close(), CALL_SECONDS)

    assert ready
    assert (tensor.datatype, tensor.shape, tensor.beside) == (Datatype.FP32, (5, 2), ())
    assert np.array_equal(tensor.values.reshape(5, 2), expected(number, some_inputs(5)))


@pytest.mark.parametrize(("connect", "protocol"), [(TfServingBackend, "tfserving"), (OipBackend, "oip")])
@pytest.mark.parametrize(("also", "problem"), [(("label",), None), (("nothing",), "nothing")])
async def test_outputs_beside_the_judged_one_come_in_the_same_call(port, connect, protocol, also, problem):
    version = a_version(protocol, port, 1)
    version = replace(version, output_schema=replace(version.output_schema, tensor="probabilities", also=also))
    rows = [version.input_schema.assemble(row.inputs).row for row in example_rows()[:5]]
    opened = connect(version)

    try:
        if problem is None:
            tensor = await opened.infer(rows, CALL_SECONDS)
        else:
            with pytest.raises(BadAnswer):
                await opened.infer(rows, CALL_SECONDS)
            return
    finally:
        await asyncio.wait_for(opened.close(), CALL_SECONDS)

    (beside,) = tensor.beside
    labels = np.argmax(tensor.values.reshape(5, 2), axis=1)
    assert (tensor.name, beside.name, beside.shape[0]) == ("probabilities", "label", 5)
    assert [str(one) for one in beside.values.tolist()] == [str(one) for one in labels.tolist()]
