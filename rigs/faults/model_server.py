"""A model server whose faults are switched while it runs: real ONNX models behind the Open Inference Protocol.

``python -m rigs.faults.model_server --port 40123 --serve visits:1`` runs until SIGTERM. With ``--http-port`` it answers
the protocol's REST paths there, too.
"""

import argparse
import asyncio
import signal
from dataclasses import asdict
from typing import Any

import grpc
import grpc.aio
import orjson
from numpy.typing import NDArray

from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.adapters._proto.methods import OIP_MODEL_INFER, OIP_SERVICE, oip_method
from understudy.adapters.dev_server.catalog import Faults, ModelCatalog, ServedModel, ServeSpec, Tensors
from understudy.adapters.dev_server.oip import oip_handlers
from understudy.entrypoints.modelserver import parse_serve_spec

SHOW = "/faults.Model/Show"
COUNT = "/faults.Model/Count"
_INFER = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
BIG_ANSWER = pb.ModelInferResponse(raw_output_contents=[bytes(5 * 2**20)]).SerializeToString()
CONTROL_SECONDS = 5.0


class SwitchedModel(ServedModel):
    """A model that shows the faults it was last told to, and counts what it was asked."""

    def __init__(self, spec: ServeSpec) -> None:
        super().__init__(spec)
        self.is_big = False
        self.calls = 0
        self.rows = 0

    def show(self, faults: Faults, *, big: bool = False) -> None:
        """Do this wrong from the next call on; calls that hang go on hanging."""
        self._faults = faults
        self.is_big = big

    async def answer(self, inputs: Tensors) -> dict[str, NDArray[Any]]:
        """See :meth:`ServedModel.answer`."""
        self.calls += 1
        self.rows += max((len(tensor) for tensor in inputs.values() if tensor.ndim), default=0)
        return await super().answer(inputs)


class _Control(grpc.GenericRpcHandler):
    def __init__(self, model: SwitchedModel) -> None:
        self._model = model

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        found = {SHOW: self._show, COUNT: self._count}.get(handler_call_details.method)
        if self._model.is_big and handler_call_details.method == _INFER:
            found = self._big
        return None if found is None else grpc.unary_unary_rpc_method_handler(found)

    async def _show(self, request: bytes, _context: object) -> bytes:
        asked = orjson.loads(request)
        big = asked.pop("big")
        self._model.show(Faults(**asked), big=big)
        return b""

    async def _big(self, _request: bytes, _context: object) -> bytes:
        self._model.calls += 1
        return BIG_ANSWER

    async def _count(self, _request: bytes, _context: object) -> bytes:
        return b"%d %d" % (self._model.calls, self._model.rows)


def show(port: int, faults: Faults, *, big: bool = False) -> None:
    """Make the server at a port do this wrong from now on."""
    _ask(port, SHOW, orjson.dumps({**asdict(faults), "big": big}))


def count(port: int) -> tuple[int, int]:
    """Return how many calls, and rows in them, the server at a port was asked for since its start."""
    calls, rows = _ask(port, COUNT, b"").split()
    return int(calls), int(rows)


def _ask(port: int, method: str, request: bytes) -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        return call(request, timeout=CONTROL_SECONDS, wait_for_ready=True)


async def serve(port: int, spec: ServeSpec, max_age_ms: int | None, http_port: int | None = None) -> None:
    """Serve until SIGTERM; connections older than ``max_age_ms`` are told to go away."""
    options: list[tuple[str, int]] = [("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)]
    if max_age_ms is not None:
        options += [("grpc.max_connection_age_ms", max_age_ms), ("grpc.max_connection_age_grace_ms", 5_000)]
    model = SwitchedModel(spec)
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((_Control(model), oip_handlers(ModelCatalog([model]))))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    if http_port is not None:
        from rigs.faults.http_model import HttpModel  # noqa: PLC0415 - it answers by this module's model

        await HttpModel(model, max_age_ms).serve(http_port, stopped)
    await stopped.wait()
    await server.stop(0.4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--serve", type=parse_serve_spec, required=True)
    parser.add_argument("--max-age-ms", type=int)
    parser.add_argument("--http-port", type=int)
    asked = parser.parse_args()
    asyncio.run(serve(asked.port, asked.serve, asked.max_age_ms, asked.http_port))


if __name__ == "__main__":
    main()
