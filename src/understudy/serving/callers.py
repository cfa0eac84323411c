"""The open backends: one caller for each version that a policy names, or that somebody forced."""

import asyncio
from collections.abc import Callable, Iterable

from understudy.core.policy import ModelVersion, PolicySnapshot
from understudy.ports import ConnectBackend
from understudy.serving.batching import BatchingCaller

DRAIN_SECONDS = 30.0
"""How long a caller that no policy needs stays open for its calls in flight (design: the champion's own bound)."""


class Callers:
    """Callers by version id, made at the first call and closed when the registry changes or drops the version."""

    def __init__(self, connect: ConnectBackend, make: Callable[[ModelVersion, ConnectBackend], BatchingCaller]) -> None:
        self._connect = connect
        self._make = make
        self._open: dict[int, BatchingCaller] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, version: ModelVersion) -> BatchingCaller:
        """Return the caller of exactly this version row; a changed row (its endpoints, say) gets a new one."""
        caller = self._open.get(version.id)
        if caller is not None and caller.version is version:
            return caller
        if caller is not None:
            self._retire(caller)
        caller = self._make(version, self._connect)
        self._open[version.id] = caller
        return caller

    def opened(self) -> Iterable[BatchingCaller]:
        """Return the callers that are open now."""
        return tuple(self._open.values())

    def reconcile(self, snapshot: PolicySnapshot) -> None:
        """Close the callers of versions that are gone from the snapshot."""
        current = {version.id for policy in snapshot.policies.values() for version in policy.versions.values()}
        for version_id in [known for known in self._open if known not in current]:
            self._retire(self._open.pop(version_id))

    async def close(self) -> None:
        """Close all; calls in flight fail."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for caller in self._open.values():
            await caller.close()
        self._open.clear()

    def _retire(self, caller: BatchingCaller) -> None:
        task = asyncio.get_running_loop().create_task(_close_when_idle(caller))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close_when_idle(caller: BatchingCaller) -> None:
    try:
        await caller.idle(DRAIN_SECONDS)
    finally:
        await caller.close()
