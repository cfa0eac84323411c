"""Endpoint discovery: a name is as many replicas as it has addresses, which are asked for again and again (ADR 187)."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import structlog

from understudy.adapters.model_servers.addresses import Discovery, require_permitted
from understudy.adapters.model_servers.replicas.replica import RESOLVE_AGAIN_SECONDS, Find, Replica
from understudy.background.outage_log import OutageLog
from understudy.background.tasks import end_tasks
from understudy.core.upstream.discovered import MAX_DISCOVERED, discovered
from understudy.core.upstream.endpoint_rules import Address, EndpointRules, Target, parse_target
from understudy.errors import BackendUnavailable
from understudy.ports.upstream.resolver import NameNotResolved

_log = structlog.get_logger(__name__)

JITTER_RATIO = 0.1
"""Part of the interval by which questions come earlier or later: processes that start together do not ask together."""


class MakeReplica(Protocol):
    """Makes the replica of an endpoint, which is where ``find`` says; without it where its own name leads."""

    def __call__(self, endpoint: str, find: Find | None = None) -> Replica:
        """Return the replica; its channel opens at its first call."""


class _Version(NamedTuple):
    """What the names of one version have in common."""

    discovery: Discovery
    rules: EndpointRules
    make: MakeReplica
    on_change: Callable[[], None]
    hurry: Callable[[], None]
    """Has all names asked for soon."""


class DiscoveredName:
    """One name, and the replicas that its addresses are.

    Before its first answer it is one replica, whose calls wait for that answer; then this replica is the first address.
    An answer that fails or is refused changes nothing: the last addresses stay (fail static).
    """

    def __init__(self, endpoint: str, target: Target, version: _Version) -> None:
        self._endpoint = endpoint
        self._target = target
        self._version = version
        self._outage = OutageLog("endpoint_discovery", f"changes of the addresses of {endpoint}")
        self._is_over_bound = False
        self._replicas: dict[Address, Replica] = {}
        self._first = version.make(endpoint, self._find_first)

    @property
    def is_known(self) -> bool:
        """Whether it has had an answer."""
        return bool(self._replicas)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The replicas, of which there is always one."""
        return tuple(self._replicas.values()) or (self._first,)

    async def look(self) -> None:
        """Ask for the name's addresses, and make them its replicas.

        Raises:
            BackendUnavailable: There is no answer, or it has an address that may not be connected to.
        """
        try:
            found = await self._permitted()
        except BackendUnavailable as problem:
            self._version.discovery.on_failure()
            known = len(self._replicas)
            goes_on = f"calls to its last {known} address{'es' * (known > 1)}" if known else "no call to it"
            self._outage.failed(problem, goes_on)
            raise
        self._outage.succeeded()
        self._tell_bound(len(found))
        addresses = discovered(self._replicas, found)
        if addresses == list(self._replicas):
            return
        before = len(self._replicas)
        self._replicas = {address: self._replica_at(address) for address in addresses}
        _log.info("endpoint_discovery.changed", endpoint=self._endpoint, before=before, addresses=len(addresses))
        self._version.on_change()

    async def _permitted(self) -> Sequence[Address]:
        try:
            found = await self._version.discovery.resolver.addresses(self._target)
        except NameNotResolved as problem:
            raise BackendUnavailable(
                f"the name of the endpoint {self._endpoint} cannot be resolved: {problem}"
            ) from None
        require_permitted(self._endpoint, self._target, found, self._version.rules)
        return found

    def _replica_at(self, address: Address) -> Replica:
        known = self._replicas.get(address)
        if known is not None:
            return known
        if self._first.address is None:
            replica = self._first
        else:
            replica = self._version.make(self._endpoint, partial(self._find_again, address))
        replica.address = address
        return replica

    async def _find_first(self) -> tuple[Target, Sequence[Address]]:
        """Return the address of the first replica, which waits for the name's first answer."""
        if self._first.address is None:
            await self.look()
        else:
            self._version.hurry()
        assert self._first.address is not None
        return self._target, [self._first.address]

    async def _find_again(self, address: Address) -> tuple[Target, Sequence[Address]]:
        """Return a replica's address, which stays its own; one that was lost may be gone, so the name is asked soon."""
        self._version.hurry()
        return self._target, [address]

    def _tell_bound(self, found: int) -> None:
        is_over = found > MAX_DISCOVERED
        if is_over and not self._is_over_bound:
            _log.warning("endpoint_discovery.bounded", endpoint=self._endpoint, addresses=found, used=MAX_DISCOVERED)
        self._is_over_bound = is_over


class EndpointDiscovery:
    """The replicas of one version whose endpoints' names are resolved in the background.

    Questions begin with the first call or probe, in the loop that runs then (so after any fork). An endpoint that is an
    address is one replica, as it is without discovery.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        discovery: Discovery,
        rules: EndpointRules,
        make: MakeReplica,
        on_change: Callable[[], None],
        *,
        now: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self._interval_seconds = discovery.interval_seconds
        self._now = now
        self._draw = draw
        self._on_change = on_change
        self._asked_at = 0.0
        self._is_hurried = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._names: list[DiscoveredName] = []
        self._parts: list[DiscoveredName | Replica] = []
        version = _Version(discovery, rules, make, self._changed, self._hurry)
        for endpoint in endpoints:
            target = _name_in(endpoint)
            if target is None:
                self._parts.append(make(endpoint))
            else:
                name = DiscoveredName(endpoint, target, version)
                self._names.append(name)
                self._parts.append(name)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All replicas, in the order of the endpoints."""
        return tuple(
            replica
            for part in self._parts
            for replica in (part.replicas if isinstance(part, DiscoveredName) else (part,))
        )

    @property
    def is_known(self) -> bool:
        """Whether each name has had an answer."""
        return all(name.is_known for name in self._names)

    async def look(self) -> None:
        """Ask for the addresses of all names at once; what cannot be resolved stays as it is."""
        self._asked_at = self._now()
        for problem in await asyncio.gather(*(name.look() for name in self._names), return_exceptions=True):
            if isinstance(problem, Exception) and not isinstance(problem, BackendUnavailable):
                _log.error("endpoint_discovery.failed", exc_info=problem)

    async def close(self) -> None:
        """Ask no more."""
        await end_tasks([] if self._loop is None else [self._loop])

    def _changed(self) -> None:
        self._asked_at = self._now()
        if self._loop is None:
            self._loop = asyncio.create_task(self._look_again())
        self._on_change()

    def _hurry(self) -> None:
        """Have the names asked for at once, because a replica was lost; at most once a second."""
        if self._now() - self._asked_at >= RESOLVE_AGAIN_SECONDS:
            self._is_hurried.set()

    async def _look_again(self) -> None:
        while True:
            seconds = self._interval_seconds * (1 + JITTER_RATIO * (2 * self._draw() - 1))
            try:
                async with asyncio.timeout(seconds):
                    await self._is_hurried.wait()
            except TimeoutError:
                pass
            self._is_hurried.clear()
            await self.look()


def _name_in(endpoint: str) -> Target | None:
    """Return what an endpoint names, if that is to be resolved; one that cannot be read fails at its calls."""
    try:
        target = parse_target(endpoint)
    except ValueError:
        return None
    return target if target.literal is None else None
