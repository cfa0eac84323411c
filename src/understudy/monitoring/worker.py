"""The loop of a monitor or agent: leader election by a lease, and the leader runs due jobs, one after another."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Literal, NoReturn

import structlog

from understudy.core.schedule import next_run
from understudy.errors import LeadershipLost, RegistryError, UnderstudyError
from understudy.ports.monitoring.lease import LEASE_SECONDS, Epoch, Lease
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

RENEW_SECONDS = 2.0
"""Pause between two renewals; with the time-out of one (1.5 s) it leaves room for a second try on a new connection."""
HELD_SECONDS = LEASE_SECONDS - 1.0
"""How long a renewal is trusted, from before it was asked for: jobs have a second to stop until another may lead."""
STANDBY_SECONDS = 1.0
"""Pause between two tries to lead: a leader that died is followed within ``LEASE_SECONDS`` and this."""
RETRY_SECONDS = 0.5
TELL_AGAIN_SECONDS = 60.0
"""After so long a problem that lasts is logged once more: a log is mostly read at its end."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work that the leader repeats.

    ``run`` gets the epoch, which every write of its own must name (see ``adapters/postgres/monitoring/lease.py``); it
    is cancelled when it is late and when leadership is lost, and must then leave nothing half done.
    """

    name: str
    """For log and metrics."""
    interval_seconds: float
    timeout_seconds: float
    run: Callable[[Epoch], Awaitable[None]]
    is_vital: bool = False
    """Whether an alert fires without its success metric: then it is set at the first success only, or a process that
    crashes again and again before that would look alive."""


class MonitorWorker:
    """Runs jobs while it leads.

    Args:
        lease: Elects the leader; its opener closes it.
        jobs: All of them are due when leadership begins, in this order.
        telemetry: Gets who leads, and of each job the last success (before the first: when this process began to lead),
            durations and failures.
        holder: This process's name in the lease, which no other process has.
        finish_seconds: How long the job under way may go on after :meth:`stop`.
        now: The monotonic clock, in seconds.
        unix: The wall clock, in seconds since the epoch.
        kind: What metrics and log events begin with: ``monitor`` or ``agent``.
        stand_down: Breaks off what jobs began beside themselves; called whenever leadership ends.
        stranded: Called each time that the lease cannot be asked for: who leads is not known.
        answered: Ends what that began; called each time that the lease has answered whether this process leads now.
    """

    def __init__(
        self,
        lease: Lease,
        jobs: Sequence[Job],
        telemetry: Telemetry,
        *,
        holder: str,
        finish_seconds: float,
        now: Callable[[], float],
        unix: Callable[[], float],
        kind: Literal["monitor", "agent"] = "monitor",
        stand_down: Callable[[], Awaitable[None]] | None = None,
        stranded: Callable[[], None] | None = None,
        answered: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._lease = lease
        self._jobs = tuple(jobs)
        self._telemetry = telemetry
        self._holder = holder
        self._finish_seconds = finish_seconds
        self._now = now
        self._unix = unix
        self._kind = kind
        self._stand_down = stand_down
        self._stranded = stranded
        self._answered = answered
        self._is_stopping = False
        self._is_hurried = False
        self._woken = asyncio.Event()
        """Set when it is to stop, and when it is to hurry."""
        self._held_until = -inf
        """Until when no other monitor can have the lease; by the monotonic clock."""
        self._limit: asyncio.Timeout | None = None
        """Of the job under way."""
        self._has_led = False
        self._told = ""
        """The last thing that was said of a lease that cannot be reached."""
        self._told_at = -inf

    async def run(self) -> None:
        """Lead or stand by until :meth:`stop`; the lease is free when this ends."""
        self._telemetry.set(f"{self._kind}_leader", 0)
        try:
            while not self._is_stopping:
                epoch = await self._try_to_lead()
                if epoch is not None:
                    await self._lead(epoch)
                await self._stopped_within(STANDBY_SECONDS)
        finally:
            with suppress(RegistryError):  # then it is free when it is over
                await self._lease.release(self._holder)

    def stop(self) -> None:
        """Start no further job, let the one under way finish within its bound, then let the next leader in."""
        self._is_stopping = True
        self._woken.set()
        if self._limit is not None and not self._limit.expired():
            end = asyncio.get_running_loop().time() + self._finish_seconds
            self._limit.reschedule(min(end, self._limit.when() or end))

    def hurry(self) -> None:
        """Have every job run now: what it waits for has happened. One that is under way runs once more after that."""
        self._is_hurried = True
        self._woken.set()

    # -- leadership ----------------------------------------------------------------------------------------------------

    async def _ask(self) -> Epoch | None:
        # Counted from before the question: Postgres' clock starts to run at an unknown time after it.
        asked_at = self._now()
        epoch = await self._lease.take_or_renew(self._holder)
        self._told = ""
        if epoch is not None:
            self._held_until = asked_at + HELD_SECONDS
        return epoch

    async def _try_to_lead(self) -> Epoch | None:
        try:
            epoch = await self._ask()
        except RegistryError as problem:
            self._tell(problem)
            if self._stranded is not None:
                self._stranded()
            return None
        if self._answered is not None:
            await self._answered()
        return epoch

    async def _lead(self, epoch: Epoch) -> None:
        """Run jobs until leadership is lost or :meth:`stop`."""
        _log.info(f"{self._kind}.leads", epoch=epoch, holder=self._holder)
        self._begin_counting()
        self._telemetry.set(f"{self._kind}_leader", 1)
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep(epoch))
                await self._work(epoch)
                keeping.cancel()
        except* LeadershipLost as lost:
            _log.warning(f"{self._kind}.leadership_lost", epoch=epoch, why=[str(reason) for reason in lost.exceptions])
        finally:
            self._telemetry.set(f"{self._kind}_leader", 0)
            if self._stand_down is not None:
                await self._stand_down()

    def _begin_counting(self) -> None:
        """Give jobs a last success to be measured from, or one that never succeeds would never be missed.

        Once in a process: one that wins and loses the lease by turns must not look as if its jobs succeeded.
        """
        if not self._has_led:
            for job in self._jobs:
                if not job.is_vital:
                    self._set_last_success(job)
        self._has_led = True

    async def _keep(self, epoch: Epoch) -> NoReturn:
        """Renew the lease for as long as it can be.

        Raises:
            LeadershipLost: Always, in the end.
        """
        pause_seconds = RENEW_SECONDS
        while True:
            await asyncio.sleep(min(pause_seconds, self._seconds_left()))
            left_seconds = self._seconds_left()
            try:
                async with asyncio.timeout(left_seconds):
                    found = await self._ask()
            except (RegistryError, TimeoutError) as problem:
                self._tell(problem)
                pause_seconds = RETRY_SECONDS
                continue
            if found != epoch:
                raise LeadershipLost("another process has taken the lease")
            pause_seconds = RENEW_SECONDS

    def _seconds_left(self) -> float:
        """Return how long the lease is certain to be ours.

        Raises:
            LeadershipLost: No longer; it may have passed unnoticed, in a process that was frozen.
        """
        left = self._held_until - self._now()
        if left <= 0:
            raise LeadershipLost(f"the lease was not renewed for {HELD_SECONDS:g} s")
        return left

    def _tell(self, problem: Exception) -> None:
        """Log a problem with the lease, once a minute while it lasts."""
        said = f"{type(problem).__name__}: {problem}"
        if said != self._told or self._now() - self._told_at >= TELL_AGAIN_SECONDS:
            self._told_at = self._now()
            _log.warning(f"{self._kind}.lease_unreachable", problem=said)
        self._told = said

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def _work(self, epoch: Epoch) -> None:
        """Run each job when it is due, the one that waited longest first, until :meth:`stop`."""
        began_at = self._now()
        due = dict.fromkeys(self._jobs, began_at)
        while not await self._stopped_within(min(due.values(), default=inf) - self._now()):
            if self._is_hurried:
                self._is_hurried = False
                due = dict.fromkeys(self._jobs, self._now())
            self._seconds_left()  # raises in a process that wakes from a freeze
            job = min(due, key=due.__getitem__)
            await self._run(job, epoch)
            # A timer may fire before the clock shows its time; this run is over all the same.
            due[job] = next_run(began_at, job.interval_seconds, max(self._now(), due[job]))

    async def _run(self, job: Job, epoch: Epoch) -> None:
        """Run a job once and say how it went; only a lost leadership goes further."""
        began_at = self._now()
        try:
            async with asyncio.timeout(job.timeout_seconds) as self._limit:
                await job.run(epoch)
        except LeadershipLost:
            raise
        except Exception as problem:  # noqa: BLE001 - logged and counted, and the other jobs go on
            self._telemetry.count(f"{self._kind}_failures_total", job.name)
            _log.warning(
                f"{self._kind}.job_failed",
                job=job.name,
                problem=_said(problem),
                is_late=self._limit is not None and self._limit.expired(),
                exc_info=not isinstance(problem, UnderstudyError | TimeoutError),
            )
        else:
            self._set_last_success(job)
        finally:
            self._limit = None
            self._telemetry.observe(f"{self._kind}_tick_duration_seconds", self._now() - began_at, job.name)

    def _set_last_success(self, job: Job) -> None:
        self._telemetry.set(f"{self._kind}_last_success_timestamp_seconds", self._unix(), job.name)

    async def _stopped_within(self, seconds: float) -> bool:
        """Wait so long, less when :meth:`stop` or :meth:`hurry` is called; return whether it was the former."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        if not self._is_stopping:
            self._woken.clear()
        return self._is_stopping


def _said(problem: Exception) -> str:
    """Return an exception in words, with the code by which the documentation knows it."""
    code = f"{problem.code} " if isinstance(problem, UnderstudyError) else ""
    return f"{code}{type(problem).__name__}: {problem}"
