"""Watches: each open page is read once for all its viewers, and they are told when it changed."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple, Protocol

import structlog

from understudy.errors import Overloaded, UnderstudyError

_log = structlog.get_logger(__name__)
WATCHES = "understudy.watches"
"""Key of a process's watches in the server's state, which ends them before it waits for what is under way."""
_UNREAD = "unread"
"""Digest of a page that cannot be read; a page that is open would show its earlier figures as if they were new."""


class Reading(Protocol):
    """Reads a page."""

    async def __call__(self, *, is_told: bool) -> str:
        """Return a digest of what it shows; ``is_told``: of what was read after the call."""


class Topic(NamedTuple):
    """A page that is watched."""

    name: Hashable
    """Names what all viewers of it see alike."""
    model_name: str | None
    """The model that it is of; ``None``: of all."""
    read: "Reading"
    """Reads what it shows."""
    period_seconds: float
    """How often it is read while nothing tells of a change."""
    rest_seconds: float
    """Shortest time between two readings: a model that changes all the time costs no more than that."""


class Watch:
    """One page that is watched.

    Args:
        topic: The page.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.digest = ""
        """Of what it shows; empty before the first reading."""
        self.viewers = 0
        self.task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Have it read anew at once: a change was told."""
        self._moved.set()

    def release(self) -> None:
        """Let each viewer look at what is there."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, seen: str, seconds: float) -> None:
        """Wait until the digest is another one than ``seen``, at most so long."""
        if self.digest not in ("", seen):
            return
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Read it again and again until cancelled."""
        is_told = False
        while True:
            self._moved.clear()
            try:
                digest = await self.topic.read(is_told=is_told)
            except UnderstudyError as problem:  # pages are told, ask, and say that there is no answer
                digest = f"{_UNREAD} {problem.code}"
            except Exception:  # noqa: BLE001 - a defect: the others are watched on, and this one is tried again
                _log.exception("console.failed")
                digest = _UNREAD
            if digest != self.digest:
                self.digest = digest
                self.release()
            await asyncio.sleep(self.topic.rest_seconds)
            is_told = await self._is_told(self.topic.period_seconds - self.topic.rest_seconds)

    async def _is_told(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._moved.wait()
        except TimeoutError:
            return False


class Watches:
    """What is watched at this moment: as many topics as pages are open, however many viewers each has.

    Args:
        max_viewers: Viewers at a time.
    """

    def __init__(self, max_viewers: int) -> None:
        self._max_viewers = max_viewers
        self.viewers = 0
        self._watches: dict[Hashable, Watch] = {}
        self.has_ended = False
        """Whether the process ends: no stream goes on."""

    def require_place(self) -> None:
        """Go on only while one more viewer may watch.

        Raises:
            Overloaded: Too many do.
        """
        if self.viewers >= self._max_viewers or self.has_ended:
            raise Overloaded(f"{self._max_viewers} pages are live at this console, and no more may be")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a viewer while the context is open: from before anything is sent, which may wait for its browser."""
        self.viewers += 1
        try:
            yield
        finally:
            self.viewers -= 1

    @asynccontextmanager
    async def watching(self, topic: Topic) -> AsyncIterator[Watch]:
        """Watch a page while the context is open."""
        watch = self._watches.setdefault(topic.name, Watch(topic))
        watch.viewers += 1
        if watch.task is None:
            watch.task = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            watch.viewers -= 1
            if not watch.viewers:
                watch.task.cancel()
                del self._watches[topic.name]

    def moved(self, model_name: str | None) -> None:
        """Have pages of a model read anew, and those of all models; ``None``: every page."""
        for watch in self._watches.values():
            if model_name is None or watch.topic.model_name in (None, model_name):
                watch.wake()

    def end(self) -> None:
        """End every stream: the process does."""
        self.has_ended = True
        for watch in self._watches.values():
            watch.release()
