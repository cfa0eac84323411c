"""``ServerControl`` over the model repository extension of the Open Inference Protocol, by gRPC.

Our own model server, MLServer and Triton have it. The server reads models from a folder, which this machine shares with
it: each is put there under its own name before the server is told to load it.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
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
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.status import why_no_connection
from understudy.errors import LoadRefused, ServerNotManageable

ASK_SECONDS: Final = 2.0
"""Longest question to the server."""
LOAD_SECONDS: Final = 300.0
"""Longest load, its files included."""
UNLOAD_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.25
"""Pause between two looks at a model that is being loaded or dropped."""
MAX_SAID: Final = 300
"""Characters of the server's words in an error."""
ANOTHER_KIND: Final = "; it may be another kind of server than UNDERSTUDY_SERVER_KIND says"
NAMES: Final = {"understudy": "understudy-modelserver", "mlserver": "mlserver", "triton": "triton"}
"""What servers call themselves, by ``UNDERSTUDY_SERVER_KIND``."""
STARTED: Final = {
    "understudy": "Start it with its control on: understudy modelserver --repository FOLDER --control-port PORT.",
    "mlserver": "Start it empty, without worker processes: MLSERVER_LOAD_MODELS_AT_STARTUP=false "
    "MLSERVER_PARALLEL_WORKERS=0 mlserver start FOLDER.",
    "triton": "Start it empty: tritonserver --model-repository=FOLDER --model-control-mode=explicit.",
}
"""How a server is started that an agent can load into, by kind."""
_READY: Final = "READY"
_MOVING: Final = ("LOADING", "UNLOADING")
_IS_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.CANCELLED)
_NOT_ALLOWED: Final = "explicit model load / unload is not allowed"
"""Triton's words where it was started in another mode; their status is that of a server that is away."""


class _NotThere(LoadRefused):
    """The server has no such model."""


class RepositoryControl:
    """Controls the server at ``target`` through the models in ``folder``, which the server reads."""

    def __init__(
        self, target: str, folder: RepositoryFolder, kind: str | None = None, *, load_seconds: float = LOAD_SECONDS
    ) -> None:
        """Prepare; no connection is opened before the first call. ``kind`` is ``UNDERSTUDY_SERVER_KIND``."""
        self._target = target
        self._folder = folder
        self._kind = kind
        self._load_seconds = load_seconds
        # MLServer says UNKNOWN of a model that it loads, and of none that has ended.
        self._moving = (*_MOVING, "UNKNOWN") if kind == "mlserver" else _MOVING
        self._channel: grpc.aio.Channel | None = None

    async def describe(self) -> str:
        answer = await self._ask(OIP_SERVER_METADATA, ServerMetadataRequest(), ASK_SECONDS)
        metadata = ServerMetadataResponse.FromString(answer)
        self._check_kind(metadata.name)
        return f"{metadata.name} {metadata.version}".strip()

    def _check_kind(self, name: str) -> None:
        """Refuse a server of another kind: it would read files that lie as it does not expect, or run code in them.

        People may give MLServer and Triton names of their own, so these are known by not being another kind's.
        """
        its_kind = next((kind for kind, known in NAMES.items() if known == name), None)
        if self._kind is not None and its_kind != self._kind and (its_kind or self._kind == "understudy"):
            known = f"UNDERSTUDY_SERVER_KIND={its_kind}" if its_kind else "UNDERSTUDY_SERVER_KIND=mlserver or triton"
            raise ServerNotManageable(
                f"the model server at {self._target} is {_words(name)!r}, and UNDERSTUDY_SERVER_KIND says {self._kind}",
                hint=f"Start the agent with {known}, or name another server in UNDERSTUDY_SERVER_CONTROL.",
            )

    async def loaded(self) -> Collection[str]:
        return frozenset(model.name for model in await self._index() if _is_ready(model))

    async def load(self, name: str, folder: Path, framework: str) -> None:
        try:
            async with asyncio.timeout(self._load_seconds):
                await self._load(name, folder, framework)
        except TimeoutError:
            raise LoadRefused(f"{name} is not loaded after {self._load_seconds:g} s") from None

    async def _load(self, name: str, folder: Path, framework: str) -> None:
        """Load a model whose files no server reads meanwhile, and no file of which is copied for a server that refuses.

        An agent that was killed, or has lost its lease, may have begun the load.
        """
        listed = await self._settled(name)
        if listed is not None and _is_ready(listed):
            return
        await self._drop(name)
        await self._folder.put(name, folder, framework)
        await self._ask(OIP_REPOSITORY_LOAD, RepositoryModelLoadRequest(model_name=name), self._load_seconds)
        listed = await self._settled(name)
        if listed is None or not _is_ready(listed):
            state = "nothing" if listed is None else _words(f"{_state_of(listed)} {listed.reason}")
            raise LoadRefused(f"the server says that it has loaded {name}, and lists it as {state}")

    async def unload(self, name: str) -> None:
        try:
            async with asyncio.timeout(UNLOAD_SECONDS):
                await self._drop(name)
        except TimeoutError:
            raise LoadRefused(f"{name} is not dropped after {UNLOAD_SECONDS:g} s") from None
        await self._folder.drop(name)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close(None)
        self._channel = None

    async def _drop(self, name: str) -> None:
        with suppress(_NotThere):
            await self._ask(OIP_REPOSITORY_UNLOAD, RepositoryModelUnloadRequest(model_name=name), UNLOAD_SECONDS)
        listed = await self._settled(name)
        if listed is not None and _is_ready(listed):
            raise LoadRefused(f"the server says that it has dropped {name}, and still lists it as ready")

    async def _settled(self, name: str) -> RepositoryIndexResponse.ModelIndex | None:
        """Return what the server lists of a model once it is neither being loaded nor dropped; ``None``: nothing.

        Triton answers an unload before it is done.
        """
        while True:
            listed = next((model for model in await self._index() if model.name == name), None)
            if listed is None or _state_of(listed) not in self._moving:
                return listed
            await asyncio.sleep(LOOK_SECONDS)

    async def _index(self) -> Collection[RepositoryIndexResponse.ModelIndex]:
        answer = await self._ask(OIP_REPOSITORY_INDEX, RepositoryIndexRequest(), ASK_SECONDS)
        return RepositoryIndexResponse.FromString(answer).models

    async def _ask(self, method: str, request: Any, seconds: float) -> bytes:
        if self._channel is None:
            # A server that is restarted is found again within a second.
            self._channel = grpc.aio.insecure_channel(self._target, [("grpc.max_reconnect_backoff_ms", 1_000)])
        call: Any = self._channel.unary_unary(oip_method(OIP_SERVICE, method))
        try:
            answer: bytes = await call(request.SerializeToString(), timeout=seconds)
        except grpc.aio.AioRpcError as refused:
            said = why_refused(refused)
            if refused.code() in _IS_AWAY or seconds == ASK_SECONDS:
                advice = "; start it with --model-control-mode=explicit" if _NOT_ALLOWED in said else ""
                what = f"the model server's control at {self._target}: {said}{advice}"
                raise ServerNotManageable(what, hint=STARTED.get(self._kind or "")) from None
            kind = _NotThere if refused.code() is grpc.StatusCode.NOT_FOUND else LoadRefused
            raise kind(f"the model server says: {said}") from None
        return answer


def _is_ready(model: RepositoryIndexResponse.ModelIndex) -> bool:
    # Triton writes a reason beside READY where the model is being dropped.
    return _state_of(model) == _READY and not model.reason


def _state_of(model: RepositoryIndexResponse.ModelIndex) -> str:
    # MLServer 1.7 on Python 3.11 or newer writes its enum's name before the state.
    return model.state.removeprefix("State.")


def why_refused(refused: grpc.aio.AioRpcError) -> str:
    """Return in one line why a call to a server's control failed; gRPC's own words of a refused connection are long."""
    said = why_no_connection(refused) or _words(refused.details() or refused.code().name)
    return f"{said}{ANOTHER_KIND}" if refused.code() is grpc.StatusCode.UNIMPLEMENTED else said


def _words(said: str) -> str:
    """Return what a server said in one line: it may be a traceback."""
    return " ".join(said.split())[:MAX_SAID]
