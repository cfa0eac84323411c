"""Load balancing and retries over the model servers of one version.

gRPC's own ``round_robin``, keepalive and retry policy do nothing for a stopped peer, so the choice is ours
(``core.upstream``).
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from understudy.adapters.model_servers.addresses import PLAIN_WIRE, Wire
from understudy.adapters.model_servers.channels import OpenChannel
from understudy.adapters.model_servers.grpc_channels import open_grpc
from understudy.adapters.model_servers.replicas.attempts import USUAL_TRAITS, Attempts, ServerTraits
from understudy.adapters.model_servers.replicas.discovery import EndpointDiscovery
from understudy.adapters.model_servers.replicas.draining_replicas import DrainingReplicas
from understudy.adapters.model_servers.replicas.examination import examine_replicas
from understudy.adapters.model_servers.replicas.hedged_call import NO_HEDGING, Hedging
from understudy.adapters.model_servers.replicas.hedger import Hedger
from understudy.adapters.model_servers.replicas.probes import Probe, Prober
from understudy.adapters.model_servers.replicas.replica import Find, Replica, Rpc
from understudy.adapters.model_servers.replicas.upstream_health import UpstreamHealth
from understudy.adapters.model_servers.status import NotTaken, closed, unavailable
from understudy.background.tasks import end_tasks
from understudy.core.upstream.replicas import CallResult, choose_replica, choose_unsuspected
from understudy.errors import BackendUnavailable
from understudy.ports.upstream.model_backend import ServerSeen

MAX_ABANDONED_CALLS = 64
"""Calls of one version that may run on after their callers have gone."""


class ReplicaSet:
    """The replicas of one version. Channels open at the first call, in the loop that runs then (so after any fork).

    ``usual_seconds`` is the version's own time limit: calls that get much less say little about a replica. With
    ``discovery`` on its wire, replicas come and go as the addresses of its endpoints' names do.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        probe: Probe,
        *,
        traits: ServerTraits = USUAL_TRAITS,
        usual_seconds: float = 0.0,
        hedging: Hedging = NO_HEDGING,
        wire: Wire = PLAIN_WIRE,
        open_channel: OpenChannel = open_grpc,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:

        def make(endpoint: str, find: Find | None = None) -> Replica:
            return Replica(endpoint, wire, now, open_channel, find)

        self._discovery: EndpointDiscovery | None = None
        if wire.discovery is not None:
            self._discovery = EndpointDiscovery(
                endpoints, wire.discovery, wire.rules, make, self._change_replicas, now=now, draw=draw
            )
        self._replicas = tuple(map(make, endpoints)) if self._discovery is None else self._discovery.replicas
        self._draining = DrainingReplicas()
        self._now = now
        self._draw = draw
        self._is_closed = False
        self._health = UpstreamHealth(self._replicas, now)
        self._prober = Prober(probe, self._health, now)
        self._attempts = Attempts(self._health, self._prober, traits, usual_seconds, now)
        # The call that loses must be cancelled: where that cannot be done it would hold a worker for nothing.
        has_others = len(self._replicas) > 1 or self._discovery is not None
        can_hedge = hedging.ratio > 0 and traits.cancels_cleanly and has_others
        self._hedger = Hedger(hedging, self._attempts, self._health, now) if can_hedge else None
        self._first_send = self._hedger.send if self._hedger is not None else self._attempts.send

    @property
    def in_flight(self) -> int:
        """Calls that have not ended, those that run on without a caller included."""
        return self._health.in_flight + self._draining.in_flight

    @property
    def known(self) -> int:
        """Replicas that there are: endpoints, and addresses of those that are discovered."""
        return len(self._replicas)

    @property
    def ejected(self) -> int:
        """Replicas that get no calls now."""
        return self._health.ejected

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to one of the replicas now."""
        return any(replica.is_connected for replica in self._replicas)

    async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """Return the answer of one replica; one that is down or cannot serve the version is replaced by another once.

        With ``hedging``, a call that its replica has not answered after its own 95th percentile also goes to another
        replica: the first of both answers is returned.

        Raises:
            BackendUnavailable: No replica took the call; the message says how the last one's call ended.
            DeadlineExceeded: ``timeout_seconds`` passed.
            BadAnswer: A replica refused the call; the message carries its status, not the server's text.
        """
        rpc = Rpc(method, request, self._now() + timeout_seconds, timeout_seconds)
        replica = self._choose()
        if replica.health.is_suspect:
            replica = await self._in_place_of(replica, rpc.deadline)
        try:
            return await self._first_send(replica, rpc)
        except NotTaken as not_taken:
            replica = await self._choose_again(replica, not_taken, rpc.deadline)
        try:
            return await self._attempts.send(replica, rpc)
        except NotTaken as not_taken:
            raise unavailable(not_taken) from not_taken.__cause__

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether a replica says that it serves the version; a connection that is being made is waited for."""
        if self._is_closed:
            return False
        await self._discover(timeout_seconds)
        probes = (self._prober.says_ready(replica, timeout_seconds) for replica in self._replicas)
        return any(await asyncio.gather(*probes))

    async def examine(self, timeout_seconds: float) -> tuple[ServerSeen, ...]:
        """Probe each replica by itself, all at once, in the order of the endpoints: ``examine_replicas``.

        Not for a set that is closed meanwhile.
        """
        await self._discover(timeout_seconds)
        return await examine_replicas(self._replicas, self._prober, timeout_seconds)

    async def close(self) -> None:
        """Close every channel; calls in flight fail, calls to come are refused."""
        self._is_closed = True
        for replica in self._replicas:
            replica.is_closed = True
        hedges = self._hedger.tasks if self._hedger is not None else ()
        if self._discovery is not None:
            await self._discovery.close()
        await end_tasks([*self._prober.tasks, *self._attempts.abandoned, *hedges])
        await self._draining.close()
        for replica in self._replicas:
            await replica.close()

    async def _discover(self, timeout_seconds: float) -> None:
        """Wait for the first answer for each name, so that all its addresses are probed and not its first one alone."""
        if self._discovery is None or self._discovery.is_known:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._discovery.look()

    def _change_replicas(self) -> None:
        """Go on with the replicas that the names have now; those that stay keep their connections, calls and record."""
        if self._is_closed or self._discovery is None:
            return
        before, self._replicas = self._replicas, self._discovery.replicas
        self._health.change_replicas(self._replicas)
        for replica in set(before).difference(self._replicas):
            self._draining.add(replica)
        self._prober.start_due()

    def _choose(self) -> Replica:
        if self._is_closed:
            raise closed()
        if len(self._attempts.abandoned) >= MAX_ABANDONED_CALLS:
            raise BackendUnavailable("too many calls still run at the model server after their deadlines")
        self._prober.start_due()
        replica = choose_replica(self._replicas, self._draw())
        if replica is None:
            raise BackendUnavailable("no model server is registered for the model version")
        return replica

    async def _choose_again(self, failed: Replica, not_taken: NotTaken, deadline: float) -> Replica:
        """Return where a call is retried that a replica did not take.

        Without another replica that gets calls, an ejected one gets this one if it says that it serves. Without that,
        too, a replica that is down is called once more: the connection may have broken under the call (as it does when
        a load balancer between us restarts), and if not that is known in the same millisecond. A replica that said
        itself that it cannot take the call would say it again.
        """
        other = choose_replica(self._replicas, self._draw(), avoid=failed)
        is_unable = not_taken.result is CallResult.UNABLE
        is_hopeless = other is None and not self.ejected and is_unable
        if is_hopeless or not self._health.retries.allows:
            raise unavailable(not_taken) from not_taken.__cause__
        self._health.retries = self._health.retries.after_retry()
        if other is None or other.health.is_suspect:
            other = await self._one_that_serves(deadline, avoid=failed)
        if other is None and is_unable:
            raise unavailable(not_taken) from not_taken.__cause__
        if other is None:
            await failed.let_break()
        return failed if other is None else other

    async def _in_place_of(self, suspect: Replica, deadline: float) -> Replica:
        """Return where a call goes whose choice is suspect; that one is probed, beside the traffic if others serve.

        Raises:
            BackendUnavailable: All replicas are suspect or ejected, and none says in time that it serves.
        """
        self._prober.probe(suspect)
        replica = await self._one_that_serves(deadline)
        if replica is None:
            raise BackendUnavailable("no model server of the version says that it serves")
        return replica

    async def _one_that_serves(self, deadline: float, avoid: Replica | None = None) -> Replica | None:
        """Return a replica that is not suspect, or without one the first of all whose probe is good.

        The ejected ones are probed, too: in a rolling restart the first replica may be back, and not probed yet, when
        the second one goes.
        """
        sure = choose_unsuspected(self._replicas, avoid)
        if sure is not None:
            return sure
        others = [replica for replica in self._replicas if replica is not avoid]
        return await self._prober.first_ready(others, deadline)
