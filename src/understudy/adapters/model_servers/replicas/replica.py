"""One replica of a version: its endpoint, the channel to it, and what is known about it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import structlog

from understudy.adapters.model_servers.addresses import Wire, find_addresses
from understudy.adapters.model_servers.channels import Channel, OpenChannel, Send
from understudy.adapters.model_servers.grpc_channels import open_grpc
from understudy.adapters.model_servers.replicas.call_tasks import retrieve_exception
from understudy.adapters.model_servers.status import closed
from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.core.upstream.hedging import RecentTimes
from understudy.core.upstream.replicas import ReplicaState
from understudy.errors import BackendUnavailable

_log = structlog.get_logger(__name__)

RESOLVE_AGAIN_SECONDS = 1.0
"""Least time between two name resolutions of an endpoint that could not be reached."""
MAX_BREAK_CHECKS = 10
"""Checks, a millisecond apart, of a connection under which a call broke. gRPC tells the call before it has closed the
connection, and a call that follows at once would be lost with it."""
DRAIN_SECONDS = 5.0
"""How long calls may run on at the address that an endpoint had before."""


Find: TypeAlias = Callable[[], Awaitable[tuple[Target, Sequence[Address]]]]
"""Returns where a replica is, judged; raises ``BackendUnavailable``."""


class Rpc(NamedTuple):
    """A call to a version's model servers; it has an attempt, perhaps a retry, perhaps a hedge."""

    method: str
    request: bytes
    deadline: float
    """In seconds of the monotonic clock."""
    budget_seconds: float
    """What the caller gave it; for messages."""


class Replica(ReplicaState):
    """One endpoint's channel, its state for load balancing, and by method its callables and recent latencies."""

    __slots__ = (
        "_addresses",
        "_calls",
        "_draining",
        "_failure",
        "_find",
        "_now",
        "_open_channel",
        "_resolved_at",
        "_resolving",
        "_times",
        "_wire",
        "address",
        "channel",
        "endpoint",
        "is_closed",
        "is_open",
        "metadata",
    )

    def __init__(
        self,
        endpoint: str,
        wire: Wire,
        now: Callable[[], float],
        open_channel: OpenChannel = open_grpc,
        find: Find | None = None,
    ) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.address: Address | None = None
        """Which of its name's addresses it is, where each of them is a replica."""
        self._find: Find = find or partial(find_addresses, endpoint, wire.rules)
        self.metadata = wire.metadata
        self._wire = wire
        self._open_channel = open_channel
        self._now = now
        self._addresses: frozenset[Address] = frozenset()
        self._resolved_at = 0.0
        self._resolving: asyncio.Task[None] | None = None
        self._draining: dict[Channel, asyncio.Task[None]] = {}
        """Channels to addresses that the endpoint had before, and what closes them."""
        self._failure: BackendUnavailable | None = None
        """Why the last name resolution failed."""
        self.channel: Channel | None = None
        self.is_open = False
        """Whether there is a channel to the addresses of the last name resolution."""
        self.is_closed = False
        """Whether the version's connections are being closed, or are."""
        self._calls: dict[str, Send] = {}
        self._times: dict[str, RecentTimes] = {}

    @property
    def is_connected(self) -> bool:
        """Whether a call would leave at once."""
        return self.channel is not None and self.channel.is_connected

    async def open(self) -> None:
        """Find the endpoint's addresses, judge them, and open a channel to them.

        There is one name resolution at a time. One that failed holds for a second: otherwise each call would resolve
        anew, and log it.

        Raises:
            BackendUnavailable: It cannot be resolved, may not be connected to, or is closed.
        """
        if self.is_closed:
            raise closed()
        if self._failure is not None and not self._may_resolve_again():
            raise self._failure
        if self._resolving is None:
            self._resolving = asyncio.ensure_future(self._resolve())
            self._resolving.add_done_callback(retrieve_exception)
        # Shielded: a caller that goes away must not end the name resolution for the others.
        await asyncio.shield(self._resolving)

    async def let_break(self) -> None:
        """Return once the connection is down, or, when only a call was broken, a moment later."""
        # Waiting for the change itself would leave gRPC a watcher for each call, until the connection does break.
        for _ in range(MAX_BREAK_CHECKS):
            if not self.is_connected:
                return
            await asyncio.sleep(0.001)

    def resolve_again(self) -> None:
        """Resolve the endpoint anew before the next call, because it may have moved; at most once a second."""
        if self._may_resolve_again():
            self.is_open = False

    def method(self, method: str) -> Send:
        """Return what sends calls of a method; bytes go in and out as they are. The replica is open."""
        if method not in self._calls:
            assert self.channel is not None
            self._calls[method] = self.channel.method(method)
        return self._calls[method]

    def times(self, method: str) -> RecentTimes:
        """Return how long the calls of a method took."""
        if method not in self._times:
            self._times[method] = RecentTimes()
        return self._times[method]

    async def close(self) -> None:
        """End the name resolution and the channel."""
        if self._resolving is not None:
            self._resolving.cancel()
        for task in self._draining.values():
            task.cancel()
        for before in tuple(self._draining):  # one that was cancelled before its first step has not closed anything
            await before.close()
        if self.channel is not None:
            await self.channel.close()

    def _may_resolve_again(self) -> bool:
        return self._now() - self._resolved_at >= RESOLVE_AGAIN_SECONDS

    async def _resolve(self) -> None:
        try:
            target, addresses = await self._find()
            self._connect(target, addresses)
        except BackendUnavailable as problem:
            self._failure = problem
            _log.warning("endpoint.not_found", endpoint=self.endpoint, why=problem.detail)
            raise
        else:
            self._failure = None
        finally:
            self._resolved_at = self._now()
            self._resolving = None

    def _connect(self, target: Target, addresses: Sequence[Address]) -> None:
        # As a set: name servers rotate the order with every answer.
        if self._addresses == frozenset(addresses):
            self.is_open = True
            return
        before, self.channel = self.channel, self._open_channel(self.endpoint, target, addresses, self._wire)
        self.is_open = True
        self._addresses = frozenset(addresses)
        self._calls.clear()
        if before is not None:
            draining = self._draining[before] = asyncio.ensure_future(before.close(DRAIN_SECONDS))
            draining.add_done_callback(lambda _: self._draining.pop(before, None))
