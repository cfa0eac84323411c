"""Whether this proxy can answer anything at all: at least one champion's model server says that it is ready."""

import asyncio
from collections.abc import Callable

from understudy.core.policy import ModelVersion, PolicySnapshot
from understudy.errors import BackendUnavailable
from understudy.serving.callers import Callers

MEMORY_SECONDS = 2.0
PROBE_SECONDS = 0.5
PROBES_AT_ONCE = 8


class ChampionWatch:
    """Asks champions for a sign of life, at most once in ``MEMORY_SECONDS`` however often it is asked itself."""

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
                self._known_until = self._now() + MEMORY_SECONDS
        return self._reachable

    async def _probe(self, snapshot: PolicySnapshot) -> bool:
        """Ask champions, a few at once, until one answers; the one that answered last is asked first."""
        names = sorted(snapshot.policies, key=lambda name: name != self._answered_last)
        for start in range(0, len(names), PROBES_AT_ONCE):
            group = names[start : start + PROBES_AT_ONCE]
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
