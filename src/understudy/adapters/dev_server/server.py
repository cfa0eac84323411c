"""The development model server: real ONNX models behind TF Serving's API and the Open Inference Protocol, over gRPC."""

from collections.abc import Sequence
from typing import Final, Self

import grpc

from understudy.adapters._proto import methods
from understudy.adapters.dev_server.catalog import ModelCatalog
from understudy.adapters.dev_server.oip import oip_handlers
from understudy.adapters.dev_server.repository import ModelRepository, repository_handlers
from understudy.adapters.dev_server.tfserving import tfserving_handlers
from understudy.errors import BackendUnavailable

MESSAGE_LIMIT_BYTES: Final = 16 * 1_048_576
CALL_LIMIT: Final = 1_024
"""Calls at once; more are refused with RESOURCE_EXHAUSTED."""
GRACE_SECONDS: Final = 0.4
"""Graceful shutdown: what calls in flight get when the server stops."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    # Two servers on one port would silently share its calls.
    ("grpc.so_reuseport", 0),
)


class _GrpcServer:
    """A gRPC server; enter it to listen, leave it to stop."""

    def __init__(self, handlers: Sequence[grpc.GenericRpcHandler], host: str, port: int) -> None:
        self.port = port
        self._handlers = handlers
        self._host = host
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen; ``port`` is the real one from here on.

        Raises:
            BackendUnavailable: If the place is taken or not ours.
        """
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALL_LIMIT)
        server.add_generic_rpc_handlers(self._handlers)
        try:
            self.port = server.add_insecure_port(f"{self._host}:{self.port}")
        except RuntimeError:
            raise BackendUnavailable(
                f"cannot listen on {self._host}:{self.port}", hint="Choose another port, or 0 for a free one."
            ) from None
        await server.start()
        self._server = server
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)


class InferenceServer(_GrpcServer):
    """A gRPC server over a catalog; enter it to listen, leave it to stop. It speaks both protocols.

    The Open Inference Protocol is offered under its own service path and under the one that TorchServe uses.
    """

    def __init__(self, catalog: ModelCatalog, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take the address to listen at; port 0 takes a free one."""
        handlers = (
            *tfserving_handlers(catalog),
            oip_handlers(catalog),
            oip_handlers(catalog, methods.OIP_SERVICE_OF_TORCHSERVE),
        )
        super().__init__(handlers, host, port)


class ControlServer(_GrpcServer):
    """The control of a catalog's models, for an agent on this machine: it listens on the loopback address alone."""

    def __init__(self, repository: ModelRepository, port: int = 0) -> None:
        """Take the port to listen at; port 0 takes a free one."""
        super().__init__((repository_handlers(repository),), "127.0.0.1", port)
