"""The load over gRPC: as many unary calls as so many callers can have answered, each with an entity of its own.

python -m loadtests.grpc_load ADDRESS METHOD SECONDS

It is a process of its own, as wrk is, and prints one line of JSON as wrk's script does. Its client is the product's own
(ADR 126), which costs the least.
"""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping

import grpc
import numpy as np
import uvloop

from loadtests.plain_body import FEATURES
from loadtests.wrk import Answered, Load
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tfserving
from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.channels import Channel
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.core.upstream.endpoint_rules import parse_target

CHANNELS, AT_ONCE = 4, 16
"""Connections, and calls at a time on each: 64 callers, as over HTTP."""
INFER = methods.oip_method(methods.OIP_SERVICE, methods.OIP_MODEL_INFER)
_WAIT_SECONDS = 10.0
_MARGIN_SECONDS = 20
_INPUTS = 997
MODEL = "bench"


def infer_request(values: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> bytes:
    """Return a call of one row, as tritonclient sends it: its tensor as bytes."""
    request = oip.ModelInferRequest(model_name=MODEL, id="1")
    request.inputs.add(name="input", datatype="FP32", shape=values.shape)
    request.raw_input_contents.append(values.tobytes())
    return request.SerializeToString()


def predict_request(values: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> bytes:
    """Return the same as TensorFlow's own clients send it."""
    shape = tfserving.TensorShapeProto(dim=[tfserving.TensorShapeProto.Dim(size=size) for size in values.shape])
    tensor = tfserving.TensorProto(dtype=tfserving.DT_FLOAT, tensor_shape=shape, tensor_content=values.tobytes())
    request = tfserving.PredictRequest(inputs={"input": tensor})
    request.model_spec.name = MODEL
    return request.SerializeToString()


REQUESTS: Mapping[str, list[bytes]] = {
    method: [make(np.random.default_rng(number).random((1, len(FEATURES)), "f4")) for number in range(_INPUTS)]
    for method, make in ((INFER, infer_request), (methods.TFSERVING_PREDICT, predict_request))
}


class _Callers:
    def __init__(self, method: str) -> None:
        self._method = method
        self._requests = REQUESTS[method]
        self._number = random.randrange(10_000_000, 50_000_000)
        self.seconds: list[float] = []
        self.failed = 0

    async def call_until(self, channel: Channel, end: float) -> None:
        """Call again and again, each time when the last answer came."""
        method = channel.method(self._method)
        while (began := time.monotonic()) < end:
            self._number += 1
            entity = (("x-entity-id", f"customer-{self._number}"),)
            try:
                await method(self._requests[self._number % _INPUTS], timeout=_WAIT_SECONDS, metadata=entity)
            except grpc.aio.AioRpcError:
                self.failed += 1
            self.seconds.append(time.monotonic() - began)


def open_client(address: str) -> Channel:
    """Return a connection, made when it is needed."""
    target = parse_target(address)
    assert target.literal is not None
    return open_http2(address, target, [target.literal], PLAIN_WIRE)


async def _load(address: str, method: str, seconds: float) -> dict[str, float]:
    channels = [open_client(address) for _ in range(CHANNELS)]
    callers = _Callers(method)
    began = time.monotonic()
    await asyncio.gather(
        *(callers.call_until(channel, began + seconds) for channel in channels for _ in range(AT_ONCE))
    )
    took = time.monotonic() - began
    for channel in channels:
        await channel.close()
    waits = sorted(callers.seconds)
    return {
        "requests": len(waits),
        "seconds": took,
        "not_200": callers.failed,
        "broken": 0,
        "p50_ms": waits[len(waits) // 2] * 1e3,
        "p99_ms": waits[len(waits) * 99 // 100] * 1e3,
    }


def run_grpc_load(address: str, seconds: float, _what: Load, *, method: str = INFER) -> Answered:
    """Load a port with calls of one method for whole seconds, in a process of its own."""
    command = [sys.executable, "-m", "loadtests.grpc_load", address, method, str(seconds)]
    limit = seconds + _WAIT_SECONDS + _MARGIN_SECONDS
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the load failed: {done.stderr[-2_000:]}")
    return Answered(**json.loads(done.stdout))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(_load(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
