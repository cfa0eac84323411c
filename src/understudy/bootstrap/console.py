"""What the operator console works with: the stores of its questions and acts, and the look-up of keys."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from pydantic import SecretStr

from understudy.adapters.postgres.registry.key_lookup import PostgresKeyLookup
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.bootstrap.prediction_log.lake_reads import lake_place_of
from understudy.bootstrap.session import Session
from understudy.core.routing.policy import ServingPolicy
from understudy.errors import Overloaded
from understudy.experiments.log_replay import ReplayFinding, ReplayWanted
from understudy.ports.registry.key_lookup import KeyLookup
from understudy.ports.registry.policy import PolicyChange
from understudy.registry.findings.finding import Finding
from understudy.rollout.warm_up.warm_up import require_ready
from understudy.settings import Settings

T = TypeVar("T")
REPORTS = 2
"""Reports that are computed at a time."""
REPORT_SECONDS = 30.0
"""Longest time of one."""
ANSWER_SECONDS = 10.0
"""Longest time that Postgres has for one question to the log or to outcomes."""


class ConsoleParts(NamedTuple):
    """What a console process has open; no connection but the listening one outlives its question."""

    session: Session
    """For pages."""
    acts: Session
    """For acts, which must not get a connection that pages share."""
    keys: KeyLookup
    environment: str
    """This installation's name, by which its alerts are found."""
    budget_ratio: float
    """The challenger's share of a deadline, where the champion may stand in for it."""
    require_ready: Callable[[str, str], Awaitable[None]]
    """Goes on only when the model servers of a model's version answer a warm-up; raises ``VersionNotReady``."""
    examine: Callable[[], Awaitable[Sequence[Finding]]]
    """Finds what ``understudy doctor`` finds."""
    policy_of: Callable[[str], Awaitable[ServingPolicy]]
    """Returns a model's policy as a proxy reads it; raises ``NotRegistered`` and ``SchemaInvalid``."""
    report: "Reporter"
    """Computes reports beside the event loop: their statistics take seconds of a core."""
    draw: "Reporter"
    """Computes what charts of rollouts are drawn from, likewise: no report takes their place."""
    replay: Callable[[ReplayWanted], Awaitable[ReplayFinding]]
    """Sends logged calls to a version, as a report; raises as ``replay_calls``."""
    listen: Callable[[Callable[[PolicyChange], None]], Awaitable[None]]
    """Calls for each change of a policy until its connection, the one that stays open, is lost."""


class Reporter:
    """Runs reports in threads of their own, each with an event loop and a session of its own.

    Args:
        open_session: Opens the stores of one report.
        threads: Where they run, :data:`REPORTS` of them; a thread that computes cannot be ended, so that a report whose
            caller waits no longer keeps its own.
    """

    def __init__(self, open_session: Callable[[], Session], threads: Executor) -> None:
        self._open_session = open_session
        self._threads = threads
        self._running: set[Future[Any]] = set()
        self._tasks: dict[asyncio.Task[Any], asyncio.AbstractEventLoop] = {}

    async def __call__(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Return what a report comes to.

        Raises:
            Overloaded: Reports that are waited for no longer are computed still.
        """
        self._running = {one for one in self._running if not one.done()}
        if len(self._running) >= REPORTS:
            raise Overloaded("reports that took too long are computed still")
        running = self._threads.submit(lambda: asyncio.run(self._bounded(work)))
        self._running.add(running)
        return await asyncio.wrap_future(running)

    def end(self) -> None:
        """Begin no further report, and end those that wait for Postgres: a process ends after its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for task, loop in tuple(self._tasks.items()):
            with suppress(RuntimeError):  # its loop has closed meanwhile
                loop.call_soon_threadsafe(task.cancel)

    async def _bounded(self, work: Callable[[Session], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._work(work))
        self._tasks[task] = loop
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                return await task
        finally:
            del self._tasks[task]

    async def _work(self, work: Callable[[Session], Awaitable[T]]) -> T:
        async with self._open_session() as session:
            return await work(session)


@asynccontextmanager
async def _reporting(open_session: Callable[[], Session], name: str) -> AsyncIterator[Reporter]:
    """Open what computes reports; none goes on after the context is left."""
    reporter = Reporter(open_session, ThreadPoolExecutor(REPORTS, name))
    try:
        yield reporter
    finally:
        reporter.end()


def _load_servers() -> None:
    """Import what asks model servers: half a second, in which the event loop answers others."""
    import understudy.bootstrap.upstream.backends  # noqa: F401, PLC0415 - gRPC


def _load_checkup() -> None:
    """Import what examines everything, likewise."""
    import understudy.bootstrap.checkup  # noqa: F401, PLC0415 - Redis, gRPC


def _open_stores(session: Session) -> None:
    """Import what every page reads, which connects to nothing: no first visitor waits for that."""
    _ = (session.registry, session.rollouts, session.windows, session.metrics)


@asynccontextmanager
async def open_console(settings: Settings) -> AsyncIterator[ConsoleParts]:
    """Open a console's parts for one event loop; no connection is made before the first question.

    It reads and acts under the login of the control plane, and looks keys up under that of ``DATABASE_URL``: as a proxy
    does, since no role may do both.
    """
    seconds = settings.database_timeout_seconds
    keys = PostgresKeyLookup(settings.database_url.get_secret_value(), timeout_seconds=seconds)

    def reading() -> Session:
        lake = lake_place_of(settings)
        return Session(settings.control_url, timeout_seconds=seconds, answer_seconds=ANSWER_SECONDS, lake=lake)

    async with (
        reading() as session,
        Session(settings.control_url, timeout_seconds=seconds) as acts,
        _reporting(reading, "report") as report,
        _reporting(reading, "chart") as draw,
    ):

        async def ready(model_name: str, version: str) -> None:
            await asyncio.to_thread(_load_servers)
            from understudy.bootstrap.upstream.backends import proxy_warm_up, warm_up_probe  # noqa: PLC0415 - loaded by now

            proxies = proxy_warm_up(settings, acts.warm_ups)
            await require_ready(warm_up_probe(settings, acts.policies, proxies), model_name, version)

        async def find() -> Sequence[Finding]:
            await asyncio.to_thread(_load_checkup)
            from understudy.bootstrap.checkup import examine  # noqa: PLC0415 - loaded by now

            return await examine(settings.model_copy(update={"database_url": SecretStr(settings.control_url)}))

        async def policy_of(model_name: str) -> ServingPolicy:
            await asyncio.to_thread(_load_servers)
            from understudy.bootstrap.upstream.backends import policy_of_proxies  # noqa: PLC0415 - loaded by now

            return await policy_of_proxies(session, model_name)

        async def replay(wanted: ReplayWanted) -> ReplayFinding:
            await asyncio.to_thread(_load_servers)
            from understudy.bootstrap.log_replay import replay_in  # noqa: PLC0415 - gRPC, loaded by now

            return await report(lambda opened: replay_in(opened, settings, wanted, lambda *_: None))

        changes = PostgresPolicySource(
            settings.control_url,
            timeout_seconds=seconds,
            heartbeat_seconds=settings.policy_heartbeat_seconds,
            reads_keys=False,
        )
        _open_stores(session)
        # Ahead of the first page of an entity, which says who answers it; none waits for the process to be open.
        asyncio.get_running_loop().run_in_executor(None, _load_servers)
        named = (settings.environment, settings.challenger_budget_ratio)
        yield ConsoleParts(session, acts, keys, *named, ready, find, policy_of, report, draw, replay, changes.listen)
