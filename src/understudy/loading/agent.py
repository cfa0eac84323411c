"""The agent beside a model server: brings what is loaded to what is wanted, one round after the other.

A round reads three things, what is wanted, what was recorded and what the server says, and begins what follows from
them (``core.loading.next_action``). Fetching, loading and unloading run beside the rounds as tasks with deadlines.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from understudy.background.tasks import end_tasks
from understudy.core.loading.giving_way import Transition, with_those_that_leave
from understudy.core.loading.next_action import Action, VersionSeen, next_actions
from understudy.core.loading.served_name import is_served_name, served_name
from understudy.core.loading.state import LoadingState, next_attempt, retry_seconds
from understudy.core.loading.wanted import RANK
from understudy.errors import (
    ArtifactDiffers,
    ArtifactNotTaken,
    ArtifactUnreachable,
    InternalFault,
    LeadershipLost,
    LoadRefused,
    NothingFits,
    NotValidated,
    PolicyRefused,
    RegistryUnavailable,
    ServerNotManageable,
    UnderstudyError,
)
from understudy.loading.memory_budget import MemoryBudget
from understudy.loading.server_refusal import ServerRefusal
from understudy.loading.sudden_unplacing import DOUBT_SECONDS, SuddenUnplacing
from understudy.loading.unload_wait import UnloadWait
from understudy.loading.without_registry import WithoutRegistry
from understudy.ports.loading.agent_store import AgentStore, LoadingRecord, ServerReport, Verdict, VersionAtServer
from understudy.ports.loading.artifact_stage import ArtifactStage
from understudy.ports.loading.server_control import ServerControl
from understudy.ports.loading.validation import Validation
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

QUIESCING_ROUND_SECONDS: Final = 0.5
AWAY_ROUND_SECONDS: Final = 1.0
"""Pause between two looks at a server that does not answer: it may have been restarted, and come back empty."""
MAX_AWAY_SECONDS: Final = 60.0
"""After so long it is looked at every five seconds, as any server."""
ROOM_RETRY_SECONDS: Final = 5.0
"""Pause before a version that did not fit is tried again."""
_CHANGES: Final = frozenset({Action.LOAD, Action.UNLOAD})
"""What asks the server to load or drop something."""
_FAREWELLS: Final = frozenset({Action.WITHDRAW, Action.UNLOAD})
"""What takes from proxies or the server a version that may be placed again in a moment."""
_NOTHING_YET: Final = LoadingRecord(LoadingState.END, attempt=0, may_retry=False, digest=None)


class AgentServer(NamedTuple):
    """The server that an agent is for."""

    name: str
    group_name: str
    target: str
    """``host:port`` as proxies reach it."""
    transition: Transition = Transition.AVAILABILITY


class Agent:
    """Keeps one model server at what is wanted.

    Args:
        server: Its name, group and address.
        store: Placements and records.
        control: The server's own management API.
        stage: Where artifacts are copied to.
        telemetry: Gets how many versions are in which state, durations and failures.
        validation: Asks what was loaded before it is announced.
        memory: Keeps account of the server's memory.
        without_registry: Has a server that comes back empty load again what it had while Postgres is away.
        now: The monotonic clock, in seconds.
        on_progress: Called when a task has ended, so that the next round need not wait.
    """

    def __init__(
        self,
        server: AgentServer,
        store: AgentStore,
        control: ServerControl,
        stage: ArtifactStage,
        telemetry: Telemetry,
        *,
        validation: Validation,
        memory: MemoryBudget,
        without_registry: WithoutRegistry,
        now: Callable[[], float],
        on_progress: Callable[[], None],
    ) -> None:
        self._server = server
        self._store = store
        self._control = control
        self._stage = stage
        self._validation = validation
        self._memory = memory
        self._without_registry = without_registry
        self._telemetry = telemetry
        self._now = now
        self._on_progress = on_progress
        self._tasks: dict[str, tuple[Action, asyncio.Task[None]]] = {}
        """By the name on the server."""
        self._unload_wait = UnloadWait(now)
        self._sudden = SuddenUnplacing(telemetry, now)
        self._again: asyncio.TimerHandle | None = None
        self._away_since: float | None = None
        """Since when the server has not answered."""
        self._build = ""
        self._refusal = ServerRefusal(now)
        self._staged: frozenset[str] | None = None
        """What was kept on the stage when it was last cleared."""

    async def tick(self, epoch: Epoch) -> None:
        """Run one round."""
        is_idle = not self._tasks
        served, problem = await self._ask_server()
        problem = problem or self._refusal.words
        name, group_name, target, _ = self._server
        report = ServerReport(name, group_name, target, self._build, problem)
        versions = await self._store.look(report, epoch)
        await self._without_registry.note(versions)
        _count(self._telemetry, versions, problem)
        if served is None:
            self._look_again_while_away()
            return  # what it has is unknown; calls that it does not answer go elsewhere
        self._away_since = None
        doubted = self._sudden.doubted(versions)
        named = {served_name(version.model_name, version.version): version for version in versions}
        busy = {named[name].version_id: action for name, (action, _) in self._tasks.items() if name in named}
        seen = [
            _seen(version, is_served=name in served, is_quiet=self._unload_wait.is_over(version))
            for name, version in named.items()
        ]
        names = {version.version_id: name for name, version in named.items()}
        at_server = {version.version_id for name, version in named.items() if name in served}
        await self._memory.look(versions, at_server, is_idle=not self._tasks)
        tried = self._memory.tried
        judged = with_those_that_leave(seen, self._memory.missing, self._server.transition, tried)
        due = {
            version_id: action
            for version_id, action in next_actions(judged, busy, needs_room=bool(tried)).items()
            if not (version_id in doubted and action in _FAREWELLS)
        }
        self._memory.expect_room(one for one in versions if due.get(one.version_id) is Action.WITHDRAW)
        strays = [one for one in sorted(served) if is_served_name(one) and not (one in named or one in self._tasks)]
        if not self._tasks and not strays and _CHANGES.isdisjoint(due.values()):
            self._refusal.clear()  # nothing is asked of the server
        has_pause = self._refusal.has_pause
        if is_idle:  # and so before a fetch: what a killed agent left takes the place of what is fetched
            await self._clear_stage(versions)
        for version_id, action in due.items():
            if not (has_pause and action in _CHANGES):
                name = names[version_id]
                await self._begin(action, name, named[name], epoch)
        self._look_again_while_waiting(versions, is_doubted=bool(doubted))
        for name in [] if has_pause else strays:
            self._start(Action.UNLOAD, name, partial(self._control.unload, name))

    def look_without_registry(self) -> None:
        """Look at the server; called while the lease cannot be asked for."""
        self._without_registry.look()

    async def leave_to_registry(self) -> None:
        """Break off what such a look began; called once the lease answers: this agent leads, or another one does."""
        await self._without_registry.close()

    async def close(self) -> None:
        """Break off what is under way; the next agent goes on with it, and so may this one, as if it were new."""
        self._look_again_after(None)
        await self._without_registry.close()
        self._away_since = None
        self._unload_wait.clear()
        self._sudden.clear()
        self._refusal.clear()
        self._memory.clear()
        self._staged = None
        await end_tasks(task for _, task in self._tasks.values())
        self._tasks.clear()  # one that had not begun does not do that itself

    # -- what a round reads --------------------------------------------------------------------------------------------

    async def _ask_server(self) -> tuple[Collection[str] | None, str]:
        """Return what the server has loaded, or what is wrong with it; nothing is while it loads, which has an end."""
        try:
            self._build = await self._control.describe()
            return await self._control.loaded(), ""
        except ServerNotManageable as problem:
            self._refusal.clear()  # it may be started anew, with its control on
            is_loading = any(action is Action.LOAD for action, _ in self._tasks.values())
            return None, "" if is_loading else f"{problem.code} {problem.detail}"

    def _look_again_while_away(self) -> None:
        """Have the next round soon after a server went away, which a restart may have done."""
        if self._away_since is None:
            self._away_since = self._now()
        is_restart = self._now() - self._away_since < MAX_AWAY_SECONDS
        self._look_again_after(AWAY_ROUND_SECONDS if is_restart else None)

    def _look_again_while_waiting(self, versions: Sequence[VersionAtServer], *, is_doubted: bool) -> None:
        """Have the next round soon while proxies are waited for, of which no notification says what they have read."""
        waiting = [one for one in versions if one.record is not None and one.record.state is LoadingState.QUIESCING]
        left = [self._unload_wait.seconds_left(one) for one in waiting]
        # One whose wait is over is unloaded at its turn, and hurries no round.
        pauses = [min(seconds, QUIESCING_ROUND_SECONDS) if seconds > 0 else QUIESCING_ROUND_SECONDS for seconds in left]
        self._look_again_after(min([*pauses, DOUBT_SECONDS] if is_doubted else pauses, default=None))

    def _look_again_after(self, seconds: float | None) -> None:
        """Have one more round after so many seconds, in the place of the one that was to come; ``None``: none."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if seconds is not None:
            self._again = asyncio.get_running_loop().call_later(seconds, self._on_progress)

    async def _clear_stage(self, versions: Sequence[VersionAtServer]) -> None:
        """Delete artifacts of which nothing is recorded any more; none was being fetched when that was read."""
        recorded = {one.record.digest for one in versions if one.record is not None}
        digests = frozenset(filter(None, recorded | {one.expected_digest for one in versions}))
        if digests != self._staged:
            try:
                await self._stage.keep_only(digests)
            except Exception:  # noqa: BLE001 - a disk's or a file's, and no reason to load nothing
                _log.exception("agent.stage_not_cleared")
            else:
                self._staged = digests

    # -- what it begins ------------------------------------------------------------------------------------------------

    async def _begin(self, action: Action, name: str, version: VersionAtServer, epoch: Epoch) -> None:
        record = version.record or _NOTHING_YET
        match action:
            case Action.FETCH:
                attempt = next_attempt(record.attempt)
                await self._store.write(version.version_id, LoadingState.FETCHING, epoch, attempt=attempt)
                self._start(action, name, partial(self._fetch, version, attempt, epoch))
            case Action.LOAD:
                self._start(action, name, partial(self._load, name, version, record, epoch))
            case Action.VALIDATE:
                self._start(action, name, partial(self._validate, name, version, record, epoch))
            case Action.UNLOAD:
                unloading = record._replace(state=LoadingState.UNLOADING, attempt=next_attempt(record.attempt))
                await self._write(version, unloading, epoch)
                self._start(action, name, partial(self._unload, name, version, unloading.attempt, epoch))
            case _:
                try:
                    if await self._settle(action, version, record, epoch):
                        self._on_progress()
                except PolicyRefused as problem:
                    _log.warning("agent.endpoint_refused", version_id=version.version_id, problem=problem.detail)

    async def _settle(self, action: Action, version: VersionAtServer, record: LoadingRecord, epoch: Epoch) -> bool:
        """Do what takes one transaction; return whether that changed anything, and the next round need not wait."""
        match action:
            case Action.ANNOUNCE:
                async with self._recorded("announce", version, record.attempt, epoch):
                    is_wanted = await self._store.announce(version.version_id, epoch)
                if not is_wanted:
                    return True  # it was until just now, and the next round has it unloaded
                self._tell("agent.available", version)
            case Action.RELOAD:
                is_gone = await self._store.withdraw(version.version_id, LoadingState.FETCHING, epoch)
                self._tell("agent.lost_by_server", version, endpoint_is_gone=is_gone)
            case Action.WITHDRAW:
                turn = version.is_wanted and self._server.transition is Transition.RESOURCE
                if not await self._store.withdraw(version.version_id, LoadingState.QUIESCING, epoch, in_turn=turn):
                    return False  # it may be gone at another round, once it is not the last one, or has its turn
                self._tell("agent.withdrawn", version)
            case Action.FORGET:
                await self._store.forget(version.version_id, epoch)
            case _:
                await self._write(version, record._replace(state=LoadingState.END, attempt=0), epoch)
                self._tell("agent.unloaded", version)
        return True

    async def _write(self, version: VersionAtServer, record: LoadingRecord, epoch: Epoch) -> None:
        await self._store.write(version.version_id, record.state, epoch, attempt=record.attempt, digest=record.digest)

    def _start(self, action: Action, name: str, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            try:
                await work()
            except UnderstudyError as problem:
                if isinstance(problem, ServerNotManageable):
                    self._refusal.note(f"{problem.code} {problem.detail}")
                _log.warning("agent.task_failed", action=action.value, name=name, problem=f"{problem.code} {problem}")
            except Exception:  # noqa: BLE001 - a defect in one task; the rounds go on, and begin it again
                _log.exception("agent.task_failed", action=action.value, name=name)
            else:
                if action in _CHANGES:
                    self._refusal.clear()
                self._on_progress()
            finally:
                self._tasks.pop(name, None)

        self._tasks[name] = (action, asyncio.get_running_loop().create_task(run()))

    async def _fetch(self, version: VersionAtServer, attempt: int, epoch: Epoch) -> None:
        async with self._recorded("fetch", version, attempt, epoch):
            staged = await self._stage.fetch(version.artifact_uri, version.expected_digest)
            await self._store.pin(version.version_id, staged.digest, epoch)
            loading = LoadingRecord(LoadingState.LOADING, attempt, may_retry=False, digest=staged.digest)
            await self._write(version, loading, epoch)

    async def _load(self, name: str, version: VersionAtServer, record: LoadingRecord, epoch: Epoch) -> None:
        async with self._recorded("load", version, record.attempt, epoch):
            folder = None if record.digest is None else await self._stage.verified(record.digest)
            if folder is None:  # counted, as it may be so after each fetch
                raise ArtifactUnreachable("its copy on the stage is missing or damaged: it is fetched again")
            loaded = await self._memory.load(version, partial(self._control.load, name, folder, version.framework))
            if loaded is not None:
                await self._store.note_memory(version.version_id, loaded.memory_bytes, epoch)
                self._tell("agent.loaded", version, **loaded._asdict())
                await self._keep_if_it_fits(name, version, loaded.memory_bytes)

    async def _keep_if_it_fits(self, name: str, version: VersionAtServer, taken: int) -> None:
        """Have a version dropped again that takes more than was left, unless proxies call it already.

        Raises:
            NothingFits: It does; the message has the figures.
        """
        problem = None if version.has_endpoint else await self._memory.why_too_large(version, taken)
        if problem is not None:
            with suppress(LoadRefused, ServerNotManageable):
                await self._control.unload(name)
            raise NothingFits(problem)

    async def _validate(self, name: str, version: VersionAtServer, record: LoadingRecord, epoch: Epoch) -> None:
        async with self._recorded("validate", version, record.attempt, epoch):
            await self._ask_cases(name, version, record, epoch)
            is_wanted = await self._store.announce(version.version_id, epoch)
        if is_wanted:
            self._tell("agent.available", version)

    async def _ask_cases(self, name: str, version: VersionAtServer, record: LoadingRecord, epoch: Epoch) -> None:
        """Have a version answer its cases; one that does not is dropped again, unless proxies call it already."""
        verdict = Verdict(self._build, record.digest or "", passed=True, said="")
        try:
            said = await self._validation.check(
                version.model_name,
                version.version,
                self._stage.folder_of(verdict.digest),
                has_callers=version.has_endpoint,
                is_required=version.requires_validation,
            )
            if said:  # of a version that was asked nothing the verdict before stays, and with it what it was asked
                await self._store.judge(version.version_id, verdict._replace(said=said), epoch)
        except NotValidated as problem:
            failed = verdict._replace(passed=False, said=problem.detail)
            await self._store.judge(version.version_id, failed, epoch)
            if not version.has_endpoint:
                with suppress(LoadRefused, ServerNotManageable):
                    await self._control.unload(name)
            raise

    async def _unload(self, name: str, version: VersionAtServer, attempt: int, epoch: Epoch) -> None:
        async with self._recorded("unload", version, attempt, epoch):
            await self._control.unload(name)

    @asynccontextmanager
    async def _recorded(self, step: str, version: VersionAtServer, attempt: int, epoch: Epoch) -> AsyncIterator[None]:
        """Record a failure of a step; what is away (the server, Postgres) is no failure of the version."""
        began_at = self._now()
        try:
            yield
        except (LeadershipLost, RegistryUnavailable, ServerNotManageable):
            raise
        except Exception as problem:  # a defect too is a failure that people see, and that ends after five attempts
            known = problem if isinstance(problem, UnderstudyError) else InternalFault(repr(problem))
            self._telemetry.count("load_failures_total", known.code)
            is_final = isinstance(problem, ArtifactDiffers | ArtifactNotTaken | NotValidated)
            pause = None if is_final else retry_seconds(max(attempt, 1))
            if isinstance(problem, NothingFits):  # no failure of the version: it is tried until there is room
                attempt, pause = max(attempt - 1, 0), ROOM_RETRY_SECONDS
            else:
                self._memory.note_failure(version.version_id, is_final=pause is None)
            said = known.detail
            await self._store.fail(version.version_id, known.code, said, epoch, attempt=attempt, retry_seconds=pause)
            if pause is not None:
                asyncio.get_running_loop().call_later(pause, self._on_progress)
            raise
        self._telemetry.observe("load_duration_seconds", self._now() - began_at, step)

    def _tell(self, event: str, version: VersionAtServer, **more: Any) -> None:
        _log.info(event, model=version.model_name, version=version.version, server=self._server.name, **more)


def _seen(version: VersionAtServer, *, is_served: bool, is_quiet: bool) -> VersionSeen:
    record = version.record
    return VersionSeen(
        version.version_id,
        version.model_name,
        RANK[version.why] if version.why is not None and version.is_wanted else None,
        None if record is None else record.state,
        is_served=is_served,
        has_endpoint=version.has_endpoint,
        may_withdraw=version.owns_endpoint,
        may_retry=record is not None and record.may_retry,
        is_quiet=is_quiet,
        is_over=record is not None and record.is_over,
        idle_seconds=version.idle_seconds,
        memory_bytes=0 if record is None or record.memory_bytes is None else record.memory_bytes,
        is_elsewhere=version.is_elsewhere,
        has_had_its_time=version.is_wanted and version.has_had_its_time,
    )


def _count(telemetry: Telemetry, versions: Sequence[VersionAtServer], problem: str) -> None:
    """Set the gauges of a round."""
    states = Counter(version.record.state for version in versions if version.record is not None)
    for state in LoadingState:
        telemetry.set("loaded_versions", states[state], state.value)
    wanted = [version for version in versions if version.is_wanted]
    missing = [one for one in wanted if one.record is None or one.record.state is not LoadingState.AVAILABLE]
    telemetry.set("versions_not_available", len(missing))
    telemetry.set("model_server_unmanageable", bool(problem))
