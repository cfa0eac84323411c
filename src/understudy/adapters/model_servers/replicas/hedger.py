"""Hedged requests: a call that is late at one replica also goes to another (ADR 20)."""

import asyncio
from collections.abc import Callable

from understudy.adapters.model_servers.replicas.attempts import Attempts
from understudy.adapters.model_servers.replicas.call_tasks import is_cancelled
from understudy.adapters.model_servers.replicas.hedged_call import HedgedCall, Hedging
from understudy.adapters.model_servers.replicas.replica import Replica, Rpc
from understudy.adapters.model_servers.replicas.upstream_health import UpstreamHealth
from understudy.adapters.model_servers.status import NotTaken
from understudy.core.upstream.hedging import HedgeBudget
from understudy.core.upstream.replicas import CallResult, choose_hedge
from understudy.errors import DeadlineExceeded


class Hedger:
    """Sends calls of one version, and hedges for those that are late, within a budget."""

    def __init__(self, hedging: Hedging, attempts: Attempts, health: UpstreamHealth, now: Callable[[], float]) -> None:
        self._hedging = hedging
        self._attempts = attempts
        self._health = health
        self._now = now
        self.budget = HedgeBudget(hedging.ratio)
        self.tasks: set[asyncio.Task[bytes]] = set()
        """The hedges in flight."""

    async def send(self, replica: Replica, rpc: Rpc) -> bytes:
        """Call one replica, and a second one as well when the first has not answered after its 95th percentile.

        Raises:
            NotTaken, DeadlineExceeded, BadAnswer, BackendUnavailable: As ``Attempts.exchange``.
        """
        started = self._now()
        if started >= rpc.deadline:
            raise DeadlineExceeded("upstream", rpc.budget_seconds)
        self.budget = self.budget.after_call()
        times = replica.times(rpc.method)
        hedged = HedgedCall(replica, rpc)
        p95 = times.p95_seconds
        if p95 is not None and started + 2 * p95 < rpc.deadline:
            # Nearly always cancelled. A wait with a time-out costs several times as much.
            hedged.timer = asyncio.get_running_loop().call_later(p95, self._hedge, hedged, p95)
        try:
            answer = await self._attempts.exchange(replica, rpc, rpc.deadline - started, hedged)
        except asyncio.CancelledError:
            if hedged.answer is None or is_cancelled():
                raise
            self._health.record(replica, CallResult.OVERTAKEN)
            answer = hedged.answer
        except NotTaken:
            if not hedged.is_hedged:
                raise
            return await hedged.rest_on_hedge()
        finally:
            outcome = hedged.end()
            if outcome is not None:
                self._hedging.on_hedge(outcome)
        # Of a call that was overtaken this is less than it would have taken, and more than the percentile: enough.
        times.add(self._now() - started)
        return answer

    def _hedge(self, hedged: HedgedCall, waited: float) -> None:
        """Send the call to a second replica, if one is well and likely to answer in time, and the budget allows it."""
        replica = choose_hedge(self._health.replicas, hedged.replica)
        if replica is None or replica.is_closed or self._health.in_flight >= self._hedging.max_calls:
            return
        rpc = hedged.rpc
        remaining = rpc.deadline - self._now()
        p95 = replica.times(rpc.method).p95_seconds
        if p95 is None or p95 > remaining or not replica.is_connected:
            return
        if not self.budget.allows(urgent=hedged.is_refused):
            # A call that still waits when as much time again is over needs a hedge most.
            hedged.is_refused = True
            hedged.timer = asyncio.get_running_loop().call_later(waited, self._hedge, hedged, 2 * waited)
            return
        self.budget = self.budget.after_hedge()
        hedge = asyncio.ensure_future(self._attempts.exchange(replica, rpc, remaining))
        self.tasks.add(hedge)
        hedge.add_done_callback(self.tasks.discard)
        hedged.start_hedge(hedge)
