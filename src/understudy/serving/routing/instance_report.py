"""A proxy's report of what it acts on, by which rollouts know that a change has reached every proxy."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import structlog

from understudy.background.tasks import end_tasks, in_turns
from understudy.core.routing.policy import PolicySnapshot, ServingPolicy
from understudy.errors import RegistryError
from understudy.ports.registry.policy import PolicySource
from understudy.serving.routing.removed_endpoints import RemovedEndpoints

_log = structlog.get_logger(__name__)

REPORT_SECONDS = 10.0
"""Longest time between two reports: a proxy without a report for 30 seconds counts as stale."""
SIGN_OFF_SECONDS = 2.0
"""Longest time that a proxy which stops takes to sign off. One that cannot becomes stale, which is no error."""


class InstanceReport:
    """Reports a proxy's generations and the calls that it has in flight.

    Args:
        source: Takes the reports.
        instance: This process's name in ``ProxyInstance``.
        in_flight: Calls under way by version id.
        removed: Of versions that lost an endpoint, calls that may still reach it.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        source: PolicySource,
        instance: str,
        in_flight: Callable[[], Mapping[int, int]],
        removed: RemovedEndpoints,
        now: Callable[[], float],
    ) -> None:
        self._source = source
        self._instance = instance
        self._in_flight = in_flight
        self._removed = removed
        self._now = now
        self._due_at = 0.0
        self._draining = False
        """Whether the last report had calls in flight at versions that get no new ones."""
        self._horizon: int | None = None
        """Every change by a transaction before this one is in the snapshot."""
        self._is_horizon_awaited = False
        """Whether the snapshot has a change that the horizon does not cover yet."""
        self._sending: asyncio.Task[None] | None = None
        """The last report, which may be under way."""

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next report; while versions drain it always is."""
        return self._draining or self._now() >= self._due_at

    def expedite(self) -> None:
        """Make the next report due at once: the snapshot has changed."""
        self._due_at = 0.0
        self._is_horizon_awaited = True

    def note_read(self, horizon: int | None, newest_change: int | None) -> None:
        """Note up to which transaction the snapshot is; an agent may wait for it before it unloads a version.

        A transaction that is open for long keeps the horizon behind ``newest_change``: it is then awaited further.
        """
        if horizon is None or horizon == self._horizon:
            return
        self._horizon = horizon
        if self._is_horizon_awaited:
            self._due_at = 0.0
            self._is_horizon_awaited = newest_change is not None and horizon <= newest_change

    async def send(self, snapshot: PolicySnapshot) -> None:
        """Report a snapshot; a failure is logged, and the next report comes in time."""
        self._due_at = self._now() + REPORT_SECONDS
        generations = {name: policy.generation for name, policy in snapshot.policies.items()}
        in_flight = {**self._removed.calls(), **self._in_flight()}
        left = {version_id for version_id, calls in in_flight.items() if calls}
        await in_turns(_without_called(left, snapshot.policies.values()), self._now)
        self._draining = bool(left)
        # Of a model that was rejected this proxy acts on older rows.
        horizon = None if snapshot.rejected else self._horizon
        self._sending = asyncio.create_task(self._source.report(self._instance, generations, in_flight, horizon))
        try:
            await asyncio.shield(self._sending)
        except RegistryError as problem:
            _log.warning("policy.not_reported", problem=str(problem))

    async def stop(self) -> None:
        """Break off a report that is under way."""
        if self._sending is not None:
            await end_tasks([self._sending])

    async def sign_off(self) -> None:
        """Take this proxy's report back, if there was one."""
        if self._sending is None:
            return
        try:
            async with asyncio.timeout(SIGN_OFF_SECONDS):
                # Breaking it off would not stop Postgres, which would write the row after it was deleted.
                await asyncio.wait([self._sending])
                await self._source.sign_off(self._instance)
        except (RegistryError, TimeoutError) as problem:
            _log.warning("policy.not_signed_off", problem=str(problem) or f"it takes over {SIGN_OFF_SECONDS:g} s")


def _without_called(version_ids: set[int], policies: Iterable[ServingPolicy]) -> Iterator[None]:
    """Take the versions that get calls out of a set, a policy at each step."""
    for policy in policies:
        if not version_ids:
            return
        version_ids -= policy.called_ids
        yield
