"""The agent beside a model server: brings what is loaded to what is wanted, one round after the other.

A round reads three things, what is wanted, what was recorded and what the server says, and begins what follows from
them (``core.loading.next_action``). Fetching, loading and unloading run beside the rounds as tasks with deadlines.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from understudy.background.tasks import end_tasks
from understudy.core.loading.giving_way import with_those_that_leave
from understudy.core.loading.next_action import Action, VersionSeen, next_actions
from understudy.core.loading.served_name import is_served_name, served_name
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import RANK
from understudy.errors import PolicyRefused, ServerNotManageable, UnderstudyError
from understudy.loading.memory_budget import MemoryBudget
from understudy.loading.server_absence import ServerAbsence
from understudy.loading.server_lifetime import ServerLifetime
from understudy.loading.server_refusal import ServerRefusal
from understudy.loading.sudden_unplacing import DOUBT_SECONDS, SuddenUnplacing
from understudy.loading.unload_wait import UnloadWait
from understudy.loading.version_work import AgentServer, DueVersion, VersionWork
from understudy.loading.without_registry import WithoutRegistry
from understudy.ports.loading.agent_store import AgentStore, ServerReport, VersionAtServer
from understudy.ports.loading.artifact_stage import ArtifactStage
from understudy.ports.loading.server_control import ServerControl
from understudy.ports.loading.validation import Validation
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

QUIESCING_ROUND_SECONDS: Final = 0.5
"""Pause between two rounds while proxies confirm an unload: no notification tells of that (ADR 142)."""
_CHANGES: Final = frozenset({Action.LOAD, Action.UNLOAD})
"""What asks the server to load or drop something."""
_RESUMED: Final = frozenset({Action.LOAD, Action.VALIDATE})
"""What follows a fetch: where an agent begins with one of them, another one did not come to its end."""
_FAREWELLS: Final = frozenset({Action.WITHDRAW, Action.UNLOAD})
"""What takes from proxies or the server a version that may be placed again in a moment."""


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
        self._memory = memory
        self._without_registry = without_registry
        self._telemetry = telemetry
        self._on_progress = on_progress
        self.lifetime = ServerLifetime(now, on_progress)
        self._work = VersionWork(
            server,
            store,
            control,
            stage,
            telemetry,
            validation=validation,
            memory=memory,
            now=now,
            on_retry=on_progress,
        )
        self._begun: set[int] = set()
        """Versions of which this agent has begun something: what is under way of others an agent before has left."""
        self._tasks: dict[str, tuple[Action, asyncio.Task[None]]] = {}
        """By the name on the server."""
        self._unload_wait = UnloadWait(now)
        self._sudden = SuddenUnplacing(telemetry, now)
        self._again: asyncio.TimerHandle | None = None
        self._absence = ServerAbsence(server.name, now)
        self._build = ""
        self._refusal = ServerRefusal(now)
        self._staged: frozenset[str] | None = None
        """What was kept on the stage when it was last cleared."""

    async def tick(self, epoch: Epoch) -> None:
        """Run one round."""
        was_idle, was_validating = not self._tasks, self._is_validating  # what ends meanwhile is in no record yet
        served, problem = await self._ask_server()
        problem = problem or self._refusal.words
        versions = await self._store.look(self._report(problem), epoch)
        await self._without_registry.note(versions)
        _count(self._telemetry, versions, problem)
        self.lifetime.note(versions, is_validating=was_validating or self._is_validating)
        if served is not None:
            self._absence.end(is_loading=self._is_loading)
        elif self.lifetime.is_draining:
            served = ()  # its endpoints are taken back, whether it answers or not
        else:
            self._look_again_after(self._absence.begin(problem, is_loading=self._is_loading))
            return  # what it has is unknown; calls that it does not answer go elsewhere
        doubted = self._sudden.doubted(versions)
        versions = self.lifetime.seen_by_round(versions)
        named = {served_name(version.model_name, version.version): version for version in versions}
        self._begun.intersection_update(version.version_id for version in versions)
        due = await self._due(named, served, doubted)
        self._memory.expect_room(one for one in versions if due.get(one.version_id) is Action.WITHDRAW)
        strays = [one for one in sorted(served) if is_served_name(one) and not (one in named or one in self._tasks)]
        if not self._tasks and not strays and _CHANGES.isdisjoint(due.values()):
            self._refusal.clear()  # nothing is asked of the server
        has_pause = self._refusal.has_pause
        if was_idle:  # nothing was fetched when the records were read, so what they do not name a killed agent has left
            await self._clear_stage(versions)
        names = {version.version_id: name for name, version in named.items()}
        for version_id, action in due.items():
            if not (has_pause and action in _CHANGES):
                name = names[version_id]
                await self._begin(action, DueVersion.of(name, named[name], epoch))
        self._look_again_while_waiting(versions, is_doubted=bool(doubted))
        for name in [] if has_pause else strays:
            self._start(Action.UNLOAD, name, partial(self._control.unload, name))

    def _report(self, problem: str) -> ServerReport:
        name, group_name, target, _ = self._server
        room_bytes, is_draining = self._memory.room_bytes, self.lifetime.is_draining
        return ServerReport(name, group_name, target, self._build, problem, room_bytes, is_draining)

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
        self._absence.clear()
        self._unload_wait.clear()
        self._sudden.clear()
        self._refusal.clear()
        self._memory.clear()
        self._staged = None
        self._begun.clear()
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
            return None, "" if self._is_loading else f"{problem.code} {problem.detail}"

    @property
    def _is_loading(self) -> bool:
        return any(action is Action.LOAD for action, _ in self._tasks.values())

    @property
    def _is_validating(self) -> bool:
        return any(action is Action.VALIDATE for action, _ in self._tasks.values())

    def _look_again_while_waiting(self, versions: Sequence[VersionAtServer], *, is_doubted: bool) -> None:
        """Have the next round soon while proxies are waited for, of which no notification says what they have read."""
        waiting = [one for one in versions if one.record is not None and one.record.state is LoadingState.QUIESCING]
        left = [self._unload_wait.seconds_left(one) for one in waiting]
        # One whose wait is over, and that waits for its turn, is looked at again after a whole pause.
        pauses = [seconds if 0 < seconds < QUIESCING_ROUND_SECONDS else QUIESCING_ROUND_SECONDS for seconds in left]
        others = [DOUBT_SECONDS if is_doubted else None, self.lifetime.next_round_seconds]
        self._look_again_after(min(filter(None, [*pauses, *others]), default=None))

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

    async def _due(
        self, named: Mapping[str, VersionAtServer], served: Collection[str], doubted: Collection[int]
    ) -> dict[int, Action]:
        """Return what is to be done now, by version.

        Args:
            named: The versions, by their names on the server.
            served: What the server has.
            doubted: Versions that nothing wants any more of a sudden: none of them leaves yet.
        """
        at_server = {version.version_id for name, version in named.items() if name in served}
        await self._memory.look([*named.values()], at_server, is_idle=not self._tasks)
        busy = {named[name].version_id: action for name, (action, _) in self._tasks.items() if name in named}
        seen = [
            _seen(one, is_served=one.version_id in at_server, is_quiet=self._unload_wait.is_over(one))
            for one in named.values()
        ]
        tried = self._memory.tried
        judged = with_those_that_leave(seen, self._memory.missing, self._server.transition, tried)
        return {
            version_id: action
            for version_id, action in next_actions(judged, busy, needs_room=bool(tried)).items()
            if not (version_id in doubted and action in _FAREWELLS)
        }

    # -- what it begins ------------------------------------------------------------------------------------------------

    async def _begin(self, action: Action, due: DueVersion) -> None:
        if action in _RESUMED and due.version.version_id not in self._begun:
            counted = await self._work.count_break(due)
            if counted is None:
                return
            due = counted
        self._begun.add(due.version.version_id)
        match action:
            case Action.FETCH:
                fetching = due.with_next_attempt(LoadingState.FETCHING, digest=None)
                await self._work.write(fetching)
                self._start(action, due.name, partial(self._work.fetch, fetching))
            case Action.LOAD:
                self._start(action, due.name, partial(self._work.load, due))
            case Action.VALIDATE:
                self._start(action, due.name, partial(self._work.validate, due, self._build))
            case Action.UNLOAD:
                unloading = due.with_next_attempt(LoadingState.UNLOADING, due.record.digest)
                await self._work.write(unloading)
                self._start(action, due.name, partial(self._work.unload, unloading))
            case _:
                try:
                    if await self._work.settle(action, due):
                        self._on_progress()
                except PolicyRefused as problem:
                    _log.warning("agent.endpoint_refused", version_id=due.version.version_id, problem=problem.detail)

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
