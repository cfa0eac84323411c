"""The in-memory twin of ``ports.AgentStore``: the placements and records of one server, and its endpoints."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from understudy.core.loading.giving_way import KEPT_SECONDS
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.errors import ArtifactDiffers, LeadershipLost, PolicyRefused, RegistryUnavailable
from understudy.ports.loading.agent_store import LoadingRecord, ServerReport, ValidationResult, VersionAtServer
from understudy.ports.monitoring.lease import Epoch


@dataclass(slots=True)
class _Version:
    model_name: str
    version: str
    artifact_uri: str
    timeout_seconds: float
    framework: str
    why: Why | None = None
    has_role: bool = False
    digest: str | None = None
    has_endpoint: bool = False
    is_others: bool = False
    """Whether people registered the endpoint."""
    record: LoadingRecord | None = None
    error: tuple[str, str] | None = None
    retry_at: float | None = None
    validation: ValidationResult | None = None
    requires_validation: bool = False
    idle_since: float | None = None
    placed_at: float = 0.0
    """Since when it is wanted for the same reason."""
    is_elsewhere: bool = False
    is_asked_for: bool = False
    memory_bytes: int | None = None
    expected_bytes: int | None = None


class MemoryAgentStore:
    """A :class:`understudy.ports.loading.agent_store.AgentStore` in this process, by the clock ``now``.

    Tests place versions with :meth:`place`; ``unread_proxies`` have not read that an endpoint is gone; another epoch
    than ``epoch`` may not write.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.available = True
        """Whether calls are answered."""
        self.epoch: Epoch = 1
        self.unread_proxies = 0
        self.reporting_proxies = 0
        """How many of them report still."""
        self.calls_are_over = False
        """Whether proxies say that none of their calls can reach an endpoint that was taken back."""
        self.others_serve = True
        """Whether all other servers of the group have an endpoint of each model."""
        self.refuses_endpoints = False
        """Whether no model server may have the server's address."""
        self.reports: list[ServerReport] = []
        self._now = now
        self._versions: dict[int, _Version] = {}
        self._listeners: list[Callable[[], None]] = []

    def register(
        self,
        version_id: int,
        model_name: str,
        version: str,
        uri: str,
        *,
        timeout_seconds: float = 1.0,
        framework: str = "onnx",
    ) -> None:
        """Register a version."""
        self._versions[version_id] = _Version(model_name, version, uri, timeout_seconds, framework)

    def place(self, version_id: int, why: Why | None, *, has_role: bool = False) -> None:
        """Want a version, or with ``None`` no more; a role keeps its last endpoint. Notifies listeners."""
        if self._versions[version_id].why is not why:
            self._versions[version_id].placed_at = self._now()
        self._versions[version_id].why = why
        self._versions[version_id].idle_since = None
        self._versions[version_id].has_role = has_role
        self._versions[version_id].is_asked_for |= why is Why.ASKED
        for tell in self._listeners:
            tell()

    def end(self, version_id: int) -> None:
        """Have nothing ask for a version any more: the time that it was asked for is over. Notifies listeners."""
        self._versions[version_id].is_asked_for = False
        self.place(version_id, None)

    def rest(self, version_id: int) -> None:
        """Want a version no more, and keep it while it is loaded: it is idle from now on. Notifies listeners."""
        self._versions[version_id].idle_since = self._now()
        for tell in self._listeners:
            tell()

    def place_earlier(self, version_id: int, seconds: float) -> None:
        """Have a version be wanted for the same reason for so much longer."""
        self._versions[version_id].placed_at -= seconds

    def put_elsewhere(self, version_id: int, *, is_there: bool = True) -> None:
        """Have another server announce a version, or take its endpoint back."""
        self._versions[version_id].is_elsewhere = is_there

    def register_endpoint(self, version_id: int) -> None:
        """Register the server's address for a version, as people do."""
        self._versions[version_id].has_endpoint = self._versions[version_id].is_others = True

    def ask_again(self, version_id: int) -> None:
        """Have a load that failed begin again."""
        record = self._versions[version_id].record
        if record is not None:
            self._versions[version_id].record = record._replace(may_retry=True, attempt=0)

    def require_validation(self, version_id: int) -> None:
        """Give a version its role only with a validation that holds."""
        self._versions[version_id].requires_validation = True

    def validation_of(self, version_id: int) -> ValidationResult | None:
        """Return what became of the newest validation."""
        return self._versions[version_id].validation

    def digest_of(self, version_id: int) -> str | None:
        """Return the digest that was pinned."""
        return self._versions[version_id].digest

    def state_of(self, version_id: int) -> LoadingState | None:
        """Return the recorded state."""
        record = self._versions[version_id].record
        return None if record is None else record.state

    def error_of(self, version_id: int) -> str | None:
        """Return the recorded error's code."""
        error = self._versions[version_id].error
        return None if error is None else error[0]

    def problem_of(self, version_id: int) -> str | None:
        """Return the recorded error's words."""
        error = self._versions[version_id].error
        return None if error is None else error[1]

    def has_endpoint(self, version_id: int) -> bool:
        """Whether proxies may call the server for a version."""
        return self._versions[version_id].has_endpoint

    async def look(self, server: ServerReport, epoch: Epoch) -> Sequence[VersionAtServer]:
        self._fence(epoch)
        self.reports.append(server)
        return [
            VersionAtServer(
                number,
                one.model_name,
                one.version,
                one.artifact_uri,
                one.framework,
                one.digest,
                one.timeout_seconds,
                one.why,
                one.has_endpoint,
                one.has_endpoint and not one.is_others,
                self._record_of(one),
                one.requires_validation,
                None if one.idle_since is None else self._now() - one.idle_since,
                one.is_elsewhere,
                one.why is Why.PREVIOUS_CHAMPION and self._now() - one.placed_at >= KEPT_SECONDS,
                one.is_asked_for,
            )
            for number, one in sorted(self._versions.items())
            if one.why is not None or one.record is not None or one.has_endpoint
        ]

    def expected_bytes_of(self, version_id: int) -> int:
        """Return what a version was expected to take when there was no room for it; 0: it always was there."""
        return self._versions[version_id].expected_bytes or 0

    async def write(
        self, version_id: int, state: LoadingState, epoch: Epoch, *, attempt: int = 0, digest: str | None = None
    ) -> None:
        self._fence(epoch)
        self._set(version_id, LoadingRecord(state, attempt, may_retry=False, digest=digest))

    async def fail(
        self,
        version_id: int,
        code: str,
        error: str,
        epoch: Epoch,
        *,
        attempt: int,
        retry_seconds: float | None,
        expected_bytes: int | None = None,
    ) -> None:
        self._fence(epoch)
        one = self._versions[version_id]
        one.expected_bytes = expected_bytes or one.expected_bytes
        if one.record is not None:
            self._set(version_id, one.record._replace(state=LoadingState.ERROR, attempt=attempt, may_retry=False))
            one.error = (code, error)
            one.retry_at = None if retry_seconds is None else self._now() + retry_seconds

    async def note_memory(self, version_id: int, memory_bytes: int, epoch: Epoch) -> None:
        self._fence(epoch)
        self._versions[version_id].memory_bytes = memory_bytes

    async def pin(self, version_id: int, digest: str, epoch: Epoch) -> None:
        self._fence(epoch)
        one = self._versions[version_id]
        one.digest = one.digest or digest
        if one.digest != digest:
            raise ArtifactDiffers(
                f"the artifact is {digest}, and was {one.digest} when it was fetched first: not loaded"
            )

    async def record_validation(self, version_id: int, result: ValidationResult, epoch: Epoch) -> None:
        self._fence(epoch)
        self._versions[version_id].validation = result

    async def announce(self, version_id: int, epoch: Epoch) -> bool:
        self._fence(epoch)
        one = self._versions[version_id]
        if one.why is None:
            return False
        if self.refuses_endpoints:
            raise PolicyRefused("the endpoint is the machine of the process that calls it")
        if one.record is not None:
            one.has_endpoint = True
            self._set(version_id, one.record._replace(state=LoadingState.AVAILABLE, attempt=0, may_retry=False))
        return True

    async def withdraw(self, version_id: int, state: LoadingState, epoch: Epoch, *, in_turn: bool = False) -> bool:
        self._fence(epoch)
        one = self._versions[version_id]
        if in_turn and not self.others_serve:
            return False
        if not (one.has_role or one.is_others):
            one.has_endpoint = False
        if not one.has_endpoint or state is not LoadingState.QUIESCING:
            record = one.record or LoadingRecord(state, 0, may_retry=False, digest=None)
            self._set(version_id, record._replace(state=state))
        return not one.has_endpoint

    async def forget(self, version_id: int, epoch: Epoch) -> None:
        self._fence(epoch)
        self._versions[version_id].record = None

    async def listen(self, on_change: Callable[[], None]) -> None:
        self._answer_or_fail()
        self._listeners.append(on_change)
        on_change()
        try:
            await asyncio.Event().wait()
        finally:
            self._listeners.remove(on_change)

    async def close(self) -> None:
        """Nothing is open."""

    def _record_of(self, one: _Version) -> LoadingRecord | None:
        if one.record is None:
            return None
        record = one.record._replace(memory_bytes=one.memory_bytes)
        if one.retry_at is not None and one.retry_at <= self._now():
            record = record._replace(may_retry=True)
        if record.state is LoadingState.QUIESCING:
            is_over = self.calls_are_over and not self.unread_proxies
            record = record._replace(
                unread_proxies=self.unread_proxies, reporting_proxies=self.reporting_proxies, calls_are_over=is_over
            )
        return record

    def _set(self, version_id: int, record: LoadingRecord) -> None:
        one = self._versions[version_id]
        one.record, one.error, one.retry_at = record, None, None

    def _fence(self, epoch: Epoch) -> None:
        self._answer_or_fail()
        if epoch != self.epoch:
            raise LeadershipLost(f"epoch {epoch} is over")

    def _answer_or_fail(self) -> None:
        if not self.available:
            raise RegistryUnavailable("the registry is switched off")
