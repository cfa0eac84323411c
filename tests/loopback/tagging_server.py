"""A gRPC server, in a process of its own, whose answers can be told apart: each is made of its request and its tag.

``python -m loopback.tagging_server PORT MAX_STREAMS AGE_SECONDS [CERTIFICATE KEY]`` serves once its input has a line,
until SIGTERM, which it answers with GOAWAY; connections older than the age get one, too.
"""

import asyncio
import signal
import sys
from hashlib import blake2b
from pathlib import Path

import grpc
import grpc.aio

METHOD = "/test.Tagged/Answer"
MAX_REQUEST_BYTES = 16 * 1_048_576
GRACE_SECONDS = 1.0
HANGS = -1
"""Instead of a status: the call is not answered."""


def answer_of(request: bytes, tag: str, size: int) -> bytes:
    """Return the answer to a request: so many bytes, which no other request gets."""
    seen = blake2b(request + tag.encode(), digest_size=16).digest()
    return (seen * (size // 16 + 1))[:size]


class TaggingServer(grpc.GenericRpcHandler):
    """Answers as a call's metadata says: ``asked`` has the answer's size and the status."""

    def service(self, _details: object) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        fields = dict(context.invocation_metadata() or ())
        size, code = (int(number) for number in str(fields["asked"]).split())
        if code == HANGS:
            await asyncio.sleep(3_600)
        if code:
            by_number = {one.value[0]: one for one in grpc.StatusCode}
            await context.abort(by_number[code], str(fields["tag"]))
        return answer_of(request, str(fields["tag"]), size)


async def serve(port: int, max_streams: int, age_seconds: float, pair: list[bytes]) -> None:
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
            ("grpc.max_concurrent_streams", max_streams),
            ("grpc.max_connection_age_ms", int(age_seconds * 1_000)),
        )
    )
    server.add_generic_rpc_handlers((TaggingServer(),))
    if pair:
        chain, key = pair
        server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([(key, chain)]))
    else:
        server.add_insecure_port(f"127.0.0.1:{port}")
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    await server.start()
    await over.wait()
    await server.stop(GRACE_SECONDS)


if __name__ == "__main__":
    sys.stdin.readline()
    asyncio.run(
        serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), [Path(one).read_bytes() for one in sys.argv[4:]])
    )
