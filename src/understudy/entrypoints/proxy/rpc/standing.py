"""Whether the port answers calls: as the whole proxy does, until it leaves."""

import asyncio
from contextlib import suppress

from understudy.entrypoints.proxy.dialects.offered import Offered


class Standing:
    """Knows whether the proxy can answer.

    Args:
        offered: The open proxy.
    """

    def __init__(self, offered: Offered) -> None:
        self._offered = offered
        self._leaving = asyncio.Event()
        self._stopping = asyncio.Event()

    @property
    def is_leaving(self) -> bool:
        """Whether the shutdown has begun."""
        return self._leaving.is_set()

    @property
    def is_stopping(self) -> bool:
        """Whether no further call is taken."""
        return self._stopping.is_set()

    def leave(self) -> None:
        """Be ready no longer; calls are taken on."""
        self._leaving.set()

    def stop(self) -> None:
        """Take no further call."""
        self.leave()
        self._stopping.set()

    async def is_ready(self) -> bool:
        """Return what ``/readyz`` says."""
        found, _ = await self._offered.health(is_leaving=self.is_leaving)
        return found

    async def wait(self, seconds: float) -> None:
        """Wait for the next step of a shutdown, and no longer than that."""
        step = self._stopping if self.is_leaving else self._leaving
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await step.wait()
