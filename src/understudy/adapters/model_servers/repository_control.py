"""``ServerControl`` over the model repository extension of the Open Inference Protocol, by gRPC.

The server reads models from a folder, which this machine shares with it: each is put there under its own name, as
``<name>/1/…``, before the server is told to load it.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import grpc

from understudy.adapters._proto.methods import (
    OIP_REPOSITORY_INDEX,
    OIP_REPOSITORY_LOAD,
    OIP_REPOSITORY_UNLOAD,
    OIP_SERVER_METADATA,
    OIP_SERVICE,
    oip_method,
)
from understudy.adapters._proto.understudy_oip_pb2 import (
    RepositoryIndexRequest,
    RepositoryIndexResponse,
    RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest,
    ServerMetadataRequest,
    ServerMetadataResponse,
)
from understudy.adapters.model_servers.repository_folder import RepositoryFolder
from understudy.errors import LoadRefused, ServerNotManageable

ASK_SECONDS: Final = 2.0
"""Longest question to the server."""
LOAD_SECONDS: Final = 300.0
UNLOAD_SECONDS: Final = 60.0
MAX_SAID: Final = 300
"""Characters of the server's words in an error."""
_READY: Final = "READY"
_IS_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.CANCELLED)


class RepositoryControl:
    """Controls the server at ``target`` through the models in ``repository``, a folder that the server reads."""

    def __init__(self, target: str, repository: Path) -> None:
        """Prepare; no connection is opened before the first call."""
        self._target = target
        self._folder = RepositoryFolder(repository)
        self._channel: grpc.aio.Channel | None = None

    async def describe(self) -> str:
        answer = await self._ask(OIP_SERVER_METADATA, ServerMetadataRequest(), ASK_SECONDS)
        metadata = ServerMetadataResponse.FromString(answer)
        return f"{metadata.name} {metadata.version}".strip()

    async def loaded(self) -> Collection[str]:
        answer = await self._ask(OIP_REPOSITORY_INDEX, RepositoryIndexRequest(ready=True), ASK_SECONDS)
        models = RepositoryIndexResponse.FromString(answer).models
        # Triton writes a reason beside READY where the model is being dropped.
        return frozenset(model.name for model in models if model.state == _READY and not model.reason)

    async def load(self, name: str, folder: Path) -> None:
        await self._folder.put(name, folder)
        await self._ask(OIP_REPOSITORY_LOAD, RepositoryModelLoadRequest(model_name=name), LOAD_SECONDS)
        if name not in await self.loaded():
            raise LoadRefused(f"the server says that it has loaded {name}, and does not list it as ready")

    async def unload(self, name: str) -> None:
        await self._ask(OIP_REPOSITORY_UNLOAD, RepositoryModelUnloadRequest(model_name=name), UNLOAD_SECONDS)
        if name in await self.loaded():
            raise LoadRefused(f"the server says that it has dropped {name}, and still lists it as ready")
        await self._folder.drop(name)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close(None)
        self._channel = None

    async def _ask(self, method: str, request: Any, seconds: float) -> bytes:
        if self._channel is None:
            # A server that is restarted is found again within a second.
            self._channel = grpc.aio.insecure_channel(self._target, [("grpc.max_reconnect_backoff_ms", 1_000)])
        call: Any = self._channel.unary_unary(oip_method(OIP_SERVICE, method))
        try:
            answer: bytes = await call(request.SerializeToString(), timeout=seconds)
        except grpc.aio.AioRpcError as refused:
            said = (refused.details() or refused.code().name)[:MAX_SAID]
            if refused.code() in _IS_AWAY or seconds == ASK_SECONDS:
                raise ServerNotManageable(f"the model server's control at {self._target}: {said}") from None
            raise LoadRefused(f"the model server says: {said}") from None
        return answer
