"""``ServerControl`` over the model repository extension of the Open Inference Protocol, by gRPC.

The server reads models from a folder, which this machine shares with it: each is put there under its own name, as
``<name>/1/…``, before the server is told to load it.
"""

import asyncio
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

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
from understudy.core.loading.served_name import SERVED_VERSION
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
        self._repository = repository
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
        try:
            await asyncio.to_thread(_put, folder, self._repository, name)
        except OSError as problem:
            raise LoadRefused(f"{name} cannot be put into {self._repository}: {problem.strerror}") from None
        await self._ask(OIP_REPOSITORY_LOAD, RepositoryModelLoadRequest(model_name=name), LOAD_SECONDS)
        if name not in await self.loaded():
            raise LoadRefused(f"the server says that it has loaded {name}, and does not list it as ready")

    async def unload(self, name: str) -> None:
        await self._ask(OIP_REPOSITORY_UNLOAD, RepositoryModelUnloadRequest(model_name=name), UNLOAD_SECONDS)
        if name in await self.loaded():
            raise LoadRefused(f"the server says that it has dropped {name}, and still lists it as ready")
        await asyncio.to_thread(shutil.rmtree, self._repository / name, ignore_errors=True)

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


def _put(folder: Path, repository: Path, name: str) -> None:
    """Put a staged folder's files into the repository, as hard links where the file system is the same.

    The server sees all of it or nothing: it gets its name at the end. What an agent left that was cut off goes; an
    agent that has lost its lease, and copies still, fails by that.
    """
    # No name of a model has a ~: the parts of another one are not taken for this one's.
    for left in repository.glob(f".{name}~*.part"):
        shutil.rmtree(left, ignore_errors=True)
    part, place = repository / f".{name}~{uuid4().hex}.part", repository / name
    part.mkdir(parents=True)
    shutil.copytree(folder, part / SERVED_VERSION, copy_function=_link_or_copy)
    shutil.rmtree(place, ignore_errors=True)
    part.rename(place)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
