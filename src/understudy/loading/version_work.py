"""What an agent does to one version, from its fetch to its unload, and the record of what came of that.

When each of these is due is decided by ``core.loading.next_action``; ``loading.agent`` begins it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from understudy.core.loading.giving_way import Transition
from understudy.core.loading.next_action import Action
from understudy.core.loading.state import MAX_ATTEMPTS, LoadingState, next_attempt, retry_seconds
from understudy.errors import (
    ArtifactDiffers,
    ArtifactNotTaken,
    ArtifactUnreachable,
    InternalFault,
    LeadershipLost,
    LoadRefused,
    NothingFits,
    NotValidated,
    RegistryUnavailable,
    ServerNotManageable,
    UnderstudyError,
)
from understudy.loading.memory_budget import MemoryBudget
from understudy.ports.loading.agent_store import AgentStore, LoadingRecord, ValidationResult, VersionAtServer
from understudy.ports.loading.artifact_stage import ArtifactStage
from understudy.ports.loading.server_control import ServerControl
from understudy.ports.loading.validation import Validation
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

ROOM_RETRY_SECONDS: Final = 5.0
"""Pause before a version that did not fit is tried again."""
_NOTHING_YET: Final = LoadingRecord(LoadingState.END, attempt=0, may_retry=False, digest=None)


class AgentServer(NamedTuple):
    """The server that an agent is for."""

    name: str
    group_name: str
    target: str
    """``host:port`` as proxies reach it."""
    transition: Transition = Transition.AVAILABILITY


class DueVersion(NamedTuple):
    """A version of which something is due."""

    name: str
    """On the server."""
    version: VersionAtServer
    record: LoadingRecord
    epoch: Epoch

    @classmethod
    def of(cls, name: str, version: VersionAtServer, epoch: Epoch) -> "DueVersion":
        """Return it with what is recorded of it, or with a record of nothing."""
        return cls(name, version, version.record or _NOTHING_YET, epoch)

    def with_next_attempt(self, state: LoadingState, digest: str | None) -> "DueVersion":
        """Return it with one more attempt, in the state that this attempt begins with."""
        attempt = next_attempt(self.record.attempt)
        return self._replace(record=self.record._replace(state=state, attempt=attempt, digest=digest))


class VersionWork:
    """The steps of one server's versions.

    Args:
        server: Its name, group and address.
        store: Placements and records.
        control: The server's own management API.
        stage: Where artifacts are copied to.
        telemetry: Gets durations and failures.
        validation: Asks what was loaded before it is announced.
        memory: Keeps account of the server's memory.
        now: The monotonic clock, in seconds.
        on_retry: Called when a step that failed may be tried again.
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
        now: Callable[[], float],
        on_retry: Callable[[], None],
    ) -> None:
        self._server = server
        self._store = store
        self._control = control
        self._stage = stage
        self._telemetry = telemetry
        self._validation = validation
        self._memory = memory
        self._now = now
        self._on_retry = on_retry

    async def write(self, due: DueVersion) -> None:
        """Record a version's state."""
        version_id, (state, attempt, _, digest, *_) = due.version.version_id, due.record
        await self._store.write(version_id, state, due.epoch, attempt=attempt, digest=digest)

    async def settle(self, action: Action, due: DueVersion) -> bool:
        """Do what takes one transaction; return whether that changed anything, and the next round need not wait.

        Raises:
            PolicyRefused: The endpoint may not be written or taken back.
        """
        version = due.version
        match action:
            case Action.ANNOUNCE:
                async with self._recorded("announce", due):
                    is_wanted = await self._store.announce(version.version_id, due.epoch)
                if not is_wanted:
                    return True  # it was until just now, and the next round has it unloaded
                self._tell("agent.available", version)
            case Action.RELOAD:
                is_gone = await self._store.withdraw(version.version_id, LoadingState.FETCHING, due.epoch)
                self._tell("agent.lost_by_server", version, endpoint_is_gone=is_gone)
            case Action.WITHDRAW:
                turn = version.is_wanted and self._server.transition is Transition.RESOURCE
                if not await self._store.withdraw(version.version_id, LoadingState.QUIESCING, due.epoch, in_turn=turn):
                    return False  # it may be gone at another round, once it is not the last one, or has its turn
                self._tell("agent.withdrawn", version)
            case Action.FORGET:
                await self._store.forget(version.version_id, due.epoch)
            case Action.END:
                await self.write(due._replace(record=due.record._replace(state=LoadingState.END, attempt=0)))
                self._tell("agent.unloaded", version)
            case _:
                raise AssertionError(action)  # it is no step of one transaction
        return True

    async def fetch(self, due: DueVersion) -> None:
        """Copy the artifact to the stage, and pin its digest."""
        version_id = due.version.version_id
        async with self._recorded("fetch", due):
            staged = await self._stage.fetch(due.version.artifact_uri, due.version.expected_digest)
            await self._store.pin(version_id, staged.digest, due.epoch)
            loading = LoadingRecord(LoadingState.LOADING, due.record.attempt, may_retry=False, digest=staged.digest)
            await self.write(due._replace(record=loading))

    async def load(self, due: DueVersion) -> None:
        """Have the server load the copy on the stage, if the memory that it takes is there."""
        version, digest = due.version, due.record.digest
        async with self._recorded("load", due):
            folder = None if digest is None else await self._stage.verified(digest)
            if folder is None:  # counted, as it may be so after each fetch
                raise ArtifactUnreachable("its copy on the stage is missing or damaged: it is fetched again")
            loaded = await self._memory.load(version, partial(self._load_at_server, due, folder))
            if loaded is not None:
                await self._store.note_memory(version.version_id, loaded.memory_bytes, due.epoch)
                self._tell("agent.loaded", version, **loaded._asdict())
                await self._keep_if_it_fits(due, loaded.memory_bytes)

    async def _load_at_server(self, due: DueVersion, folder: Path) -> None:
        """Have the server load a folder; one that ends meanwhile was ended by that, unless it had the version before.

        Without that an artifact that ends its server would be loaded again as soon as the server is back, for ever, and
        nothing else would stay loaded there.
        """
        try:
            await self._control.load(due.name, folder, due.version.framework)
        except ServerNotManageable:
            if due.version.has_endpoint or await self._answers():
                raise
            raise LoadRefused("the model server ended while it loaded this version: its log says why") from None

    async def _answers(self) -> bool:
        try:
            await self._control.describe()
        except ServerNotManageable:
            return False
        return True

    async def count_break(self, due: DueVersion) -> DueVersion | None:
        """Count an attempt that an agent before has begun and not ended; ``None``: it was the last one.

        An artifact that ends its agent would be begun again by each next one. A version that proxies call is not
        counted: it did not end an agent before.
        """
        if due.version.has_endpoint:
            return due
        again = due.with_next_attempt(LoadingState.LOADING, due.record.digest)
        if again.record.attempt <= MAX_ATTEMPTS:
            await self.write(again)
            return again
        await self._record_failure(again, LoadRefused(f"{MAX_ATTEMPTS} agents began to load it, and ended meanwhile"))
        return None

    async def validate(self, due: DueVersion, build: str) -> None:
        """Have a version answer its cases at the server of this build, and announce it."""
        async with self._recorded("validate", due):
            await self._ask_cases(due, build)
            is_wanted = await self._store.announce(due.version.version_id, due.epoch)
        if is_wanted:
            self._tell("agent.available", due.version)

    async def unload(self, due: DueVersion) -> None:
        """Have the server drop it."""
        async with self._recorded("unload", due):
            await self._control.unload(due.name)

    async def _keep_if_it_fits(self, due: DueVersion, taken: int) -> None:
        """Have a version dropped again that takes more than was left, unless proxies call it already.

        Raises:
            NothingFits: It does; the message has the figures.
        """
        problem = None if due.version.has_endpoint else await self._memory.why_too_large(due.version, taken)
        if problem is not None:
            await self._drop(due)
            raise NothingFits(problem)

    async def _ask_cases(self, due: DueVersion, build: str) -> None:
        """Have a version answer its cases; one that does not is dropped again, unless proxies call it already."""
        version = due.version
        result = ValidationResult(build, due.record.digest or "", passed=True, said="")
        try:
            said = await self._validation.check(
                version.model_name,
                version.version,
                self._stage.folder_of(result.digest),
                has_callers=version.has_endpoint,
                is_required=version.requires_validation,
            )
            if said:  # of a version that was asked nothing the result before stays, and with it what it was asked
                await self._store.record_validation(version.version_id, result._replace(said=said), due.epoch)
        except NotValidated as problem:
            failed = result._replace(passed=False, said=problem.detail)
            await self._store.record_validation(version.version_id, failed, due.epoch)
            if not version.has_endpoint:
                await self._drop(due)
            raise

    async def _drop(self, due: DueVersion) -> None:
        with suppress(LoadRefused, ServerNotManageable):
            await self._control.unload(due.name)

    @asynccontextmanager
    async def _recorded(self, step: str, due: DueVersion) -> AsyncIterator[None]:
        """Record a failure of a step; what is away (the server, Postgres) is no failure of the version."""
        began_at = self._now()
        try:
            yield
        except (LeadershipLost, RegistryUnavailable, ServerNotManageable):
            raise
        except Exception as problem:  # a defect too is a failure that people see, and that ends after five attempts
            await self._record_failure(due, problem)
            raise
        self._telemetry.observe("load_duration_seconds", self._now() - began_at, step)

    async def _record_failure(self, due: DueVersion, problem: Exception) -> None:
        """Store why a step failed, and have it tried again where that can help.

        Without room it is tried every five seconds, and no attempt is counted; a wrong or refused artifact, and one
        whose validation failed, not at all.
        """
        version_id, attempt = due.version.version_id, due.record.attempt
        known = problem if isinstance(problem, UnderstudyError) else InternalFault(repr(problem))
        self._telemetry.count("load_failures_total", known.code)
        is_final = isinstance(problem, ArtifactDiffers | ArtifactNotTaken | NotValidated)
        pause = None if is_final else retry_seconds(max(attempt, 1))
        if isinstance(problem, NothingFits):
            attempt, pause = max(attempt - 1, 0), ROOM_RETRY_SECONDS
        else:
            self._memory.note_failure(version_id, is_final=pause is None)
        await self._store.fail(
            version_id,
            known.code,
            known.detail,
            due.epoch,
            attempt=attempt,
            retry_seconds=pause,
            expected_bytes=known.expected_bytes if isinstance(known, NothingFits) else None,
        )
        if pause is not None:
            asyncio.get_running_loop().call_later(pause, self._on_retry)

    def _tell(self, event: str, version: VersionAtServer, **more: Any) -> None:
        _log.info(event, model=version.model_name, version=version.version, server=self._server.name, **more)
