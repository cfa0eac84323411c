"""Health checks of champions: whether any one is ready, for `/readyz`, and whether each one is, for dashboards."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import NamedTuple

from understudy.background.tasks import end_tasks
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.errors import BackendUnavailable
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller

MEMORY_SECONDS = 2.0
"""How long a champion's answer counts."""
MISSING_SECONDS = 0.5
"""How long it counts that no champion answered; a balancer learns that much later of the first one that does."""
PROBE_SECONDS = 0.5
PROBE_CONCURRENCY = 8
SEARCH_SECONDS = 0.8
"""Longest search for a champion that answers. Balancers wait a second by default; thousands of model servers that do
not answer would take minutes."""
SEARCH_CONCURRENCY = 32
HEAD_START_SECONDS = 0.1
"""How long the champion that answered last is probed alone: each further probe costs a connection."""
PROBE_INTERVAL_SECONDS = 5.0
"""Pause between two rounds of probes of all champions."""


class ChampionHealth(NamedTuple):
    """Whether a champion answers, and how many were probed without an answer."""

    is_reachable: bool
    asked: int
    """Champions that did not answer, of those probed since one last did; all of them once each was probed."""


NONE_ANSWERS = ChampionHealth(is_reachable=False, asked=0)


class ChampionWatch:
    """Probes champions, and keeps the result for a while however often the balancer asks.

    A champion whose model server answered a call of late is not probed. A search ends after :data:`SEARCH_SECONDS`, and
    the next one goes on where it ended: of thousands of champions each is probed in turn.
    """

    def __init__(self, backends: BackendPool, now: Callable[[], float]) -> None:
        self._backends = backends
        self._now = now
        self._known_until = 0.0
        self._found = NONE_ANSWERS
        self._answered_last: str | None = None
        self._to_ask: deque[str] = deque()
        """Models whose champions are still to be probed in this round."""
        self._asked = 0
        """How many were probed since :attr:`_to_ask` was filled."""
        self._all_asked = False
        """Whether all were probed, and none has answered since."""
        self._asking = asyncio.Lock()

    async def check(self, snapshot: PolicySnapshot) -> ChampionHealth:
        """Return whether a champion answers, within about a second; without any model it is healthy."""
        if not snapshot.policies:
            return ChampionHealth(is_reachable=True, asked=0)
        async with self._asking:
            if self._now() >= self._known_until:
                await self._check_anew(snapshot)
        return self._found

    async def _check_anew(self, snapshot: PolicySnapshot) -> None:
        now = self._now()
        champions = _opened_champions(self._backends, snapshot)
        answered_at = max((caller.answered_at for caller in champions.values()), default=-inf)
        if answered_at + MEMORY_SECONDS <= now and await self._search(snapshot):
            answered_at = now = self._now()
        if answered_at + MEMORY_SECONDS > now:
            self._known_until = answered_at + MEMORY_SECONDS
            self._found = ChampionHealth(is_reachable=True, asked=0)
            self._all_asked = False
            self._to_ask.clear()  # the next search begins with all of them
        else:
            asked = len(snapshot.policies) if self._all_asked else min(self._asked, len(snapshot.policies))
            self._known_until = self._now() + MISSING_SECONDS
            self._found = ChampionHealth(is_reachable=False, asked=asked)

    async def _search(self, snapshot: PolicySnapshot) -> bool:
        """Probe champions, so many at once, until one answers or time is over; the one that answered last is first."""
        asking: dict[asyncio.Task[bool], str] = {}
        self._begin(snapshot)
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                at_once, patience_seconds = (
                    (1, HEAD_START_SECONDS) if self._answered_last else (SEARCH_CONCURRENCY, None)
                )
                while self._ask(asking, at_once, snapshot):
                    ended, _ = await asyncio.wait(asking, timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED)
                    if self._has_answered(asking, ended):
                        return True
                    at_once, patience_seconds = SEARCH_CONCURRENCY, None
            self._all_asked = True
        except TimeoutError:
            pass
        finally:
            self._to_ask.extendleft(reversed(asking.values()))  # their probes were cut short
            await end_tasks(asking)
        return False

    def _begin(self, snapshot: PolicySnapshot) -> None:
        """Begin a new round once all were probed, and put the champion that answered last before all others."""
        left = [name for name in self._to_ask if name in snapshot.policies]
        self._to_ask.clear()
        self._to_ask.extend(left or snapshot.policies)
        if not left:
            self._asked = 0
        last = self._answered_last
        if last is not None:
            with suppress(ValueError):
                self._to_ask.remove(last)
            self._to_ask.appendleft(last)

    def _ask(self, asking: dict[asyncio.Task[bool], str], at_once: int, snapshot: PolicySnapshot) -> bool:
        """Begin probes of the next champions, up to ``at_once``; return whether any probe is under way."""
        while self._to_ask and len(asking) < at_once:
            name = self._to_ask.popleft()
            if name in snapshot.policies:
                asking[asyncio.create_task(self._is_ready(snapshot.policies[name].champion))] = name
        return bool(asking)

    def _has_answered(self, asking: dict[asyncio.Task[bool], str], ended: set[asyncio.Task[bool]]) -> bool:
        """Take the results of probes that ended; return whether one of the champions is ready."""
        for task in ended:
            name = asking.pop(task)
            if task.result():
                self._answered_last = name
                return True
            self._asked += 1
        return False

    async def _is_ready(self, version: ModelVersion) -> bool:
        try:
            return await self._backends.of(version).ready(PROBE_SECONDS)
        except BackendUnavailable:  # it cannot even be connected: a token that is not set, say
            return False


class ChampionGauges:
    """Probes each champion every few seconds, so that the operator on call hears of a dead one.

    Failing calls are no substitute: a proxy that reaches no champion is not ready, and then gets no calls.

    Args:
        backends: Only champions that a predict call or :class:`ChampionWatch` has asked are probed: connections to a
            thousand models that get no calls would cost more.
        snapshot: The current policies.
        telemetry: Gets ``champion_unreachable``: 0 means healthy, which is also what a gauge is
            that all workers have forgotten.
    """

    def __init__(
        self, backends: BackendPool, snapshot: Callable[[], PolicySnapshot | None], telemetry: Telemetry
    ) -> None:
        self._backends = backends
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._shown: set[str] = set()

    async def run(self) -> None:
        """Probe all champions again and again, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(PROBE_INTERVAL_SECONDS)

    async def refresh(self) -> None:
        """Probe all open champions once, a few at a time."""
        snapshot = self._snapshot()
        champions = {} if snapshot is None else _opened_champions(self._backends, snapshot)
        for name in self._shown - champions.keys():
            self._shown.remove(name)
            self._telemetry.forget("champion_unreachable", name)
        names = sorted(champions)
        for start in range(0, len(names), PROBE_CONCURRENCY):
            group = names[start : start + PROBE_CONCURRENCY]
            answers = await asyncio.gather(*(champions[name].ready(PROBE_SECONDS) for name in group))
            for name, is_ready in zip(group, answers, strict=True):
                self._telemetry.set("champion_unreachable", float(not is_ready), name)
                self._shown.add(name)


def _opened_champions(backends: BackendPool, snapshot: PolicySnapshot) -> dict[str, BatchingCaller]:
    """Return the callers of champions that are open, by model."""
    policies = snapshot.policies
    return {
        policy.model_name: caller
        for caller in backends.opened()
        if (policy := policies.get(caller.version.model_name)) is not None and policy.champion is caller.version
    }
