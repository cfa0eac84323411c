"""Whether a version's model servers answer, for clients that ask before they call; asked again every two seconds."""

import asyncio
from collections.abc import Callable
from math import inf

from understudy.background.tasks import end_tasks
from understudy.core.routing.policy import ModelVersion
from understudy.errors import BackendUnavailable
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.champion_health import MEMORY_SECONDS, PROBE_SECONDS
from understudy.serving.upstream.single_flight import SingleFlight

MAX_KNOWN = 1_024
"""Versions whose answer is remembered."""
MAX_ASKING = 32
"""Probes at a time for which no client waits."""


class VersionReadiness:
    """Probes versions, each once in :data:`~.champion_health.MEMORY_SECONDS`, however often clients ask.

    Args:
        backends: The open backends. A version that answered a call of late is not probed.
        now: The monotonic clock, in seconds.
    """

    def __init__(self, backends: BackendPool, now: Callable[[], float]) -> None:
        self._backends = backends
        self._now = now
        self._known: dict[ModelVersion, tuple[float, bool]] = {}
        self._probes: SingleFlight[bool] = SingleFlight()
        self._asking: dict[ModelVersion, asyncio.Task[bool]] = {}

    async def is_ready(self, version: ModelVersion) -> bool:
        """Return whether a replica of the version says that it serves it, or answered of late."""
        until, found = self._known.get(version, (0.0, False))
        if self._now() < until:
            return found
        found, _ = await self._probes.run(str(version.id), lambda: self._probe(version))
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[version] = self._now() + MEMORY_SECONDS, found
        return found

    def last_known(self, version: ModelVersion) -> bool:
        """Return what the last probe found, without waiting; before the first one a version with endpoints is ready.

        An old answer is asked for again, for the next client.
        """
        until, found = self._known.get(version, (-inf, bool(version.endpoints)))
        if self._now() >= until and version not in self._asking and len(self._asking) < MAX_ASKING:
            task = asyncio.create_task(self.is_ready(version))
            self._asking[version] = task
            task.add_done_callback(lambda _: self._asking.pop(version, None))
        return found

    async def close(self) -> None:
        """End the probes under way."""
        await end_tasks(self._asking.values())

    async def _probe(self, version: ModelVersion) -> bool:
        try:
            caller = self._backends.of(version)
            if caller.answered_at + MEMORY_SECONDS > self._now():
                return True
            return await caller.ready(PROBE_SECONDS)
        except BackendUnavailable:
            return False
