"""Propagation of a changed policy: which proxies act on it, and how many calls are in flight at what it took away."""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from understudy.core.routing.proxy_liveness import NONE_STALE, StaleProxies, is_confirmed_since
from understudy.ports.rollout.rollout_store import PolicyReach, Rollbacks

POLL_SECONDS = 0.1


class Propagation(NamedTuple):
    """How far a change has come."""

    proxies: int
    """Live ones: see ``core.routing.proxy_liveness``."""
    proxies_on_generation: int
    seconds: float | None
    """Until all that were live had confirmed it; ``None`` when some did not in time, or without a live proxy."""
    stale: StaleProxies = NONE_STALE
    """Those that had not confirmed it before they turned stale."""
    proxies_hidden: bool = False
    """Whether the reports of proxies could not be read: then it is unknown which proxies follow."""


class Drained(NamedTuple):
    """What became of calls that were under way at versions that get no more."""

    calls: int
    """The most that were seen under way."""
    left: int
    seconds: float | None
    """Until none was left; ``None`` when some were after all patience, or when reports could not be read any more."""


async def wait_for_drain(
    rollouts: Rollbacks, model_name: str, version_ids: Collection[int], patience_seconds: float
) -> Drained:
    """Wait until no call is under way at these versions, as the proxies report it.

    Raises:
        NotRegistered: The policy is gone.
    """
    clock = asyncio.get_running_loop().time
    began, most, left = clock(), 0, 0
    while True:
        reach = await rollouts.reach(model_name)
        if reach.proxies_hidden:
            return Drained(most, left, None)
        in_flight = reach.in_flight
        left = sum(in_flight.get(version_id, 0) for version_id in version_ids)
        most, elapsed = max(most, left), clock() - began
        if not left:
            return Drained(most, 0, elapsed)
        if elapsed >= patience_seconds:
            return Drained(most, left, None)
        await asyncio.sleep(POLL_SECONDS)


async def wait_for_propagation(
    rollouts: Rollbacks, model_name: str, generation: int, patience_seconds: float
) -> tuple[Propagation, PolicyReach]:
    """Wait until every live proxy acts on the generation or a later one, and return what was seen last.

    A proxy that turns stale meanwhile is waited for. Without any live proxy there is nothing to wait for,
    nor where their reports cannot be read.

    Raises:
        NotRegistered: The policy is gone.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    while True:
        reach = await rollouts.reach(model_name, generation)
        elapsed = clock() - began
        proxies, on_generation, stale = reach.proxies, reach.proxies_on_generation, reach.stale
        if is_confirmed_since(proxies, on_generation, stale, elapsed):
            return Propagation(proxies, on_generation, elapsed, stale), reach
        if not proxies or elapsed >= patience_seconds:
            return Propagation(proxies, on_generation, None, stale, reach.proxies_hidden), reach
        await asyncio.sleep(POLL_SECONDS)
