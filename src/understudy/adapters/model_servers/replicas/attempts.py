"""One attempt of a call at one replica: its channel is opened if need be, the result is held against the replica."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import grpc.aio

from understudy.adapters.model_servers.channels import Call
from understudy.adapters.model_servers.replicas.call_tasks import is_cancelled, retrieve_exception
from understudy.adapters.model_servers.replicas.hedged_call import HedgedCall
from understudy.adapters.model_servers.replicas.probes import Prober
from understudy.adapters.model_servers.replicas.replica import Replica, Rpc
from understudy.adapters.model_servers.replicas.upstream_health import UpstreamHealth
from understudy.adapters.model_servers.status import (
    CALL_FAILED,
    NotTaken,
    closed,
    result_of,
    traced_end,
    translated,
    what_ended,
)
from understudy.core.upstream.replicas import CallResult, had_time
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded
from understudy.ports.telemetry.tracing import CURRENT, NO_ATTRIBUTES, Attributes, Span

MAX_UNCANCELLED_SECONDS = 120.0
"""How long a call that must not be cancelled may run on; TorchServe's own response time-out."""
_NO_ADDRESS = "one of its endpoints has no permitted address: see the proxy's log"
"""What a caller is told: internal addresses are not for callers."""


class ServerTraits(NamedTuple):
    """Where a kind of server is unlike the others."""

    refusal_mark: str | None = None
    """Text in the details of errors that the server itself made, whatever their code: it lives and refuses the call."""
    cancels_cleanly: bool = True
    """Whether a call may be cancelled at its deadline. If not it runs on, its answer thrown away."""


USUAL_TRAITS = ServerTraits()
_OK: Attributes = {"rpc.grpc.status_code": 0}
_CANCELLED: Attributes = {"rpc.grpc.status_code": 1}


class Attempts:
    """Sends calls of one version to its replicas.

    ``usual_seconds`` is the version's own time limit: calls that get much less say little about a replica.
    """

    def __init__(
        self,
        health: UpstreamHealth,
        prober: Prober,
        traits: ServerTraits,
        usual_seconds: float,
        now: Callable[[], float],
    ) -> None:
        self._health = health
        self._prober = prober
        self._traits = traits
        self._usual_seconds = usual_seconds
        self._now = now
        self.abandoned: set[asyncio.Task[bytes]] = set()
        """Calls that run on after their callers have gone, since they must not be cancelled."""

    async def send(self, replica: Replica, rpc: Rpc) -> bytes:
        """Return the replica's answer; a call that must not be cancelled is abandoned at its deadline.

        Raises:
            NotTaken, DeadlineExceeded, BadAnswer, BackendUnavailable: See :meth:`exchange`.
        """
        remaining = rpc.deadline - self._now()
        if remaining <= 0:
            raise DeadlineExceeded("upstream", rpc.budget_seconds)
        if self._traits.cancels_cleanly:
            return await self.exchange(replica, rpc, remaining)
        running = asyncio.ensure_future(self.exchange(replica, rpc, MAX_UNCANCELLED_SECONDS))
        try:
            await asyncio.wait((running,), timeout=remaining)
        finally:
            if not running.done():
                self._abandon(running)
        if running.done():
            return running.result()
        self._record_late(replica, rpc.method, remaining)
        raise DeadlineExceeded("upstream", rpc.budget_seconds)

    async def exchange(
        self, replica: Replica, rpc: Rpc, timeout_seconds: float, hedged: HedgedCall | None = None
    ) -> bytes:
        """Return the replica's answer; ``hedged`` is told what to cancel when a hedge answers first.

        Raises:
            NotTaken: Another replica may take the call.
            DeadlineExceeded: ``timeout_seconds`` passed.
            BadAnswer: The replica refused the call, or ended it without an answer.
            BackendUnavailable: The channel was closed under the call.
        """
        replica.in_flight += 1
        try:
            if not replica.is_open:
                timeout_seconds = await self._open(replica, rpc, timeout_seconds, hedged)
            answer = await self._call(replica, rpc, timeout_seconds, hedged)
        except CALL_FAILED as error:
            result = result_of(error, self._traits.refusal_mark)
            if result is CallResult.LATE:
                self._record_late(replica, rpc.method, timeout_seconds)
            else:
                self._health.record(replica, result)
            if result is CallResult.UNAVAILABLE:
                replica.resolve_again()
            raise translated(error, result, rpc.budget_seconds) from error
        except asyncio.CancelledError:
            # gRPC raises this, too, when the channel is closed under a call that was not cancelled.
            if replica.is_closed and not is_cancelled():
                raise closed() from None
            raise
        except grpc.aio.UsageError:
            raise closed() from None
        finally:
            replica.in_flight -= 1
        if answer is None:
            self._health.record(replica, CallResult.REFUSED)
            raise BadAnswer("the model server ended the call with OK and without an answer")
        self._health.record(replica, CallResult.ANSWERED)
        return answer

    async def _call(
        self, replica: Replica, rpc: Rpc, timeout_seconds: float, hedged: HedgedCall | None
    ) -> bytes | None:
        """Send the call to an open replica, as a step of the trace if there is one, and return the answer.

        ``None``, of which gRPC's types say nothing: the call ended with OK before there was a whole message.
        """
        parent = CURRENT.get()
        step = _step_of(parent, rpc.method, replica) if parent is not None else None
        metadata = replica.metadata if step is None else (*replica.metadata, *step.headers)
        call = replica.method(rpc.method)(rpc.request, timeout=timeout_seconds, metadata=metadata)
        if hedged is not None:
            hedged.first = call
        return await call if step is None else await _traced(step, call, is_grpc=rpc.method.startswith("/"))

    async def _open(self, replica: Replica, rpc: Rpc, timeout_seconds: float, hedged: HedgedCall | None) -> float:
        """Open the replica's channel and return what is then left of ``timeout_seconds``.

        Raises:
            CancelledError: The hedge was answered meanwhile.
        """
        began_at = self._now()
        opening = asyncio.ensure_future(replica.open())
        opening.add_done_callback(retrieve_exception)
        if hedged is not None:
            hedged.first = opening
        try:
            async with asyncio.timeout(timeout_seconds):
                await opening
        except TimeoutError:
            self._record_late(replica, rpc.method, timeout_seconds)
            raise DeadlineExceeded("upstream", rpc.budget_seconds) from None
        except BackendUnavailable as problem:
            if replica.is_closed:
                raise
            self._health.record(replica, CallResult.UNABLE)
            raise NotTaken(CallResult.UNABLE, "UNAVAILABLE", _NO_ADDRESS) from problem
        if hedged is not None and hedged.answer is not None:
            raise asyncio.CancelledError  # as if it had been cancelled: it was found in the same moment
        return max(timeout_seconds - (self._now() - began_at), 0.001)

    def _abandon(self, running: "asyncio.Task[bytes]") -> None:
        self.abandoned.add(running)
        running.add_done_callback(self.abandoned.discard)
        running.add_done_callback(retrieve_exception)

    def _record_late(self, replica: Replica, method: str, given_seconds: float) -> None:
        """Hold a call that timed out against its replica; if it had too little time for that, probe the replica."""
        if had_time(given_seconds, self._usual_seconds, replica.times(method).p95_seconds):
            self._health.record(replica, CallResult.LATE)
        elif not replica.is_closed and not replica.health.ejected:
            self._prober.probe(replica)


def _step_of(parent: Span, method: str, replica: Replica) -> Span:
    """Begin a call at a replica, as a step of the trace, which says where its name has led."""
    step = parent.attempt(method, replica.endpoint)
    if replica.address is not None:
        step.tell({"network.peer.address": str(replica.address)})
    return step


async def _traced(step: Span, call: Call, *, is_grpc: bool) -> bytes:
    """Return the answer, and tell the span how the call ended; a call that is cancelled has not failed."""
    ended = _CANCELLED if is_grpc else NO_ATTRIBUTES
    try:
        answer = await call
        ended = _OK if is_grpc else NO_ATTRIBUTES
    except CALL_FAILED as error:
        ended = traced_end(error)
        step.fail(what_ended(error))
        raise
    finally:
        step.tell(ended)
        step.end()
    return answer
