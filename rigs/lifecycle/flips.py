"""Versions that are wanted and unwanted in turns, each by its own clock, and how often each was unloaded."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

import asyncpg

MAX_STAY_SECONDS: Final = 2.0
"""A version is available for so long at most before it is unwanted again."""
GIVE_UP_SECONDS: Final = 180.0
"""After so long without any change of a state the run is given up: longer than a paused proxy holds an unload."""
POLL_SECONDS: Final = 0.1
_STATES = "SELECT model_version_id, state FROM LoadedVersion"
_WANT = "UPDATE VersionLoading SET wanted_until = 'infinity', asked_at = now() WHERE model_version_id = $1"
_WANT_NO_MORE = "UPDATE VersionLoading SET wanted_until = NULL WHERE model_version_id = $1"


class Flips:
    """Wants and unwants ``versions`` (their ids) until they were unloaded ``unloads`` times in all."""

    def __init__(self, versions: Sequence[int], unloads: int, chance: Random) -> None:
        self._versions = versions
        self._unloads = unloads
        self._chance = chance
        self._is_wanted = dict.fromkeys(versions, True)
        self._until: dict[int, float] = {}
        """When a version that is available is unwanted."""
        self._states: dict[int, str] = {}
        self._changed_at = time.monotonic()
        self.unloaded: Counter[int] = Counter()
        """How often each version was unloaded."""

    @property
    def is_over(self) -> bool:
        """Whether there were as many unloads as asked for."""
        return self.unloaded.total() >= self._unloads

    async def run(self, connection: asyncpg.Connection) -> None:
        """Go on until there were enough.

        Raises:
            TimeoutError: Nothing has changed for a long time.
        """
        while not self.is_over:
            states = {row[0]: str(row[1]) for row in await connection.fetch(_STATES)}
            now = time.monotonic()
            if states != self._states:
                self._states, self._changed_at = states, now
            elif now > self._changed_at + GIVE_UP_SECONDS:
                raise TimeoutError(f"no state has changed for {GIVE_UP_SECONDS:g} s: {states}")
            for version in self._versions:
                await self._step(connection, version, states.get(version, "END"), now)
            await asyncio.sleep(POLL_SECONDS)

    async def _step(self, connection: asyncpg.Connection, version: int, state: str, now: float) -> None:
        """Unwant a version whose stay is over, and want one that is gone."""
        if self._is_wanted[version] and state == "AVAILABLE":
            if now >= self._until.setdefault(version, now + self._chance.uniform(0, MAX_STAY_SECONDS)):
                del self._until[version]
                self._is_wanted[version] = False
                await connection.execute(_WANT_NO_MORE, version)
        elif not self._is_wanted[version] and state == "END":
            self.unloaded[version] += 1
            self._is_wanted[version] = True
            await connection.execute(_WANT, version)
