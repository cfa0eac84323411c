"""The model servers of one version: which replica gets a call, and what the status of that means.

gRPC's own ``round_robin``, keepalive and retry policy do nothing for a stopped peer, so the choice is ours
(``core.replicas``).
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import grpc
import grpc.aio

from understudy.adapters.model_servers.addresses import PLAIN_WIRE, Wire
from understudy.adapters.model_servers.hedged_call import NO_HEDGING, Hedging, Race
from understudy.adapters.model_servers.replica import Replica
from understudy.core.upstream.hedging import HedgeBudget, choose_hedge
from understudy.core.upstream.replicas import (
    HEALTHY,
    Health,
    Outcome,
    RetryBudget,
    choose_replica,
    choose_undoubted,
    had_time,
    health_after_probe,
    healths_after,
)
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded
from understudy.ports.model_backend import ServerSeen
from understudy.ports.tracing import CURRENT, Span

Metadata: TypeAlias = tuple[tuple[str, str], ...]

PROBE_SECONDS = 0.5
DOUBT_SECONDS = 0.03
"""Longest wait of a call for a replica in doubt to say that it serves; one that does says so in a round trip."""
PATIENCE_SECONDS = 120.0
"""How long a call that must not be cancelled may run on; TorchServe's own response time-out."""
MAX_DETAIL_CHARACTERS = 200
"""Characters that are kept of what a model server says about a call that it refused."""
MAX_ABANDONED_CALLS = 64
"""Calls of one version that may run on after their caller has gone."""

_OUTCOMES = {
    grpc.StatusCode.UNAVAILABLE: Outcome.UNAVAILABLE,
    grpc.StatusCode.CANCELLED: Outcome.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.LATE,
    # Said at once and for every call: as refusals they would draw all calls to the replica that is least busy.
    grpc.StatusCode.NOT_FOUND: Outcome.UNABLE,
    grpc.StatusCode.UNIMPLEMENTED: Outcome.UNABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Outcome.UNABLE,
    grpc.StatusCode.UNAUTHENTICATED: Outcome.UNABLE,
    grpc.StatusCode.PERMISSION_DENIED: Outcome.UNABLE,
}
"""What a status says about the replica; all others are refusals of the call."""
_TOO_LARGE = ("larger than max", "exceeds maximum size")
"""What gRPC (C and Go; Java) writes into RESOURCE_EXHAUSTED for one message over a limit, ours or the server's."""
_NO_ADDRESS = "an endpoint of it has no address that may be connected to, and the proxy's log says which"
"""What a caller is told; which addresses there are inside is not for callers."""
_RESET = "Received RST_STREAM"
"""What gRPC writes into the details when the peer broke off the stream; the code is INTERNAL for most reasons."""


class Probe(NamedTuple):
    """The call that asks a server whether it serves the version, and what its answer says."""

    method: str
    request: bytes
    says_ready: Callable[[bytes], bool]
    """Raises ``ValueError`` when the answer cannot be read."""


class ServerTraits(NamedTuple):
    """Where a kind of server is unlike the others."""

    refusal_mark: str | None = None
    """Text in the details of errors that the server itself made, whatever their code: it lives and refuses the call."""
    cancels_cleanly: bool = True
    """Whether a call may be broken off at its deadline. If not it runs on, its answer thrown away."""


USUAL_TRAITS = ServerTraits()


class _NotTaken(Exception):
    """The replica did not take or finish the call; another one may."""

    def __init__(self, outcome: Outcome, code: grpc.StatusCode, why: str = "", said: str = "") -> None:
        super().__init__(code.name)
        self.outcome = outcome
        self.code = code
        self.why = why
        self.said = said


class ReplicaSet:
    """The replicas of one version. Channels open at the first call, in the loop that runs then (so after any fork).

    ``usual_seconds`` is the version's own time limit: calls that get much less say little about a replica.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        probe: Probe,
        *,
        traits: ServerTraits = USUAL_TRAITS,
        usual_seconds: float = 0.0,
        metadata: Metadata = (),
        hedging: Hedging = NO_HEDGING,
        wire: Wire = PLAIN_WIRE,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._probe = probe
        self._traits = traits
        self._usual_seconds = usual_seconds
        self._metadata = metadata
        self._wire = wire
        self._now = now
        self._draw = draw
        self._replicas: list[Replica] | None = None
        self._closed = False
        self._all_healthy = [HEALTHY] * len(self._endpoints)
        self._healths: list[Health] = self._all_healthy.copy()
        self._in_flight: list[int] = [0] * len(self._endpoints)
        self._retries = RetryBudget()
        self._hedging = hedging
        # The call that loses must be broken off: where that cannot be done it would hold a worker for nothing.
        self._can_hedge = hedging.ratio > 0 and traits.cancels_cleanly and len(self._endpoints) > 1
        self._hedges = HedgeBudget(hedging.ratio)
        self._hedge_tasks: set[asyncio.Task[bytes]] = set()
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[int, asyncio.Task[bool]] = {}
        self._abandoned: set[asyncio.Task[bytes]] = set()

    @property
    def in_flight(self) -> int:
        """Calls that have not ended, those that run on without a caller included."""
        return sum(self._in_flight)

    @property
    def ejected(self) -> int:
        """Replicas that get no calls now."""
        return sum(health.ejected for health in self._healths)

    async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """Return the answer of one replica; one that is down or cannot serve the version is replaced by another once.

        With ``hedging``, a replica that has not answered after its own 95th percentile gets company: the first of both
        answers is returned.

        Raises:
            BackendUnavailable: No replica took the call; the message carries the last one's gRPC code.
            DeadlineExceeded: ``timeout_seconds`` passed.
            BadAnswer: A replica refused the call; the message carries the gRPC code, not the server's text.
        """
        deadline = self._now() + timeout_seconds
        index = self._choose()
        if self._healths[index].is_doubted:
            index = await self._in_place_of(index, deadline)
        try:
            if self._can_hedge:
                return await self._race(index, method, request, deadline, timeout_seconds)
            return await self._attempt(index, method, request, deadline, timeout_seconds)
        except _NotTaken as not_taken:
            index = await self._choose_again(index, not_taken, deadline)
        try:
            return await self._attempt(index, method, request, deadline, timeout_seconds)
        except _NotTaken as not_taken:
            raise _unavailable(not_taken) from not_taken.__cause__

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether a replica says that it serves the version; a connection that is being made is waited for."""
        if self._closed:
            return False
        replicas = self._open()
        return any(await asyncio.gather(*(self._says_ready(replica, timeout_seconds) for replica in replicas)))

    async def examine(self, timeout_seconds: float) -> tuple[ServerSeen, ...]:
        """Ask each replica by itself whether it serves the version, all at once, in the order of the endpoints.

        A question waits for ``timeout_seconds`` at most, and a replica is asked twice: the first question pays for the
        connection. Not for a set that is closed meanwhile.
        """
        return tuple(
            await asyncio.gather(
                *(
                    self._examine(replica, endpoint, timeout_seconds)
                    for replica, endpoint in zip(self._open(), self._endpoints, strict=True)
                )
            )
        )

    async def close(self) -> None:
        """Close every channel; calls in flight fail, calls to come are refused."""
        self._closed = True
        tasks = [*self._probes.values(), *self._questions.values(), *self._abandoned, *self._hedge_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in self._replicas or ():
            await replica.close()

    # -- choosing ------------------------------------------------------------------------------------------------------

    def _open(self) -> list[Replica]:
        if self._replicas is None:
            self._replicas = [Replica(endpoint, self._wire, self._now) for endpoint in self._endpoints]
        return self._replicas

    def _choose(self) -> int:
        if self._closed:
            raise _closed()
        if len(self._abandoned) >= MAX_ABANDONED_CALLS:
            raise BackendUnavailable("too many late calls still run at the model server")
        self._start_due_probes()
        index = choose_replica(self._healths, self._in_flight, self._draw())
        if index is None:
            raise BackendUnavailable("no model server is registered for the model version")
        return index

    async def _choose_again(self, failed: int, not_taken: _NotTaken, deadline: float) -> int:
        """Return where a call goes that a replica did not take.

        Without another one that gets calls, an ejected one gets this one if it says that it serves. Without that, too,
        a replica that is down is asked once more: the connection may have broken under the call (as it does when a load
        balancer between us restarts), and if not that is known in the same millisecond. One that said itself that it
        cannot would say it again.
        """
        other = choose_replica(self._healths, self._in_flight, self._draw(), avoid=failed)
        is_hopeless = other is None and not self.ejected and not_taken.outcome is Outcome.UNABLE
        if is_hopeless or not self._retries.allows:
            raise _unavailable(not_taken) from not_taken.__cause__
        self._retries = self._retries.after_retry()
        if other is None or self._healths[other].is_doubted:
            other = await self._one_that_serves(deadline, avoid=failed)
        if other is None and not_taken.outcome is Outcome.UNABLE:
            raise _unavailable(not_taken) from not_taken.__cause__
        if other is None:
            await self._open()[failed].let_break()
        return failed if other is None else other

    async def _in_place_of(self, doubted: int, deadline: float) -> int:
        """Return where a call goes whose choice is in doubt; that one is asked, beside the traffic if others serve.

        Raises:
            BackendUnavailable: No replica is beyond doubt, and none says in time that it serves.
        """
        self._ask(doubted)
        index = await self._one_that_serves(deadline)
        if index is None:
            raise BackendUnavailable("no model server of the version says that it serves")
        return index

    async def _one_that_serves(self, deadline: float, avoid: int | None = None) -> int | None:
        """Return a replica that is not in doubt, or without one the first of all that says that it serves.

        The ejected ones are asked, too: in a rolling restart the first replica may be back, and not probed yet, when
        the second one goes.
        """
        index = choose_undoubted(self._healths, self._in_flight, avoid)
        if index is not None:
            return index
        return await self._first_to_say((other for other in range(len(self._healths)) if other != avoid), deadline)

    async def _first_to_say(self, indices: Iterable[int], deadline: float) -> int | None:
        asked = {self._ask(index): index for index in indices}
        until = min(self._now() + DOUBT_SECONDS, deadline)
        silent = set(asked)
        while silent and (left_seconds := until - self._now()) > 0:
            heard, silent = await asyncio.wait(silent, timeout=left_seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._closed:
                raise _closed()
            for asking in heard:
                if asking.result():
                    return asked[asking]
        return None

    # -- calling -------------------------------------------------------------------------------------------------------

    async def _attempt(self, index: int, method: str, request: bytes, deadline: float, budget_seconds: float) -> bytes:
        remaining = deadline - self._now()
        if remaining <= 0:
            raise DeadlineExceeded("upstream", budget_seconds)
        if self._traits.cancels_cleanly:
            return await self._exchange(index, method, request, remaining, budget_seconds)
        running = asyncio.ensure_future(self._exchange(index, method, request, PATIENCE_SECONDS, budget_seconds))
        try:
            await asyncio.wait((running,), timeout=remaining)
        finally:
            if not running.done():
                self._abandon(running)
        if running.done():
            return running.result()
        self._record_late(index, method, remaining)
        raise DeadlineExceeded("upstream", budget_seconds)

    async def _exchange(
        self,
        index: int,
        method: str,
        request: bytes,
        timeout_seconds: float,
        budget_seconds: float,
        *,
        race: Race | None = None,
    ) -> bytes:
        replica = self._open()[index]
        self._in_flight[index] += 1
        try:
            if not replica.is_open:
                timeout_seconds = await self._open_replica(index, method, timeout_seconds, budget_seconds, race)
            answer = await self._send(index, method, request, timeout_seconds, race)
        except grpc.aio.AioRpcError as error:
            outcome = self._outcome_of(error)
            if outcome is Outcome.LATE:
                self._record_late(index, method, timeout_seconds)
            else:
                self._record(index, outcome)
            if outcome is Outcome.UNAVAILABLE:
                replica.look_again()
            raise _translated(error, outcome, budget_seconds) from error
        except asyncio.CancelledError:
            # gRPC says so too when the channel is closed under a call that nobody cancelled.
            if self._closed and not _is_cancelled():
                raise _closed() from None
            raise
        except grpc.aio.UsageError:
            raise _closed() from None
        finally:
            self._in_flight[index] -= 1
        self._record(index, Outcome.ANSWERED)
        return answer

    async def _send(self, index: int, method: str, request: bytes, timeout_seconds: float, race: Race | None) -> bytes:
        """Send the call to an open replica, as a step of what is traced if anything is, and return the answer."""
        parent = CURRENT.get()
        step = parent.attempt(method, self._endpoints[index]) if parent is not None else None
        metadata = self._metadata if step is None else (*self._metadata, *step.headers)
        call = self._open()[index].method(method)(request, timeout=timeout_seconds, metadata=metadata)
        if race is not None:
            race.first = call
        return await call if step is None else await _answer_told(step, call)

    async def _open_replica(
        self, index: int, method: str, timeout_seconds: float, budget_seconds: float, race: Race | None
    ) -> float:
        """Open the replica's channel and return what is then left of ``timeout_seconds``.

        Raises:
            CancelledError: The hedge of ``race`` was answered meanwhile.
        """
        began_at = self._now()
        opening = asyncio.ensure_future(self._open()[index].open())
        opening.add_done_callback(_look_at_result)
        if race is not None:
            race.first = opening
        try:
            async with asyncio.timeout(timeout_seconds):
                await opening
        except TimeoutError:
            self._record_late(index, method, timeout_seconds)
            raise DeadlineExceeded("upstream", budget_seconds) from None
        except BackendUnavailable as problem:
            self._record(index, Outcome.UNABLE)
            raise _NotTaken(Outcome.UNABLE, grpc.StatusCode.UNAVAILABLE, _NO_ADDRESS) from problem
        if race is not None and race.answer is not None:
            raise asyncio.CancelledError  # as if it had been broken off: it was found in the same moment
        return max(timeout_seconds - (self._now() - began_at), 0.001)

    def _abandon(self, running: "asyncio.Task[bytes]") -> None:
        self._abandoned.add(running)
        running.add_done_callback(self._abandoned.discard)
        running.add_done_callback(_look_at_result)

    def _outcome_of(self, error: grpc.aio.AioRpcError) -> Outcome:
        details = error.details() or ""
        if self._traits.refusal_mark is not None and self._traits.refusal_mark in details:
            return Outcome.REFUSED
        if _RESET in details:
            return Outcome.UNAVAILABLE
        if any(mark in details for mark in _TOO_LARGE):
            return Outcome.REFUSED
        return _OUTCOMES.get(error.code(), Outcome.REFUSED)

    def _record(self, index: int, outcome: Outcome) -> None:
        if outcome is Outcome.ANSWERED:
            self._retries = self._retries.after_answer()
            if self._healths == self._all_healthy:
                return
        self._healths = healths_after(self._healths, index, outcome, self._now())

    def _record_late(self, index: int, method: str, given_seconds: float) -> None:
        """Hold a call that ran out against its replica; with too little time for that, ask the replica."""
        if had_time(given_seconds, self._usual_seconds, self._open()[index].times(method).patience_seconds):
            self._record(index, Outcome.LATE)
        elif not self._closed and not self._healths[index].ejected:
            self._ask(index)

    # -- hedging -------------------------------------------------------------------------------------------------------

    async def _race(self, index: int, method: str, request: bytes, deadline: float, budget_seconds: float) -> bytes:
        """Ask one replica, and a second one as well when the first has not answered after its 95th percentile."""
        started = self._now()
        if started >= deadline:
            raise DeadlineExceeded("upstream", budget_seconds)
        self._hedges = self._hedges.after_call()
        times = self._open()[index].times(method)
        race = Race(index, method, request, deadline, budget_seconds)
        patience = times.patience_seconds
        if patience is not None and started + 2 * patience < deadline:
            # Nearly always cancelled. A wait with a time-out costs several times as much.
            race.timer = asyncio.get_running_loop().call_later(patience, self._hedge, race, patience)
        try:
            answer = await self._exchange(index, method, request, deadline - started, budget_seconds, race=race)
        except asyncio.CancelledError:
            if race.answer is None or _is_cancelled():
                raise
            self._record(index, Outcome.OVERTAKEN)
            answer = race.answer
        except _NotTaken:
            if not race.is_hedged:
                raise
            return await self._rest_on_hedge(race)
        finally:
            outcome = race.end()
            if outcome is not None:
                self._hedging.on_hedge(outcome)
        # Of a call that was overtaken this is less than it would have taken, and more than the percentile: enough.
        times.add(self._now() - started)
        return answer

    async def _rest_on_hedge(self, race: Race) -> bytes:
        try:
            return await race.rest_on_hedge()
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise _closed() from None  # closing cancelled the hedge, and nobody its caller

    def _hedge(self, race: Race, waited: float) -> None:
        """Send the call to a second replica, if one is well and likely to answer in time, and the budget allows it."""
        index = choose_hedge(self._healths, self._in_flight, race.index)
        if index is None or self._closed or self.in_flight >= self._hedging.most_calls:
            return
        replica = self._open()[index]
        remaining = race.deadline - self._now()
        patience = replica.times(race.method).patience_seconds
        if patience is None or patience > remaining or not replica.is_connected:
            return
        if not self._hedges.allows(urgent=race.is_refused):
            # Whoever still waits when as much time again is over needs one most.
            race.is_refused = True
            race.timer = asyncio.get_running_loop().call_later(waited, self._hedge, race, 2 * waited)
            return
        self._hedges = self._hedges.after_hedge()
        hedge = asyncio.ensure_future(self._exchange(index, race.method, race.request, remaining, race.budget_seconds))
        self._hedge_tasks.add(hedge)
        hedge.add_done_callback(self._hedge_tasks.discard)
        race.start_hedge(hedge)

    # -- probing -------------------------------------------------------------------------------------------------------

    def _start_due_probes(self) -> None:
        """Ask ejected replicas beside the traffic: a caller's own call is not the one to find out."""
        for index, health in enumerate(self._healths):
            if health.ejected_until is not None and index not in self._probes and health.probe_due(self._now()):
                self._probes[index] = asyncio.create_task(self._probe_ejected(index))

    async def _probe_ejected(self, index: int) -> None:
        try:
            ready = await self._says_ready(self._open()[index], PROBE_SECONDS, without_a_question=True)
            self._healths[index] = health_after_probe(self._healths[index], ready, self._now())
        finally:
            del self._probes[index]

    def _ask(self, index: int) -> "asyncio.Task[bool]":
        """Ask a replica whether it serves; one question is under way at a time, for all calls."""
        asking = self._questions.get(index)
        if asking is None:
            asking = self._questions[index] = asyncio.create_task(self._hear_from(index))
        return asking

    async def _hear_from(self, index: int) -> bool:
        """Return whether a replica that gets calls says that it serves; one that does not is late once more."""
        try:
            is_serving = await self._says_ready(self._open()[index], PROBE_SECONDS, without_a_question=True)
        finally:
            del self._questions[index]
        if is_serving:
            self._healths[index] = health_after_probe(self._healths[index], ready=True, now=self._now())
        else:
            self._record(index, Outcome.LATE)
        return is_serving

    async def _says_ready(self, replica: Replica, timeout_seconds: float, *, without_a_question: bool = False) -> bool:
        """Whether a replica says that it serves; ``without_a_question`` is what holds of a server that has none."""
        try:
            return await self._probe_once(replica, timeout_seconds)
        except asyncio.CancelledError:
            # gRPC says so too when the channel is closed under a probe that nobody cancelled.
            if self._closed and not _is_cancelled():
                return False
            raise
        except grpc.aio.AioRpcError as error:
            # Such a server lives, and whether it serves is for a call to find out; else it would stay out for ever.
            if without_a_question and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return True
        except (grpc.aio.UsageError, BackendUnavailable, TimeoutError, ValueError):
            pass
        replica.look_again()
        return False

    async def _probe_once(self, replica: Replica, timeout_seconds: float, *, wait_for_ready: bool = True) -> bool:
        if not replica.is_open:
            async with asyncio.timeout(timeout_seconds):
                await replica.open()
        call = replica.method(self._probe.method)
        answer = await call(
            self._probe.request, timeout=timeout_seconds, metadata=self._metadata, wait_for_ready=wait_for_ready
        )
        return self._probe.says_ready(answer)

    # -- examining -----------------------------------------------------------------------------------------------------

    async def _examine(self, replica: Replica, endpoint: str, timeout_seconds: float) -> ServerSeen:
        first = await self._timed(replica, endpoint, timeout_seconds)
        return first if first.problem else await self._timed(replica, endpoint, timeout_seconds)

    async def _timed(self, replica: Replica, endpoint: str, timeout_seconds: float) -> ServerSeen:
        began = self._now()
        problem = await self._why_not_ready(replica, timeout_seconds)
        return ServerSeen(endpoint, self._now() - began, problem)

    async def _why_not_ready(self, replica: Replica, timeout_seconds: float) -> str:
        """Return why a replica does not serve the version; empty when it says that it does."""
        try:
            is_ready = await self._probe_once(replica, timeout_seconds)
        except BackendUnavailable as problem:
            return problem.detail
        except TimeoutError:
            return f"its name was not resolved within {timeout_seconds:g} s"
        except ValueError:
            return "its answer cannot be read"
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"the question ended with {error.code().name}: {_said(error)}"
            return await self._why_silent(replica, timeout_seconds)
        return "" if is_ready else "it says that it does not serve the version"

    async def _why_silent(self, replica: Replica, timeout_seconds: float) -> str:
        if replica.is_connected:
            return f"it took the connection and did not answer within {timeout_seconds:g} s"
        said = ""
        try:
            # Without waiting for a connection: then gRPC tells why there is none, if it knows.
            await self._probe_once(replica, PROBE_SECONDS, wait_for_ready=False)
        except grpc.aio.AioRpcError as error:
            said = error.details() or ""
        except (BackendUnavailable, TimeoutError, ValueError):
            pass
        refused = "nothing listens there" if "connection refused" in said.lower() else ""
        return _why_no_handshake(said) or refused or f"no connection to it within {timeout_seconds:g} s"


def _closed() -> BackendUnavailable:
    return BackendUnavailable("the connections to the model version are closed")


def _unavailable(not_taken: _NotTaken) -> BackendUnavailable:
    why = f"; {not_taken.why}" if not_taken.why else ""
    problem = BackendUnavailable(f"no model server of the version takes the call ({not_taken.code.name}{why})")
    problem.said = not_taken.said
    return problem


def _translated(error: grpc.aio.AioRpcError, outcome: Outcome, budget_seconds: float) -> Exception:
    if outcome is Outcome.LATE:
        return DeadlineExceeded("upstream", budget_seconds)
    if outcome.is_failure:
        return _NotTaken(outcome, error.code(), _why_no_handshake(error.details() or ""), _said(error))
    problem = BadAnswer(f"the model server refused the call with {error.code().name}")
    problem.said = _said(error)
    return problem


def _said(error: grpc.aio.AioRpcError) -> str:
    words = " ".join((error.details() or "").split())
    return "".join(letter for letter in words if letter.isprintable())[:MAX_DETAIL_CHARACTERS]


def _why_no_handshake(details: str) -> str:
    """Return what to look at when TLS failed; gRPC's own words stay out, they may quote the server."""
    said = details.lower()
    if "hostname verification" in said or "peer name" in said:
        return "its certificate is for another host name"
    if "certificate_verify_failed" in said or "certificate verify failed" in said:
        return "its certificate is not of an authority that we trust: see backend.tls"
    if "wrong_version_number" in said or "handshake failed" in said:
        return "it did not speak TLS as backend.tls asks"
    return ""


async def _answer_told(step: Span, call: "grpc.aio.UnaryUnaryCall[bytes, bytes]") -> bytes:
    """Return the answer, and tell its step how the call ended; one that is broken off has not failed."""
    code = grpc.StatusCode.CANCELLED
    try:
        answer = await call
        code = grpc.StatusCode.OK
    except grpc.aio.AioRpcError as error:
        code = error.code()
        step.fail(code.name)
        raise
    finally:
        step.tell({"rpc.grpc.status_code": code.value[0]})
        step.end()
    return answer


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _look_at_result(task: "asyncio.Task[bytes] | asyncio.Task[None]") -> None:
    """Keep asyncio from reporting the failure of a call whose caller has gone."""
    if not task.cancelled():
        task.exception()
