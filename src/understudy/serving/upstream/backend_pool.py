"""The open backends: one batching caller for each version that a policy names or a call forced."""

import asyncio
from collections.abc import Callable

import structlog

from understudy.background.tasks import end_tasks
from understudy.core.loading.served_name import is_served_name
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.errors import BackendUnavailable, ServingError, VersionUnloaded
from understudy.serving.upstream.batching import BatchingCaller

_log = structlog.get_logger(__name__)

DRAIN_SECONDS = 30.0
"""How long a version that left all policies keeps its backend open for the rows under way (connection draining)."""


class BackendPool:
    """Batching callers by version, made at the first call and closed once a snapshot no longer has the version.

    The key is the compiled version itself: a row that changed (its endpoints, say) is another version here, and a
    request that still holds the older snapshot uses the older caller while it needs it.
    """

    def __init__(self, make: Callable[[ModelVersion], BatchingCaller]) -> None:
        self._make = make
        self._open: dict[ModelVersion, BatchingCaller] = {}
        self._unusable: set[ModelVersion] = set()
        """Versions for which ``backend.not_made`` was logged."""
        self._is_closed = False
        self._closing: dict[asyncio.Task[None], BatchingCaller] = {}

    def __len__(self) -> int:
        return len(self._open)

    def of(self, version: ModelVersion) -> BatchingCaller:
        """Return the version's caller; use it before the next await, since a later snapshot may retire it.

        Raises:
            BackendUnavailable: Everything is closed already, or the version's backend settings cannot be used.
            VersionUnloaded: Agents have it loaded at no server.
        """
        caller = self._open.get(version)
        if caller is None:
            if self._is_closed:
                raise BackendUnavailable("the proxy is stopping")
            caller = self._open[version] = self._made(version)
        return caller

    def opened(self) -> tuple[BatchingCaller, ...]:
        """Return the callers that are open now."""
        return tuple(self._open.values())

    def in_flight(self) -> dict[int, int]:
        """Return what is under way by version id, versions that drain included."""
        found: dict[int, int] = {}
        for caller in (*self._open.values(), *self._closing.values()):
            if caller.rows_under_way:
                found[caller.version.id] = found.get(caller.version.id, 0) + caller.rows_under_way
        return found

    def reconcile(self, snapshot: PolicySnapshot) -> None:
        """Close the callers of versions that the snapshot does not have, once their rows are answered."""
        for version in [known for known in self._open if not snapshot.has(known)]:
            self._retire(self._open.pop(version))
        self._unusable = {version for version in self._unusable if snapshot.has(version)}

    async def close(self) -> None:
        """Close all; calls in flight fail."""
        await end_tasks(self._closing)
        self._is_closed = True
        for caller in tuple(self._open.values()):
            await caller.close()
        self._open.clear()

    def _made(self, version: ModelVersion) -> BatchingCaller:
        if not version.endpoints and is_served_name(version.server_model_name):
            # A call by its name has agents load it: the monitor reads it in the log.
            raise VersionUnloaded(f"version {version.version} of {version.model_name} is loaded at no server now")
        try:
            return self._make(version)
        except ServingError:
            raise
        except Exception as problem:  # any error of an adapter over a settings column: it must cost a fallback only
            if version not in self._unusable:
                self._unusable.add(version)
                _log.exception("backend.not_made", model=version.model_name, version=version.version)
            raise BackendUnavailable("the version's backend settings cannot be used") from problem

    def _retire(self, caller: BatchingCaller) -> None:
        task = asyncio.get_running_loop().create_task(_close_when_idle(caller))
        self._closing[task] = caller
        task.add_done_callback(self._closing.pop)


async def _close_when_idle(caller: BatchingCaller) -> None:
    try:
        await caller.idle(DRAIN_SECONDS)
    finally:
        await caller.close()
