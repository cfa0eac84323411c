"""Questions to the database: each has a deadline, few run at a time, and viewers of one page share one answer."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

import structlog

from understudy.errors import (
    DeadlineExceeded,
    InternalFault,
    MigrationNeeded,
    Overloaded,
    RegistryUnavailable,
    UnderstudyError,
)

_log = structlog.get_logger(__name__)
T = TypeVar("T")
READ_SECONDS = 8.0
"""Longest time of all questions of one page."""
ACT_SECONDS = 10.0
PLACES, ACT_PLACES, ASK_PLACES, LOGIN_PLACES = 4, 4, 4, 4
"""Pages that are read at a time, acts that are carried out, pages that ask before one, and keys that are tried at the
login: none of them waits for another kind."""
LOOK_PLACES, CHANGE_PLACES, START_PLACES, SEARCH_PLACES = 4, 4, 2, 2
"""The same of pages without a live part and dry runs, of changes of policies, of rollouts that are started, and of
searches of the log, which take seconds."""
REPORT_PLACES, REPORT_SECONDS = 2, 30.0
"""Reports that are computed at a time, and the longest time of one."""
START_SECONDS = 45.0
"""The warm-up alone may take most of it."""
WAIT_SECONDS = 2.0
"""Longest time that a question waits for a place."""
ASK_SECONDS, ASK_WAIT_SECONDS = 2.0, 1.0
"""Of the page that asks before an act: the way back does not wait for it."""
PATIENCE_SECONDS = 1.0
"""How long a newer answer is waited for where an earlier one is known."""
AGAIN_SECONDS = 2.0
"""How soon a topic is tried again that had no answer: one that is kept for long would keep its failure as long."""
RESTS = 2.0
"""Charts are left alone for so many times as long as they took: those of long rollouts take seconds of a core."""
MAX_TOPICS = 64
"""Pages whose last answer is kept; beyond that those asked for longest ago are forgotten."""
STALE_FACTOR = 3
"""An answer is stale when it is older than so many of its periods."""
_STAGE = "console"
_UNREADABLE = (RegistryUnavailable, MigrationNeeded, DeadlineExceeded, Overloaded)


class Kind(Enum):
    """What an answer is of that viewers share; each has places of its own."""

    PAGE = auto()
    REPORT = auto()
    CHARTS = auto()
    HEALTH = auto()
    """Of an examination, which waits for every model server."""


PLACES_OF = {Kind.PAGE: PLACES, Kind.REPORT: REPORT_PLACES, Kind.CHARTS: REPORT_PLACES, Kind.HEALTH: 1}


class Answer(NamedTuple):
    """What a page is made of."""

    value: Any
    read_at: float
    """Seconds since the epoch."""
    age_seconds: float
    problem: UnderstudyError | None = None
    """Why there is no newer answer."""
    is_late: bool = False
    """Whether a newer one is asked for, and has not come within :data:`PATIENCE_SECONDS`."""


@dataclass(slots=True)
class _Topic:
    value: Any = None
    read_at: float = 0.0
    read_monotonic: float = float("-inf")
    problem: UnderstudyError | None = None
    tried_monotonic: float = float("-inf")
    took_seconds: float = 0.0
    """How long the last try was, also one in vain."""
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
        self._acting = asyncio.Semaphore(ACT_PLACES)
        self._asking = asyncio.Semaphore(ASK_PLACES)
        self._looking, self._starting = asyncio.Semaphore(LOOK_PLACES), asyncio.Semaphore(START_PLACES)
        self._searching = asyncio.Semaphore(SEARCH_PLACES)
        self._places = {kind: asyncio.Semaphore(places) for kind, places in PLACES_OF.items()}
        self._changing = asyncio.Semaphore(CHANGE_PLACES)
        self._entering = asyncio.Semaphore(LOGIN_PLACES)

    async def shared(
        self,
        name: object,
        work: Callable[[], Awaitable[Any]],
        period_seconds: float,
        longest_seconds: float = READ_SECONDS,
        *,
        of: Kind = Kind.PAGE,
        first_seconds: float | None = None,
    ) -> Answer:
        """Return the answer to a topic's question, at most ``period_seconds`` old while Postgres answers at once.

        Where it does not, an earlier answer is returned after :data:`PATIENCE_SECONDS`. Each kind has its own places.
        Charts rest for :data:`RESTS` times as long as they took.
        With ``first_seconds`` the first one is waited for no longer than that, and is ``None`` while it is late.

        Raises:
            RegistryUnavailable, MigrationNeeded, DeadlineExceeded, Overloaded: There is no earlier answer either.
            InternalFault: It has a defect, and there is no earlier answer.
        """
        topic = self._topics.setdefault(name, _Topic())
        self._topics.move_to_end(name)
        self._forget(topic)
        pause = period_seconds if topic.problem is None else min(period_seconds, AGAIN_SECONDS)
        if of is Kind.CHARTS:
            pause = max(pause, (1 + RESTS) * topic.took_seconds)
        if topic.task is None and self._monotonic() - topic.tried_monotonic >= pause:
            topic.tried_monotonic = self._monotonic()
            places = self._places[of]
            topic.task = asyncio.create_task(self._renew(topic, work, places, longest_seconds))
        if topic.task is not None:
            # Waiting ends no question: others wait for it, too.
            patience = PATIENCE_SECONDS - (self._monotonic() - topic.tried_monotonic)
            await asyncio.wait((topic.task,), timeout=max(0.0, patience) if topic.is_known else first_seconds)
        if topic.problem is None and not topic.is_known:
            return Answer(None, 0.0, 0.0, is_late=True)
        if topic.problem is not None and not topic.is_known:
            raise topic.problem
        return self._answer(topic)

    def known(self, name: object) -> Answer | None:
        """Return a topic's last answer, however old it is; nothing is asked. ``None``: there is none."""
        topic = self._topics.get(name)
        return None if topic is None or not topic.is_known else self._answer(topic)

    async def anew(self, name: object, work: Callable[[], Awaitable[Any]], period_seconds: float) -> Answer:
        """Return an answer of a question that was begun after this call: something has told that it is another one.

        Raises:
            RegistryUnavailable, MigrationNeeded, DeadlineExceeded, Overloaded, InternalFault: As :meth:`shared`.
        """
        topic = self._topics.get(name)
        if topic is not None and topic.task is not None:
            await asyncio.wait((topic.task,))  # it may have read before the change; its own deadline bounds it
        if topic is not None:
            topic.tried_monotonic = float("-inf")
        answer = await self.shared(name, work, period_seconds)
        running = self._topics[name].task
        if answer.is_late and running is not None:
            await asyncio.wait((running,))  # no viewer waits here, and an earlier answer tells nothing
            answer = await self.shared(name, work, period_seconds)
        return answer

    def forget(self, name: object) -> None:
        """Have a topic read anew by the next one who asks: an act has changed it, also after a reading that goes on."""
        self._topics.pop(name, None)

    async def ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a page asks before an act.

        Raises:
            DeadlineExceeded: It took longer.
            Overloaded: Too many are asked.
        """
        return await within(self._asking, work, ASK_SECONDS, ASK_WAIT_SECONDS)

    async def look(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a page shows that is not shared: it has no part that renews itself.

        Raises:
            DeadlineExceeded: It took longer.
            Overloaded: Too many are read.
        """
        return await within(self._looking, work, READ_SECONDS)

    async def search(self, work: Callable[[], Awaitable[T]]) -> T:
        """Search the log: no page and no dry run waits for a place of these.

        Raises:
            DeadlineExceeded: It took longer.
            Overloaded: Too many are searched for.
        """
        return await within(self._searching, work, READ_SECONDS)

    async def change(self, work: Callable[[], Awaitable[T]]) -> T:
        """Change a policy, or restore one: no rollback waits for a place of these.

        Raises:
            DeadlineExceeded: It took longer; what it changed until then stays.
            Overloaded: Too many are under way.
        """
        return await within(self._changing, work, ACT_SECONDS)

    async def report(self, work: Callable[[], Awaitable[T]]) -> T:
        """Compute a report that is not shared.

        Raises:
            DeadlineExceeded: It took longer.
            Overloaded: Two others are computed.
        """
        return await within(self._places[Kind.REPORT], work, REPORT_SECONDS)

    async def start(self, work: Callable[[], Awaitable[T]]) -> T:
        """Start a rollout, which takes as long as the warm-up of its version.

        Raises:
            DeadlineExceeded: It took longer; what it changed until then stays.
            Overloaded: Too many are started.
        """
        return await within(self._starting, work, START_SECONDS)

    async def enter(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try a key at the login.

        Raises:
            DeadlineExceeded: It took longer.
            Overloaded: Too many are tried.
        """
        return await within(self._entering, work, READ_SECONDS)

    async def act(self, work: Callable[[], Awaitable[T]]) -> T:
        """Carry out an act.

        Raises:
            DeadlineExceeded: It took longer; what it changed until then stays.
            Overloaded: Too many are under way.
        """
        return await within(self._acting, work, ACT_SECONDS)

    def _answer(self, topic: _Topic) -> Answer:
        age, is_late = self._monotonic() - topic.read_monotonic, topic.task is not None
        return Answer(topic.value, topic.read_at, age, topic.problem, is_late)

    def _forget(self, kept: _Topic) -> None:
        """Forget the topics asked for longest ago, but none that is asked for now."""
        spare = len(self._topics) - MAX_TOPICS
        idle = [name for name, topic in self._topics.items() if topic.task is None and topic is not kept]
        for name in idle[: max(0, spare)]:
            del self._topics[name]

    async def _renew(
        self, topic: _Topic, work: Callable[[], Awaitable[Any]], places: asyncio.Semaphore, longest_seconds: float
    ) -> None:
        try:
            topic.value = await within(places, work, longest_seconds)
        except _UNREADABLE as problem:
            topic.problem = problem.as_value()
        except UnderstudyError as problem:  # there is no such thing any more: an earlier answer would be wrong
            topic.problem, topic.read_at = problem.as_value(), 0.0
        except Exception:  # noqa: BLE001 - a defect: else the page would wait for an answer that never comes
            _log.exception("console.failed")
            topic.problem = InternalFault("a page could not be made")
        else:
            topic.problem, topic.read_at, topic.read_monotonic = None, self._now(), self._monotonic()
        finally:
            topic.took_seconds = self._monotonic() - topic.tried_monotonic
            topic.task = None


async def within(
    places: asyncio.Semaphore, work: Callable[[], Awaitable[T]], seconds: float, wait_seconds: float | None = None
) -> T:
    """Return what work comes to, in one of few places.

    Raises:
        DeadlineExceeded: It took longer than ``seconds``.
        Overloaded: No place was free within ``wait_seconds``.
    """
    try:
        async with asyncio.timeout(WAIT_SECONDS if wait_seconds is None else wait_seconds):
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
