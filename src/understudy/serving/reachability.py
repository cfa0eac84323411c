"""Whether champions' model servers say that they are ready: any one for `/readyz`, each one for dashboards."""

import asyncio
from collections.abc import Callable
from itertools import chain, islice

from understudy.core.policy import ModelVersion, PolicySnapshot
from understudy.errors import BackendUnavailable
from understudy.ports.telemetry import Telemetry
from understudy.serving.batching import BatchingCaller
from understudy.serving.callers import Callers

MEMORY_SECONDS = 2.0
"""For which it is remembered that a champion answered."""
MISSING_SECONDS = 0.5
"""For which it is remembered that none did: whoever waits for the first one waits as much longer than it takes."""
PROBE_SECONDS = 0.5
PROBES_AT_ONCE = 8
LOOK_SECONDS = 5.0
"""Pause between two looks at all champions."""


class ChampionWatch:
    """Asks champions for a sign of life, and remembers what came of it however often it is asked itself."""

    def __init__(self, callers: Callers, now: Callable[[], float]) -> None:
        self._callers = callers
        self._now = now
        self._known_until = 0.0
        self._reachable = False
        self._answered_last: str | None = None
        self._asking = asyncio.Lock()

    async def any_reachable(self, snapshot: PolicySnapshot) -> bool:
        """Whether a champion answers; without any model there is nothing to miss."""
        if not snapshot.policies:
            return True
        async with self._asking:
            if self._now() >= self._known_until:
                self._reachable = await self._probe(snapshot)
                self._known_until = self._now() + (MEMORY_SECONDS if self._reachable else MISSING_SECONDS)
        return self._reachable

    async def _probe(self, snapshot: PolicySnapshot) -> bool:
        """Ask champions, a few at once, until one answers; the one that answered last is asked first."""
        last = self._answered_last
        first = [last] if last is not None and last in snapshot.policies else []
        names = chain(first, (name for name in snapshot.policies if name != last))
        while group := list(islice(names, PROBES_AT_ONCE)):
            answers = await asyncio.gather(*(self._is_ready(snapshot.policies[name].champion) for name in group))
            if any(answers):
                self._answered_last = group[answers.index(True)]
                return True
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
