"""The least gRPC server that ``grpc.aio`` makes: a unary handler that returns a constant, as long as our own answer.

python -m loadtests.grpc_echo PORT
"""

import asyncio
import signal
import sys

import grpc
import grpc.aio
import uvloop

from understudy.adapters._proto import understudy_oip_pb2 as oip


def answer() -> bytes:
    """Return what a ``ModelInfer`` call of one row is answered with, receipt and all."""
    found = oip.ModelInferResponse(model_name="bench", model_version="1", id="1")
    found.parameters["prediction_id"].string_param = "01a1fa3d-d729-7257-ba41-af1b3c130b99"
    found.parameters["generation"].int64_param = 1
    found.parameters["role"].string_param = "champion"
    found.outputs.add(name="probabilities", datatype="FP32", shape=[1, 2])
    found.raw_output_contents.append(bytes(8))
    return found.SerializeToString()


class Echo(grpc.GenericRpcHandler):
    """Answers every method."""

    def __init__(self) -> None:
        self._answer = answer()
        self._handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._handle)

    def service(self, _details: object) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Return what handles a method."""
        return self._handler

    async def _handle(self, _request: bytes, _context: object) -> bytes:
        return self._answer


async def _serve(port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await stopped.wait()
    await server.stop(None)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1])))
