"""Readiness probes of replicas: ejected and suspect ones are probed beside the traffic (half-open)."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from understudy.adapters.model_servers.replicas.call_tasks import is_cancelled
from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.adapters.model_servers.replicas.upstream_health import UpstreamHealth
from understudy.adapters.model_servers.status import CALL_FAILED, closed, what_ended
from understudy.core.upstream.replicas import CallResult
from understudy.errors import BackendUnavailable

PROBE_SECONDS = 0.5
HALF_OPEN_SECONDS = 0.03
"""Longest wait of a call for a suspect replica's probe; a replica that serves answers it in a round trip."""


class Probe(NamedTuple):
    """The call that asks a server whether it serves the version, and what its answer says."""

    method: str
    request: bytes
    says_ready: Callable[[bytes], bool]
    """Raises ``ValueError`` or protobuf's ``DecodeError`` when the answer cannot be read."""


class Prober:
    """Probes the replicas of one version. One probe of a replica is in flight at a time, for all calls."""

    def __init__(self, probe: Probe, health: UpstreamHealth, now: Callable[[], float]) -> None:
        self._probe = probe
        self._health = health
        self._now = now
        self._ejected: dict[Replica, asyncio.Task[None]] = {}
        self._suspect: dict[Replica, asyncio.Task[bool]] = {}

    @property
    def tasks(self) -> tuple["asyncio.Task[None] | asyncio.Task[bool]", ...]:
        """The probes in flight."""
        return *self._ejected.values(), *self._suspect.values()

    def start_due(self) -> None:
        """Probe ejected replicas beside the traffic: no caller's call is spent on finding out."""
        for replica in self._health.due():
            if replica not in self._ejected:
                self._ejected[replica] = asyncio.create_task(self._probe_ejected(replica))

    def probe(self, replica: Replica) -> "asyncio.Task[bool]":
        """Probe a suspect replica, or join the probe of it that is in flight."""
        probing = self._suspect.get(replica)
        if probing is None:
            probing = self._suspect[replica] = asyncio.create_task(self._probe_suspect(replica))
        return probing

    async def first_ready(self, replicas: Iterable[Replica], deadline: float) -> Replica | None:
        """Return the first of ``replicas`` that says that it serves, if one does within ``HALF_OPEN_SECONDS``.

        Raises:
            BackendUnavailable: The connections were closed meanwhile.
        """
        probed = {self.probe(replica): replica for replica in replicas}
        until = min(self._now() + HALF_OPEN_SECONDS, deadline)
        silent = set(probed)
        while silent and (left_seconds := until - self._now()) > 0:
            heard, silent = await asyncio.wait(silent, timeout=left_seconds, return_when=asyncio.FIRST_COMPLETED)
            for probing in heard:
                if probed[probing].is_closed:
                    raise closed()
                if probing.result():
                    return probed[probing]
        return None

    async def says_ready(self, replica: Replica, timeout_seconds: float, *, without_probe: bool = False) -> bool:
        """Whether a replica says that it serves; ``without_probe`` is what holds for a server that has no such call."""
        try:
            return await self.ask(replica, timeout_seconds)
        except asyncio.CancelledError:
            # gRPC raises this, too, when the channel is closed under a probe that was not cancelled.
            if replica.is_closed and not is_cancelled():
                return False
            raise
        except CALL_FAILED as error:
            # Such a server lives, and a call finds out whether it serves; otherwise it would stay ejected for ever.
            if without_probe and what_ended(error) == grpc.StatusCode.UNIMPLEMENTED.name:
                return True
        except (grpc.aio.UsageError, BackendUnavailable, TimeoutError, ValueError):
            pass
        replica.resolve_again()
        return False

    async def ask(self, replica: Replica, timeout_seconds: float, *, wait_for_ready: bool = True) -> bool:
        """Return what the replica answers; raises what gRPC, the name resolution or the reading raises.

        Raises:
            ValueError: The answer cannot be read, or there is none although the call ended with OK.
        """
        if not replica.is_open:
            async with asyncio.timeout(timeout_seconds):
                await replica.open()
        call = replica.method(self._probe.method)
        answer: bytes | None = await call(
            self._probe.request, timeout=timeout_seconds, metadata=replica.metadata, wait_for_ready=wait_for_ready
        )
        if answer is None:
            raise ValueError("the call ended with OK and without an answer")
        try:
            return self._probe.says_ready(answer)
        except DecodeError as error:
            raise ValueError(str(error)) from None

    async def _probe_ejected(self, replica: Replica) -> None:
        try:
            ready = await self.says_ready(replica, PROBE_SECONDS, without_probe=True)
            self._health.record_probe(replica, ready=ready)
        finally:
            del self._ejected[replica]

    async def _probe_suspect(self, replica: Replica) -> bool:
        """Return whether a replica that gets calls says that it serves; one that does not is late once more."""
        try:
            is_ready = await self.says_ready(replica, PROBE_SECONDS, without_probe=True)
        finally:
            del self._suspect[replica]
        if is_ready:
            self._health.record_probe(replica, ready=True)
        else:
            self._health.record(replica, CallResult.LATE)
        return is_ready
