"""Proxies that stand still for a while, one after the other, as on a machine that is suspended."""

import asyncio
import signal
import time
from collections.abc import Sequence
from random import Random
from typing import Final

from e2e.stack import Process

PAUSE_SECONDS: Final = 20.0
MAX_BETWEEN_SECONDS: Final = 20.0
_GRACE_SECONDS: Final = 6.0
"""A call has ended so long after it was sent, answered or given up."""


class Pauses:
    """Stops a random proxy with SIGSTOP, and lets it go on with SIGCONT, until cancelled."""

    def __init__(self, proxies: Sequence[Process], chance: Random) -> None:
        self._proxies = proxies
        self._chance = chance
        self._spans: list[tuple[int, float, float]] = []

    @property
    def count(self) -> int:
        """How often one stood still."""
        return len(self._spans)

    def explains(self, proxy: int, sent: float) -> bool:
        """Whether a call that a proxy got at a moment of the monotonic clock may have found it standing still."""
        return any(
            number == proxy and began - _GRACE_SECONDS <= sent <= ended + _GRACE_SECONDS
            for number, began, ended in self._spans
        )

    async def run(self) -> None:
        """Go on until cancelled; a proxy that stands still then goes on."""
        while True:
            await asyncio.sleep(self._chance.uniform(0, MAX_BETWEEN_SECONDS))
            number = self._chance.randrange(len(self._proxies))
            began = time.monotonic()
            self._spans.append((number, began, began + PAUSE_SECONDS))
            self._proxies[number].signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                self._proxies[number].signal(signal.SIGCONT)
                self._spans[-1] = (number, began, time.monotonic())
