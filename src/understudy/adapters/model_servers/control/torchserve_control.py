"""``ServerControl`` over TorchServe's management API, which is JSON over HTTP.

TorchServe reads archives (``.mar``) from its model store, a folder that this machine shares with it, and from nowhere
below that. An archive brings its handler, which is code.

Source:
    TorchServe 0.12, ``docs/management_api.md`` and ``docs/model_api_control.md``.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import httpx2

from understudy.adapters.artifacts.bounded_thread import go_on_unless, in_bounded_thread
from understudy.adapters.model_servers.control.repository_control import (
    ANOTHER_KIND,
    ASK_SECONDS,
    LOAD_SECONDS,
    MAX_SAID,
    UNLOAD_SECONDS,
)
from understudy.adapters.model_servers.control.repository_folder import DROP_SECONDS, PUT_SECONDS, link_or_copy
from understudy.errors import LoadRefused, ServerNotManageable

ARCHIVE: Final = ".mar"
PAGE: Final = 100
"""Models of one page of the list."""
MAX_PAGES: Final = 100
"""Pages that are read: a list that goes on and on would keep the agent from all else."""
ASKED_TOGETHER: Final = 8
"""Questions to the server at a time: each model's workers are a question of their own."""
STARTED: Final = (
    "Start it empty: torchserve --start --foreground --ncs --disable-token-auth --enable-model-api "
    "--model-store FOLDER."
)
_NOT_FOUND: Final = 404
_ALWAYS_THERE: Final = ("/", "/models")
"""What every TorchServe answers: the description of its API, and the list of its models."""
_OF_LOGIN_OR_MODE: Final = (400, 401, 403, 405)
"""Without a token, where it wants one, and where its model API is off; TorchServe gives several of these for each."""


class TorchServeControl:
    """Controls the server whose management API is at ``target``; it reads its models from ``folder``."""

    def __init__(self, target: str, folder: Path, *, load_seconds: float = LOAD_SECONDS) -> None:
        """Prepare; no connection is opened before the first call."""
        self._target = target
        self._folder = folder
        self._load_seconds = load_seconds
        limits = httpx2.Limits(max_connections=ASKED_TOGETHER)
        self._client = httpx2.AsyncClient(
            base_url=f"http://{target}", trust_env=False, limits=limits, timeout=ASK_SECONDS
        )

    async def describe(self) -> str:
        info = _member(await self._asked("OPTIONS", "/"), "info")
        if _member(info, "title") != "TorchServe APIs":
            raise ServerNotManageable(
                f"what answers at {self._target} is no management API of TorchServe", hint=STARTED
            )
        return f"torchserve {_member(info, 'version') or ''}".strip()

    async def loaded(self) -> Collection[str]:
        names = await self._registered()
        are_ready = await asyncio.gather(*map(self._is_ready, names))
        return frozenset(name for name, is_ready in zip(names, are_ready, strict=True) if is_ready)

    async def load(self, name: str, folder: Path, framework: str) -> None:  # noqa: ARG002 - an archive brings its handler
        if await self._is_ready(name):
            return
        await self._drop(name)  # an agent that was killed, or has lost its lease, may have begun the load
        await self._put(name, folder)
        asked = {"url": f"{name}{ARCHIVE}", "model_name": name, "initial_workers": "1", "synchronous": "true"}
        await self._asked("POST", "/models", asked, seconds=self._load_seconds)
        if not await self._is_ready(name):
            raise LoadRefused(f"the server says that it has loaded {name}, and no worker of it is ready")

    async def unload(self, name: str) -> None:
        await self._drop(name)
        with suppress(OSError):  # what hangs or cannot be deleted stays: the next load of the model replaces it
            await in_bounded_thread(lambda _: self._path_of(name).unlink(missing_ok=True), DROP_SECONDS)

    async def close(self) -> None:
        await self._client.aclose()

    async def _registered(self) -> list[str]:
        names: list[str] = []
        page: object = "0"
        for _ in range(MAX_PAGES):
            found = await self._asked("GET", "/models", {"limit": str(PAGE), "next_page_token": str(page)})
            names += [str(_member(model, "modelName")) for model in _listed(_member(found, "models"))]
            page = _member(found, "nextPageToken")
            if page is None:
                return names
        raise ServerNotManageable(f"the model server's control at {self._target}: its list of models has no end")

    async def _is_ready(self, name: str) -> bool:
        """Return whether a worker has the model: one that is registered may have lost all of them."""
        with suppress(_NotThere):  # it is not registered, or no more
            for version in _listed(await self._asked("GET", f"/models/{quote(name, safe='')}")):
                return any(_member(worker, "status") == "READY" for worker in _listed(_member(version, "workers")))
        return False

    async def _drop(self, name: str) -> None:
        with suppress(_NotThere):
            await self._asked("DELETE", f"/models/{quote(name, safe='')}", seconds=UNLOAD_SECONDS)

    async def _put(self, name: str, source: Path) -> None:
        try:
            await in_bounded_thread(partial(self._put_archive, name, source), PUT_SECONDS)
        except OSError as problem:
            raise LoadRefused(f"{name} cannot be put into {self._folder}: {problem.strerror or problem}") from None

    def _put_archive(self, name: str, source: Path, given_up: Event) -> None:
        archives = sorted(source.glob(f"*{ARCHIVE}"))
        if len(archives) != 1:
            raise LoadRefused(f"the artifact has {len(archives)} archives (*{ARCHIVE}) at its root: agents load one")
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.glob(f".{name}~*.part"):  # by an agent that was cut off
            left.unlink(missing_ok=True)
        part = self._folder / f".{name}~{uuid4().hex}.part"
        try:
            link_or_copy(str(archives[0]), str(part))
            go_on_unless(given_up)
            part.replace(self._path_of(name))
        finally:
            part.unlink(missing_ok=True)

    def _path_of(self, name: str) -> Path:
        return self._folder / f"{name}{ARCHIVE}"

    async def _asked(
        self, method: str, path: str, asked: Mapping[str, str] | None = None, *, seconds: float = ASK_SECONDS
    ) -> Any:
        """Return the JSON of the answer.

        Raises:
            ServerNotManageable: It does not answer, cannot say what it has, or lets nothing be loaded.
            LoadRefused: It refuses, in its own words.
        """
        where = f"the model server's control at {self._target}"
        try:
            answer = await self._client.request(method, path, params=asked, timeout=seconds)
            found = answer.json()
        except httpx2.TimeoutException:
            if seconds == ASK_SECONDS:
                raise ServerNotManageable(f"{where} does not answer within {seconds:g} s", hint=STARTED) from None
            raise LoadRefused(f"the model server has not done it after {seconds:g} s") from None
        except (httpx2.RemoteProtocolError, ValueError) as problem:
            raise ServerNotManageable(f"{where}: {_words(str(problem))}{ANOTHER_KIND}", hint=STARTED) from None
        except httpx2.TransportError as problem:
            raise ServerNotManageable(f"{where}: {_words(str(problem) or 'no answer')}", hint=STARTED) from None
        if answer.is_success:
            return found
        said = _words(str(_member(found, "message") or f"status {answer.status_code}"))
        if answer.status_code == _NOT_FOUND and path not in _ALWAYS_THERE:
            raise _NotThere(f"the model server says: {said}")
        # What it cannot say now is not known: a model of which it says nothing is not taken for one that it has lost.
        if answer.status_code in _OF_LOGIN_OR_MODE or seconds == ASK_SECONDS:
            raise ServerNotManageable(f"{where}: {said}", hint=STARTED)
        raise LoadRefused(f"the model server says: {said}")


class _NotThere(LoadRefused):
    """The server has no such model."""


def _words(said: str) -> str:
    return " ".join(said.split())[:MAX_SAID]


def _member(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _listed(document: Any) -> Sequence[Any]:
    return document if isinstance(document, list) else ()
