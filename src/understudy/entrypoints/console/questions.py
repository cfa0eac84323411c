"""Questions to the database: each has a deadline, few run at a time, and viewers of one page share one answer."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from understudy.errors import DeadlineExceeded, MigrationNeeded, Overloaded, RegistryUnavailable, UnderstudyError

T = TypeVar("T")
READ_SECONDS = 8.0
"""Longest time of all questions of one page."""
ACT_SECONDS = 10.0
PLACES, ACT_PLACES = 4, 4
"""Pages that are read at a time, and acts that are carried out at a time: no act waits for a page."""
WAIT_SECONDS = 2.0
MAX_TOPICS = 64
"""Pages whose last answer is kept; beyond that those asked for longest ago are forgotten."""
STALE_FACTOR = 3
"""An answer is stale when it is older than so many of its periods."""
_STAGE = "console"
_UNREADABLE = (RegistryUnavailable, MigrationNeeded, DeadlineExceeded, Overloaded)


class Answer(NamedTuple):
    """What a page is made of."""

    value: Any
    read_at: float
    """Seconds since the epoch."""
    age_seconds: float
    problem: UnderstudyError | None = None
    """Why there is no newer answer."""


@dataclass(slots=True)
class _Topic:
    value: Any = None
    read_at: float = 0.0
    read_monotonic: float = float("-inf")
    problem: UnderstudyError | None = None
    tried_monotonic: float = float("-inf")
    task: asyncio.Task[None] | None = None

    @property
    def is_known(self) -> bool:
        return self.read_at > 0


class Questions:
    """The console's questions, shared by all viewers: what the database is asked does not grow with them."""

    def __init__(self, now: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._monotonic = monotonic
        self._topics: OrderedDict[object, _Topic] = OrderedDict()
        self._reading = asyncio.Semaphore(PLACES)
        self._acting = asyncio.Semaphore(ACT_PLACES)

    async def shared(self, name: object, work: Callable[[], Awaitable[Any]], period_seconds: float) -> Answer:
        """Return the answer to a topic's question, at most ``period_seconds`` old while Postgres answers.

        Raises:
            RegistryUnavailable, MigrationNeeded, DeadlineExceeded, Overloaded: There is no earlier answer either.
        """
        topic = self._topics.setdefault(name, _Topic())
        self._topics.move_to_end(name)
        while len(self._topics) > MAX_TOPICS:
            self._topics.popitem(last=False)
        if topic.task is None and self._monotonic() - topic.tried_monotonic >= period_seconds:
            topic.task = asyncio.create_task(self._renew(topic, work))
        if topic.task is not None:
            # Shielded: a viewer that leaves ends no question that others wait for.
            await asyncio.shield(topic.task)
        if topic.problem is not None and not topic.is_known:
            raise topic.problem
        return Answer(topic.value, topic.read_at, self._monotonic() - topic.read_monotonic, topic.problem)

    async def alone(self, work: Callable[[], Awaitable[T]], seconds: float = READ_SECONDS) -> T:
        """Return the answer to a question of one page.

        Raises:
            DeadlineExceeded: It took longer.
            Overloaded: Too many are asked.
        """
        return await _within(self._reading, work, seconds)

    async def act(self, work: Callable[[], Awaitable[T]]) -> T:
        """Carry out an act.

        Raises:
            DeadlineExceeded: It took longer; what it changed until then stays.
            Overloaded: Too many are under way.
        """
        return await _within(self._acting, work, ACT_SECONDS)

    async def _renew(self, topic: _Topic, work: Callable[[], Awaitable[Any]]) -> None:
        topic.tried_monotonic = self._monotonic()
        try:
            topic.value = await _within(self._reading, work, READ_SECONDS)
        except _UNREADABLE as problem:
            topic.problem = problem.as_value()
        except UnderstudyError as problem:  # there is no such thing any more: an earlier answer would be wrong
            topic.problem, topic.read_at = problem.as_value(), 0.0
        else:
            topic.problem, topic.read_at, topic.read_monotonic = None, self._now(), self._monotonic()
        finally:
            topic.task = None


async def _within(places: asyncio.Semaphore, work: Callable[[], Awaitable[T]], seconds: float) -> T:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await places.acquire()
    except TimeoutError:
        raise Overloaded("too many pages of the console are read, or acts carried out") from None
    try:
        async with asyncio.timeout(seconds):
            return await work()
    except TimeoutError:
        raise DeadlineExceeded(_STAGE, seconds) from None
    finally:
        places.release()
