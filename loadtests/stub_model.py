"""A model server that computes nothing: constant answers of the right shape after a chosen latency.

With ``--slots`` it works on so many calls at a time and lets the others wait, as a server with so many workers does.
With ``--least`` it answers at once and for next to no processor time, but good callers only (``least_stub``).

It speaks the Open Inference Protocol and TF Serving's ``Predict``, and counts calls and rows under :data:`COUNTS`,
except with ``--least``.
"""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import lru_cache
from math import prod

import grpc
import grpc.aio
import uvloop

from loadtests.least_stub import serve_least
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as oip
from understudy.adapters._proto import understudy_tfserving_pb2 as tfserving

COUNTS = "/loadtests.Stub/Counts"
OUTPUT = "probabilities"
HANGING_SECONDS = 3_600.0
_PROBABILITIES = b"\x00\x00\x80\x3e\x00\x00\x40\x3f"  # 0.25 and 0.75 as little-endian float32
_READY = oip.ModelReadyResponse(ready=True).SerializeToString()
_AVAILABLE = tfserving.GetModelStatusResponse(
    model_version_status=[tfserving.ModelVersionStatus(version=1, state=tfserving.ModelVersionStatus.AVAILABLE)]
).SerializeToString()

Answer = Callable[[bytes, object], Awaitable[bytes]]


@lru_cache
def oip_answer(rows: int) -> bytes:
    """Return the serialised answer to ``rows`` rows: shape ``[rows, 2]``."""
    output = oip.ModelInferResponse.InferOutputTensor(name=OUTPUT, datatype="FP32", shape=[rows, 2])
    return oip.ModelInferResponse(outputs=[output], raw_output_contents=[_PROBABILITIES * rows]).SerializeToString()


@lru_cache
def tfserving_answer(rows: int) -> bytes:
    """Return the serialised answer to ``rows`` rows: shape ``[rows, 2]``."""
    shape = tfserving.TensorShapeProto(dim=[tfserving.TensorShapeProto.Dim(size=size) for size in (rows, 2)])
    tensor = tfserving.TensorProto(dtype=tfserving.DT_FLOAT, tensor_shape=shape, tensor_content=_PROBABILITIES * rows)
    return tfserving.PredictResponse(outputs={OUTPUT: tensor}).SerializeToString()


def _oip_rows(request: bytes) -> int:
    return max(_rows(tensor.shape) for tensor in oip.ModelInferRequest.FromString(request).inputs)


def _tfserving_rows(request: bytes) -> int:
    tensors = tfserving.PredictRequest.FromString(request).inputs.values()
    return max(_rows([dimension.size for dimension in tensor.tensor_shape.dim]) for tensor in tensors)


def _rows(shape: Sequence[int]) -> int:
    """All dimensions but the last are rows: of a batch, or of the treatments of one entity."""
    return prod(shape[:-1])


class Stub:
    """The methods of one stub; bytes in, bytes out."""

    def __init__(self, latency_seconds: float, slots: int | None = None) -> None:
        self._latency_seconds = latency_seconds
        self._slots: AbstractAsyncContextManager[object] = asyncio.Semaphore(slots) if slots else nullcontext()
        self._calls = 0
        self._rows = 0

    def handlers(self) -> dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]:
        """Return the handler of each method by its full path."""
        infer = self._answering(_oip_rows, oip_answer)
        answers = {
            methods.oip_method(methods.OIP_SERVICE, methods.OIP_MODEL_INFER): infer,
            methods.oip_method(methods.OIP_SERVICE, methods.OIP_MODEL_READY): self._ready,
            methods.TFSERVING_GET_MODEL_STATUS: self._available,
            methods.TFSERVING_PREDICT: self._answering(_tfserving_rows, tfserving_answer),
            COUNTS: self._counts,
        }
        return {path: grpc.unary_unary_rpc_method_handler(answer) for path, answer in answers.items()}

    def _answering(self, rows_of: Callable[[bytes], int], answer_of: Callable[[int], bytes]) -> Answer:
        async def infer(request: bytes, _context: object) -> bytes:
            rows = rows_of(request)
            self._calls += 1
            self._rows += rows
            if self._latency_seconds:
                async with self._slots:
                    await asyncio.sleep(self._latency_seconds)
            return answer_of(rows)

        return infer

    async def _ready(self, _request: bytes, _context: object) -> bytes:
        return _READY

    async def _available(self, _request: bytes, _context: object) -> bytes:
        return _AVAILABLE

    async def _counts(self, _request: bytes, _context: object) -> bytes:
        return b"%d %d" % (self._calls, self._rows)


class _ByPath(grpc.GenericRpcHandler):
    def __init__(self, handlers: dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        return self._handlers.get(handler_call_details.method)


def counts_of(port: int) -> tuple[int, int]:
    """Return how many calls and rows a running stub has had."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(COUNTS)
        calls, rows = call(b"", timeout=5).split()
    return int(calls), int(rows)


async def serve(port: int, latency_seconds: float, slots: int | None) -> None:
    """Serve until SIGTERM."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_ByPath(Stub(latency_seconds, slots).handlers()),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.stop(0)


async def serve_without_grpc(port: int) -> None:
    """Serve until SIGTERM, at once and for little."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    answers = {
        b"ModelReady": lambda _request: _READY,
        b"GetModelStatus": lambda _request: _AVAILABLE,
        b"PredictionService": lambda request: tfserving_answer(_tfserving_rows(request)),
    }
    await serve_least(port, answers, lambda request: oip_answer(_oip_rows(request)), stopped)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--slots", type=int, help="calls that it works on at a time; by default all")
    parser.add_argument("--hang", action="store_true", help="take every call and answer none")
    parser.add_argument("--least", action="store_true", help="answer at once, for next to no processor time")
    asked = parser.parse_args()
    if asked.least:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_without_grpc(asked.port))
        return
    asyncio.run(serve(asked.port, HANGING_SECONDS if asked.hang else asked.latency_ms / 1000, asked.slots))


if __name__ == "__main__":
    main()
