"""``ServerControl`` over TensorFlow Serving's configuration, which is total: it drops each model that it leaves out.

So one object makes all changes, one after the other, and gives the server the whole configuration each time. No call
lists it. What of it an agent before has given is known by the folders of the models: each is there before its model is
in a configuration, and goes after it is in none; which of them the server has, it says itself.

Source:
    TensorFlow Serving, ``model_servers/server_core.cc`` and ``sources/storage_path``; a wait that has no end is
    tensorflow/serving#1565.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

from understudy.adapters._proto.understudy_tfserving_pb2 import ModelVersionStatus
from understudy.adapters.artifacts.bounded_thread import in_bounded_thread
from understudy.adapters.model_servers.control.kept_model import kept_name, kept_path
from understudy.adapters.model_servers.control.model_service import (
    RELOAD_SECONDS,
    STARTED,
    ModelService,
    as_said,
)
from understudy.adapters.model_servers.control.repository_control import LOAD_SECONDS, LOOK_SECONDS, UNLOAD_SECONDS
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import LAYOUTS
from understudy.adapters.model_servers.control.server_start import ServerStart
from understudy.core.loading.served_name import SERVED_VERSION, is_served_name
from understudy.errors import LoadRefused, ServerNotManageable

NOT_YET_SECONDS: Final = 5.0
"""How long a server may say nothing of a model that it was given: it looks for its files once a second."""
LIST_SECONDS: Final = 10.0
_AVAILABLE: Final = ModelVersionStatus.AVAILABLE
_END: Final = ModelVersionStatus.END


class TfServingControl:
    """Controls the server at ``target`` through the models in ``folder``, which the server reads.

    Args:
        target: ``host:port`` of its gRPC port.
        folder: The models.
        seen_as: The path of that folder as the server sees it; by default the same.
        load_seconds: Longest load, its files included.
        reload_seconds: Longest wait for the answer to a configuration, after which the server is looked at instead.
        not_yet_seconds: How long it may say nothing of a model that it was given.
    """

    def __init__(
        self,
        target: str,
        folder: Path,
        seen_as: PurePath | None = None,
        *,
        load_seconds: float = LOAD_SECONDS,
        reload_seconds: float = RELOAD_SECONDS,
        not_yet_seconds: float = NOT_YET_SECONDS,
    ) -> None:
        """Prepare; no connection is opened before the first call."""
        self._service = ModelService(target, reload_seconds=reload_seconds)
        self._folder = folder
        self._seen_as = folder.absolute() if seen_as is None else seen_as
        self._files = RepositoryFolder(folder, LAYOUTS["tfserving"])
        self._start = ServerStart(self._service, folder)
        self._load_seconds = load_seconds
        self._not_yet_seconds = not_yet_seconds
        self._one_change = asyncio.Lock()

    async def describe(self) -> str:
        """Return what the present start of the server is called: of its build it says nothing.

        What was found out about a version holds for a build. So it holds until the server is started again, since that
        may be another one.
        """
        return f"tensorflow-serving start-{(await self._start.present()).name}"

    async def loaded(self) -> Collection[str]:
        await self._start.present()  # a server without models is to answer too
        return frozenset(name for name, status in (await self._statuses()).items() if status.state == _AVAILABLE)

    async def load(self, name: str, folder: Path, framework: str) -> None:
        async with self._one_change:
            try:
                async with asyncio.timeout(self._load_seconds):
                    await self._load(name, folder, framework)
            except TimeoutError:
                raise LoadRefused(f"{name} is not loaded after {self._load_seconds:g} s") from None

    async def unload(self, name: str) -> None:
        async with self._one_change:
            try:
                async with asyncio.timeout(UNLOAD_SECONDS):
                    await self._drop(name)
            except TimeoutError:
                raise LoadRefused(f"{name} is not dropped after {UNLOAD_SECONDS:g} s") from None
            await self._files.drop(name)

    async def close(self) -> None:
        await self._service.close()

    # -- one model -----------------------------------------------------------------------------------------------------

    async def _load(self, name: str, folder: Path, framework: str) -> None:
        """Load a model; an agent that was killed, or has lost its lease, may have begun that."""
        await self._introduce()
        there = await self._settled()
        if name in there and there[name].state == _AVAILABLE:
            return
        if await self._service.status(name) is not None:
            # A model that has failed is in the configuration still, and the server tries it again once it was out.
            await self._give(there.keys() - {name})
        await self._files.put(name, folder, framework)
        problem = await self._give(there.keys() | {name})
        status = await self._outcome(name)
        if status is None or status.state != _AVAILABLE:
            await self._take_back(name)
            said = "" if status is None else status.status.error_message
            raise LoadRefused((as_said(said) if said else problem) or f"the model server says nothing of {name}")

    async def _drop(self, name: str) -> None:
        """Leave a model out, and wait until the server has dropped it; calls that it answers with it end before."""
        if await self._service.status(name) is None:
            return
        there = await self._settled()
        problem = await self._give(there.keys() - {name})
        give_up = asyncio.get_running_loop().time() + self._not_yet_seconds
        while True:
            status = await self._service.status(name)
            if status is None or status.state == _END:
                return
            if problem and asyncio.get_running_loop().time() > give_up:
                raise LoadRefused(problem)
            await asyncio.sleep(LOOK_SECONDS)

    async def _outcome(self, name: str) -> ModelVersionStatus | None:
        """Return what became of a model that the server was given; ``None``: it says nothing of it.

        It says for a moment what it said before, which is nothing, or the end of the model when it was left out.
        """
        give_up = asyncio.get_running_loop().time() + self._not_yet_seconds
        while True:
            status = await self._service.status(name)
            is_late = asyncio.get_running_loop().time() > give_up
            if status is None or (status.state == _END and not status.status.error_code):
                if is_late:
                    return status
            elif status.state in (_AVAILABLE, _END):
                return status
            await asyncio.sleep(LOOK_SECONDS)

    async def _take_back(self, name: str) -> None:
        """Leave a model out that has failed: the next one's configuration is not to have it."""
        with suppress(ServerNotManageable):
            await self._give((await self._settled()).keys() - {name})
            await self._files.drop(name)

    # -- the server ----------------------------------------------------------------------------------------------------

    async def _introduce(self) -> None:
        """Give a server that was started anew the kept model, before all others.

        A first configuration of which a model fails leaves TensorFlow Serving in a state in which it waits for that for
        ever. So does one with a folder that it does not see, which this model is to show.

        Raises:
            ServerNotManageable: It does not see the folder.
        """
        start, has_kept_model = await self._start.present()
        if not has_kept_model:
            problem = await self._give((await self._settled()).keys()) or "it says nothing of it"
            if await self._outcome(kept_name(start)) is None:
                raise ServerNotManageable(
                    f"the model server does not see {self._seen_as / kept_path(start)}: {problem}",
                    hint="Name the folder models of the stage as the server sees it in UNDERSTUDY_SERVER_MODELS_DIR, "
                    f"and start the server again, which waits for that folder now. {STARTED}",
                )
            await self._start.drop_others()

    async def _give(self, names: Collection[str]) -> str:
        """Give the server these models and the kept one, and no other."""
        start = (await self._start.present()).name
        paths = {kept_name(start): kept_path(start), **{name: name for name in sorted(names)}}
        return await self._service.reload({name: str(self._seen_as / path) for name, path in paths.items()})

    async def _settled(self) -> Mapping[str, ModelVersionStatus]:
        """Return what is loaded, once nothing is being loaded any more: the server takes no configuration meanwhile."""
        while True:
            there = {name: status for name, status in (await self._statuses()).items() if status.state != _END}
            if all(status.state == _AVAILABLE for status in there.values()):
                return there
            await asyncio.sleep(LOOK_SECONDS)

    async def _statuses(self) -> Mapping[str, ModelVersionStatus]:
        """Return what the server says of each model that has a folder."""
        try:
            names = await in_bounded_thread(lambda _: self._names(), LIST_SECONDS)
        except OSError as problem:
            raise ServerNotManageable(f"{self._folder} cannot be read: {problem.strerror or problem}") from None
        statuses = await asyncio.gather(*map(self._service.status, names))
        return {name: status for name, status in zip(names, statuses, strict=True) if status is not None}

    def _names(self) -> list[str]:
        """Return what agents have put there whole; a model's own name may begin with a dot."""
        there = [path.parent.name for path in self._folder.glob(f"*/{SERVED_VERSION}")]
        return [name for name in there if is_served_name(name)]
