"""Whether champions' model servers say that they are ready: any one for `/readyz`, each one for dashboards."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import NamedTuple

from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.errors import BackendUnavailable
from understudy.ports.telemetry import Telemetry
from understudy.serving.backend_pool import Callers
from understudy.serving.batching import BatchingCaller

MEMORY_SECONDS = 2.0
"""For which it is remembered that a champion answered."""
MISSING_SECONDS = 0.5
"""For which it is remembered that none did: whoever waits for the first one waits as much longer than it takes."""
PROBE_SECONDS = 0.5
PROBES_AT_ONCE = 8
SEARCH_SECONDS = 0.8
"""Longest search for a champion that answers. Balancers wait a second by default; thousands of silent model servers
would take minutes."""
SEARCHED_AT_ONCE = 32
HEAD_START_SECONDS = 0.1
"""How long the champion that answered last is asked alone: each other one that is asked costs a connection."""
LOOK_SECONDS = 5.0
"""Pause between two looks at all champions."""


class Reachability(NamedTuple):
    """Whether a champion answers, and how many were asked before that was said."""

    is_reachable: bool
    asked: int
    """Champions that did not answer, of those that were asked since one did; all of them once each had its turn."""


NOBODY = Reachability(is_reachable=False, asked=0)


class ChampionWatch:
    """Asks champions for a sign of life, and remembers what came of it however often it is asked itself.

    A champion whose model server answered a call of late is not asked. A search ends after :data:`SEARCH_SECONDS`, and
    the next one goes on where it ended: of thousands of champions each has its turn.
    """

    def __init__(self, callers: Callers, now: Callable[[], float]) -> None:
        self._callers = callers
        self._now = now
        self._known_until = 0.0
        self._found = NOBODY
        self._answered_last: str | None = None
        self._to_ask: deque[str] = deque()
        """Whose turn it still is."""
        self._asked = 0
        """How many have had their turn since :attr:`_to_ask` was filled."""
        self._all_asked = False
        """Whether all had it, and none has answered since."""
        self._asking = asyncio.Lock()

    async def look(self, snapshot: PolicySnapshot) -> Reachability:
        """Return whether a champion answers, within about a second; without any model there is nothing to miss."""
        if not snapshot.policies:
            return Reachability(is_reachable=True, asked=0)
        async with self._asking:
            if self._now() >= self._known_until:
                await self._look_anew(snapshot)
        return self._found

    async def _look_anew(self, snapshot: PolicySnapshot) -> None:
        now = self._now()
        answered_at = max((caller.answered_at for caller in self._opened_champions(snapshot)), default=-inf)
        if answered_at + MEMORY_SECONDS <= now and await self._search(snapshot):
            answered_at = now = self._now()
        if answered_at + MEMORY_SECONDS > now:
            self._known_until = answered_at + MEMORY_SECONDS
            self._found = Reachability(is_reachable=True, asked=0)
            self._all_asked = False
            self._to_ask.clear()  # who was not asked now is asked with all others when nobody answers
        else:
            asked = len(snapshot.policies) if self._all_asked else min(self._asked, len(snapshot.policies))
            self._known_until = self._now() + MISSING_SECONDS
            self._found = Reachability(is_reachable=False, asked=asked)

    def _opened_champions(self, snapshot: PolicySnapshot) -> list[BatchingCaller]:
        policies = snapshot.policies
        return [
            caller
            for caller in self._callers.opened()
            if (policy := policies.get(caller.version.model_name)) is not None and policy.champion is caller.version
        ]

    async def _search(self, snapshot: PolicySnapshot) -> bool:
        """Ask champions, so many at once, until one answers or time is over; whoever answered last comes first."""
        asking: dict[asyncio.Task[bool], str] = {}
        self._begin(snapshot)
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                at_once, patience_seconds = (1, HEAD_START_SECONDS) if self._answered_last else (SEARCHED_AT_ONCE, None)
                while self._ask(asking, at_once, snapshot):
                    ended, _ = await asyncio.wait(asking, timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED)
                    if self._has_answered(asking, ended):
                        return True
                    at_once, patience_seconds = SEARCHED_AT_ONCE, None
            self._all_asked = True
        except TimeoutError:
            pass
        finally:
            self._to_ask.extendleft(reversed(asking.values()))  # their turn was cut short
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return False

    def _begin(self, snapshot: PolicySnapshot) -> None:
        """Give everybody a turn again once all had theirs, and whoever answered last one before all others."""
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
        """Ask those whose turn it is, as long as not too many are being asked; return whether anybody is."""
        while self._to_ask and len(asking) < at_once:
            name = self._to_ask.popleft()
            if name in snapshot.policies:
                asking[asyncio.create_task(self._is_ready(snapshot.policies[name].champion))] = name
        return bool(asking)

    def _has_answered(self, asking: dict[asyncio.Task[bool], str], ended: set[asyncio.Task[bool]]) -> bool:
        """Take note of who was asked and what came of it; return whether one of them serves."""
        for task in ended:
            name = asking.pop(task)
            if task.result():
                self._answered_last = name
                return True
            self._asked += 1
        return False

    async def _is_ready(self, version: ModelVersion) -> bool:
        try:
            return await self._callers.of(version).ready(PROBE_SECONDS)
        except BackendUnavailable:  # it cannot even be connected: a token that is not set, say
            return False


class ChampionGauges:
    """Asks each champion for a sign of life every few seconds, so that whoever is on call hears of a dead one.

    What calls come to is no substitute: a proxy that reaches no champion is not ready, and then gets no calls.

    Args:
        callers: Only champions that were asked something before are asked here, by a predict call or by
            :class:`ChampionWatch`: a connection to each of a thousand models that nobody calls would cost more.
        snapshot: The policies of this moment.
        telemetry: Gets ``champion_unreachable``: 0 is well, as a gauge is that several workers have forgotten.
    """

    def __init__(self, callers: Callers, snapshot: Callable[[], PolicySnapshot | None], telemetry: Telemetry) -> None:
        self._callers = callers
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._shown: set[str] = set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Ask all open champions once, a few at a time."""
        champions = self._champions()
        for name in self._shown - champions.keys():
            self._shown.remove(name)
            self._telemetry.forget("champion_unreachable", name)
        names = sorted(champions)
        for start in range(0, len(names), PROBES_AT_ONCE):
            group = names[start : start + PROBES_AT_ONCE]
            answers = await asyncio.gather(*(champions[name].ready(PROBE_SECONDS) for name in group))
            for name, is_ready in zip(group, answers, strict=True):
                self._telemetry.set("champion_unreachable", float(not is_ready), name)
                self._shown.add(name)

    def _champions(self) -> dict[str, BatchingCaller]:
        snapshot = self._snapshot()
        if snapshot is None:
            return {}
        opened = {caller.version: caller for caller in self._callers.opened()}
        policies = snapshot.policies.items()
        return {name: opened[policy.champion] for name, policy in policies if policy.champion in opened}
