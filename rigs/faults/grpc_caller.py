"""A caller of the load that asks over gRPC: the native call is worded as a ``ModelInfer``, its answer as a native one.

So the rows judge both by the same figures: status, receipt and score. The client is the product's own (ADR 126), since
``grpc.aio`` serves one event loop of a process, and each load has a loop of its own.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import grpc
import numpy as np
import orjson
from e2e.load import CLIENT_TIMEOUT_SECONDS, Answer

from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.channels import Channel
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.core.upstream.endpoint_rules import parse_target

INFER = methods.oip_method(methods.OIP_SERVICE, methods.OIP_MODEL_INFER)
_EXAMPLE = example_version("visits", 1)
(_TENSOR,) = _EXAMPLE.input_schema["tensors"]
_SCORE = _EXAMPLE.output_schema["score_index"]
STATUSES: Mapping[grpc.StatusCode, int] = {
    grpc.StatusCode.INVALID_ARGUMENT: 422,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.INTERNAL: 502,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.UNAVAILABLE: 503,
}
"""As the same errors have them over HTTP."""


class GrpcConnection:
    """One HTTP/2 connection, made at the first call and again after it was lost. See :class:`e2e.load.Connection`."""

    def __init__(self, host: str, port: int | Callable[[], int]) -> None:
        self._host, self._port = host, port
        self._channel: Channel | None = None

    async def post(self, _path: str, body: bytes, headers: str = "") -> Answer:
        """Ask, and return the answer as a native one; further ``headers`` are metadata."""
        sent = time.monotonic()
        fields = (line.partition(":") for line in headers.splitlines())
        metadata = tuple((name, value.strip()) for name, _, value in fields)
        try:
            method = self._open().method(INFER)
            answer = await method(_request_of(body), timeout=CLIENT_TIMEOUT_SECONDS, metadata=metadata)
        except grpc.aio.AioRpcError as refused:
            received = {str(name).encode(): str(value).encode() for name, value in refused.trailing_metadata() or ()}
            details = (refused.details() or "").encode()
            return Answer(sent, time.monotonic() - sent, _status_of(refused), received, details)
        except OSError:
            return Answer(sent, time.monotonic() - sent, 0, {}, b"")
        seconds = time.monotonic() - sent
        return Answer(sent, seconds, 200, *_native(oip.ModelInferResponse.FromString(answer)))

    def close(self) -> None:
        """End the connection, in a task of the running loop."""
        if self._channel is not None:
            self._closing = asyncio.get_running_loop().create_task(self._channel.close())
            self._channel = None

    def _open(self) -> Channel:
        if self._channel is None:
            port = self._port if isinstance(self._port, int) else self._port()
            target = parse_target(f"{self._host}:{port}")
            assert target.literal is not None
            self._channel = open_http2(f"{self._host}:{port}", target, [target.literal], PLAIN_WIRE)
        return self._channel


def _request_of(body: bytes) -> bytes:
    document = orjson.loads(body)
    values = np.array([[document["inputs"][name] for name in _TENSOR["features"]]], "<f4")
    request = oip.ModelInferRequest(model_name="visits")
    request.parameters["entity_id"].string_param = document["entity_id"]
    request.inputs.add(name=_TENSOR["name"], datatype="FP32", shape=values.shape)
    request.raw_input_contents.append(values.tobytes())
    return request.SerializeToString()


def _native(answer: oip.ModelInferResponse) -> tuple[dict[bytes, bytes], bytes]:
    parameters = answer.parameters
    received = {
        b"x-prediction-id": parameters["prediction_id"].string_param.encode(),
        b"x-model-version": answer.model_version.encode(),
        b"x-model-role": parameters["role"].string_param.encode(),
        b"x-policy-generation": b"%d" % parameters["generation"].int64_param,
    }
    score = float(np.frombuffer(answer.raw_output_contents[0], "<f4")[_SCORE])
    return received, orjson.dumps({"version": answer.model_version, "prediction": {"score": score}})


def _status_of(refused: grpc.aio.AioRpcError) -> int:
    """Return what HTTP's callers were told; without a sentence of ours the connection was lost, or the wait over."""
    if not (refused.details() or "").startswith("E"):
        return 408 if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED else 0
    return STATUSES.get(refused.code(), 500)
