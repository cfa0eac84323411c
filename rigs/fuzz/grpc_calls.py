"""Mutated and drawn messages to every unary method of the gRPC port, by our own client, which sends any bytes."""

import time
from collections.abc import Sequence

import grpc
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rigs.fuzz.attack import KEPT_ANSWER_SECONDS, SHOWN_BYTES, Tally, each
from rigs.fuzz.cases import KEY_ID, SECRET
from rigs.fuzz.grpc_messages import INFER, GrpcCase, infer_cases, tfserving_cases
from rigs.fuzz.models import VISITS
from rigs.fuzz.values import MARK
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_health_pb2 as health
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tfserving
from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.channel import Http2Channel, open_http2
from understudy.adapters.model_servers.http2.request_head import metadata_block, request_prefix
from understudy.core.upstream.endpoint_rules import Target, parse_target

_OWN_FAILURES = ("E502 ", "E503 ", "E504 ", "E505 ", "E506 ", "E507 ")
CONNECTIONS = 8
AUTHORIZATION = ("authorization", f"Bearer {KEY_ID}.{SECRET}")
REFUSALS = frozenset({
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
})  # fmt: skip


def _infer() -> bytes:
    request = oip.ModelInferRequest(model_name=VISITS, id=MARK)
    request.parameters["entity_id"].string_param = "e-1"
    request.inputs.add(name="input", datatype="FP32", shape=[1, 13]).contents.fp32_contents.extend([0.5] * 13)
    request.outputs.add(name="probabilities")
    return request.SerializeToString()


def _infer_raw() -> bytes:
    request = oip.ModelInferRequest(model_name=VISITS)
    request.inputs.add(name="input", datatype="FP32", shape=[2, 13])
    request.inputs.add(name="entity_id", datatype="BYTES", shape=[2])
    request.raw_input_contents.extend([bytes(104), b"\x01\x00\x00\x00a\x01\x00\x00\x00b"])
    return request.SerializeToString()


def _predict() -> bytes:
    shape = tfserving.TensorShapeProto(dim=[tfserving.TensorShapeProto.Dim(size=size) for size in (1, 13)])
    tensor = tfserving.TensorProto(dtype=tfserving.DT_FLOAT, tensor_shape=shape, float_val=[0.5])
    return tfserving.PredictRequest(
        model_spec={"name": VISITS, "signature_name": "serving_default"}, inputs={"input": tensor}
    ).SerializeToString()


def _classify() -> bytes:
    request = tfserving.ClassificationRequest(model_spec={"name": VISITS})
    example = request.input.example_list.examples.add()
    example.features.feature["recency"].float_list.value.append(1.0)
    return request.SerializeToString()


def _metadata() -> bytes:
    request = tfserving.GetModelMetadataRequest(model_spec={"name": VISITS}, metadata_field=["signature_def"])
    return request.SerializeToString()


def _seeds() -> list[GrpcCase]:
    """Return good messages, which are mutated."""
    named = oip.ModelMetadataRequest(name=VISITS, version="1").SerializeToString()
    prediction, model = methods.TFSERVING_PREDICTION_SERVICE, methods.TFSERVING_MODEL_SERVICE
    status = tfserving.GetModelStatusRequest(model_spec={"name": VISITS}).SerializeToString()
    check = health.HealthCheckRequest(service=methods.OIP_SERVICE).SerializeToString()
    by_name = {
        methods.OIP_MODEL_METADATA: named,
        methods.OIP_MODEL_READY: named,
        methods.OIP_MODEL_CONFIG: named,
        methods.OIP_REPOSITORY_INDEX: b"",
    }
    return [
        *(GrpcCase(INFER, one()) for one in (_infer, _infer_raw)),
        *(GrpcCase(methods.oip_method(methods.OIP_SERVICE, name), one) for name, one in by_name.items()),
        *(GrpcCase(methods.TFSERVING_PREDICT, _predict()) for _ in range(2)),
        GrpcCase(f"/{prediction}/Classify", _classify()),
        GrpcCase(f"/{prediction}/Regress", _classify()),
        GrpcCase(methods.TFSERVING_GET_MODEL_METADATA, _metadata()),
        GrpcCase(f"/{model}/GetModelStatus", status),
        GrpcCase(f"/{methods.HEALTH_SERVICE}/Check", check),
    ]


def label_values() -> frozenset[str]:
    """Return what labels of metrics may say of calls over gRPC: methods, and codes."""
    return frozenset({case.path[1:] for case in _seeds()} | {code.name for code in grpc.StatusCode})


def grpc_cases() -> SearchStrategy[GrpcCase]:
    """Draw messages with bytes changed, cut out, doubled and put in, some of them good; and some of drawn fields."""
    mutated = st.sampled_from(_seeds()).flatmap(
        lambda seed: _mutated(seed.message).map(lambda message: GrpcCase(seed.path, message))
    )
    return mutated | mutated | infer_cases() | tfserving_cases()


def _mutated(message: bytes) -> SearchStrategy[bytes]:
    places = st.integers(0, len(message))
    varints = st.sampled_from([b"\x00", b"\x7f", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 9 + b"\x01"])
    pieces = varints | st.binary(max_size=12) | st.sampled_from([b"\x0a\x00" * 1_500, b"\x0b" * 120])

    def changed(place: int, byte: int) -> bytes:
        return message[:place] + bytes([byte]) + message[place + 1 :]

    return st.one_of(
        st.builds(changed, places, st.integers(0, 255)),
        st.tuples(places, pieces).map(lambda drawn: message[: drawn[0]] + drawn[1] + message[drawn[0] :]),
        st.tuples(places, places).map(lambda drawn: message[: min(drawn)] + message[max(drawn) :]),
        st.tuples(places, places).map(lambda drawn: message[: max(drawn)] + message[min(drawn) :]),
        st.binary(max_size=80),
        st.just(message),
    )


async def send_grpc(port: int, name: str, cases: Sequence[GrpcCase], at_once: int) -> Tally:
    """Send messages, and note those whose end is none that a caller's mistake may have."""
    tally = Tally(name)
    target = parse_target(f"127.0.0.1:{port}")
    assert target.literal is not None
    channels = [open_http2(str(place), target, [target.literal], PLAIN_WIRE) for place in range(CONNECTIONS)]
    places = iter(range(len(cases)))

    async def send(case: GrpcCase) -> None:
        channel = channels[next(places) % CONNECTIONS]
        began = time.monotonic()
        code, details = grpc.StatusCode.OK, ""
        try:
            answer = await _asked(channel, target, case)
            tally.ids += _prediction_ids(answer) if case.path == INFER else []
        except grpc.aio.AioRpcError as refused:
            code, details = refused.code(), refused.details() or ""
        tally.statuses[code.name] += 1
        tally.note(
            judge_call(case, code, details),
            case.path.encode() + b" " + case.message[:SHOWN_BYTES],
            time.monotonic() - began,
        )

    await each(cases, at_once, send, tally)
    for channel in channels:
        await channel.close()
    return tally


def _prediction_ids(answer: bytes) -> list[str]:
    """Return the ids of all predictions that an answer to ``ModelInfer`` tells of."""
    parameters = oip.ModelInferResponse.FromString(answer).parameters
    several = parameters["prediction_ids"].string_param
    return several.split(",") if several else [parameters["prediction_id"].string_param]


def _asked(channel: Http2Channel, target: Target, case: GrpcCase) -> UnaryCall:
    """Send a case; a compressed message is flagged so, which the product's own calls are not."""
    coding = (("grpc-encoding", case.coding),) if case.coding else ()
    prefix = request_prefix(case.path, f"{target.host}:{target.port}", is_secure=False)
    call = UnaryCall(prefix, metadata_block((AUTHORIZATION, *coding)), case.message, KEPT_ANSWER_SECONDS, waits=False)
    if case.coding:
        call.message = b"\x01" + call.message[1:]
    channel.place(call)
    return call


def judge_call(case: GrpcCase, code: grpc.StatusCode, details: str) -> list[str]:
    """Return what is wrong with how a call ended."""
    found = []
    if case.refused_as and details.partition(" ")[0] not in case.refused_as:
        found.append(f"ended with {code.name}: {details[:80]}, expected {sorted(case.refused_as)}")
    if code not in REFUSALS and not details.startswith(_OWN_FAILURES):
        found.append(f"ended with {code.name}: {details[:80]}")
    if MARK in details:
        found.append("the status repeats the caller's input")
    return found
