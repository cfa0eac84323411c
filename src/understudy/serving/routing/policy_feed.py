"""Keeps the policy snapshot fresh: notifications, a poll as backstop, and the last good file when Postgres is away.

No request ever waits for this: it reads :attr:`PolicyFeed.snapshot`, which is swapped whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from understudy.background.outage_log import OutageLog
from understudy.background.tasks import end_tasks, in_turns, run_forever
from understudy.core.routing.policy import PolicySnapshot
from understudy.core.routing.policy_document import Compiling
from understudy.errors import RegistryError
from understudy.ports.registry.policy import PolicySource, SnapshotFile
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.serving.routing.instance_report import InstanceReport
from understudy.serving.routing.pending_changes import PendingChanges
from understudy.serving.routing.policy_gauges import PolicyGauges
from understudy.serving.routing.removed_endpoints import RemovedEndpoints

RETRY_SECONDS = 1.0
"""Pause after a failed attempt to reach Postgres; then it is asked again at once, whenever the next poll is due."""
SAVE_SECONDS = 1.0
"""A burst of changes costs one file and one report in this time."""
CONFIRM_SECONDS = 0.25
"""How soon after a change was read a poll says that it was: agents wait for that before they unload a version."""

_WAITS = "changes of policies and keys, rollbacks and rollouts; the control plane answers 503"


class PolicyFeed:
    """Reads policies into :attr:`snapshot` until stopped.

    Args:
        source: Where policies come from; its opener closes it.
        file: The last good document.
        telemetry: Gets the age, the generation of each model and what was rejected.
        instance: This process's name in ``ProxyInstance``.
        poll_seconds: Time between two polls.
        now: The monotonic clock, in seconds.
        on_swap: Called with each new snapshot.
        in_flight: Calls under way by version id.
        protocols: Those of model servers that this release speaks; a version of another one is not used.
        retry_seconds: Pause after a failed attempt to reach Postgres.
        save_seconds: Pause between two checks for something to save or to report.
    """

    def __init__(
        self,
        source: PolicySource,
        file: SnapshotFile,
        telemetry: Telemetry,
        *,
        instance: str,
        poll_seconds: float,
        now: Callable[[], float],
        on_swap: Callable[[PolicySnapshot], None],
        in_flight: Callable[[], Mapping[int, int]],
        protocols: Collection[str] | None = None,
        retry_seconds: float = RETRY_SECONDS,
        save_seconds: float = SAVE_SECONDS,
    ) -> None:
        self.snapshot: PolicySnapshot | None = None
        self.degraded = True
        """Whether the snapshot may be stale: Postgres did not answer the last time it was asked."""
        self._source = source
        self._file = file
        self._telemetry = telemetry
        self._poll_seconds = poll_seconds
        self._protocols = protocols
        self._now = now
        self._on_swap = on_swap
        self._retry_seconds = retry_seconds
        self._save_seconds = save_seconds
        self._pending = PendingChanges()
        self._gauges = PolicyGauges(telemetry)
        self._outage = OutageLog("postgres", _WAITS)
        self._removed = RemovedEndpoints(now)
        self._report = InstanceReport(source, instance, in_flight, self._removed, now)
        self._document: dict[str, Any] = {"models": {}, "keys": []}
        self._poll_due_at = now()
        self._fresh_at: float | None = None
        self._began_at = now()
        self._unsaved = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def age_seconds(self) -> float | None:
        """How long ago Postgres last confirmed the snapshot; ``None`` before it ever did."""
        return None if self._fresh_at is None else self._now() - self._fresh_at

    @property
    def stale_seconds(self) -> float:
        """As :attr:`age_seconds`, but counted from the start of this process while Postgres never answered."""
        return self._now() - (self._began_at if self._fresh_at is None else self._fresh_at)

    async def start(self) -> None:
        """Read the policies once, from Postgres or else from the file, then keep them fresh in the background."""
        try:
            await self._load(None)
            self._pending.has_just_loaded = True
        except RegistryError as problem:
            self._pending.note_everything()
            stale = await asyncio.to_thread(self._file.read)
            if stale is not None:
                await self._swap(stale, complete=True)
                self._unsaved = False
            self._outage.failed(problem, self._works())
        works: Mapping[str, Callable[[], Awaitable[None]]] = {
            "policy_listen": self._listen,
            "policy_reload": self._reload,
            "policy_save": self._follow_up,
        }
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(run_forever(name, work, self._telemetry)) for name, work in works.items()]

    async def stop(self) -> None:
        """End the background work."""
        await end_tasks(self._tasks)
        await self._report.stop()

    async def sign_off(self) -> None:
        """End the background work and take this instance's report back; for when no call is under way any more."""
        await end_tasks(self._tasks)
        await self._report.sign_off()

    # -- background ----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            try:
                await self._source.listen(self._pending.note)
            except RegistryError:
                self._telemetry.count("policy_listen_failures_total")
            # What the next subscription goes to may be another database, restored into this one's place.
            self._pending.has_just_loaded = False
            await asyncio.sleep(self._retry_seconds)

    async def _reload(self) -> None:
        while True:
            woken = await self._pending.wait(max(0.0, self._poll_due_at - self._now()))
            try:
                await self._catch_up(woken=woken)
            except Exception as problem:
                self.degraded = True
                self._telemetry.set("policy_degraded", 1)
                self._pending.retry()
                if not isinstance(problem, RegistryError):
                    raise
                self._outage.failed(problem, self._works())
                await asyncio.sleep(self._retry_seconds)

    async def _catch_up(self, *, woken: bool) -> None:
        """Load what is known to have changed; poll for it when that is due, or after a failed attempt."""
        pending = self._pending
        is_due = not woken or self._now() >= self._poll_due_at
        if not pending.everything and (pending.must_poll or self.degraded or is_due):
            self._poll_due_at = self._now() + self._poll_seconds
            pending.models.update(await self._source.changed_since_last_poll())
            pending.must_poll = False
            self._confirm()
        if pending:
            self._poll_due_at = min(self._poll_due_at, self._now() + CONFIRM_SECONDS)
        while pending:
            everything, names = taken = pending.take()
            try:
                await self._load(None if everything else sorted(names))
            except BaseException:
                pending.put_back(taken)
                raise

    async def _load(self, names: list[str] | None) -> None:
        document = await self._source.load(names)
        if names is None:  # which a poll would add nothing to
            self._poll_due_at = self._now() + self._poll_seconds
        await self._swap(document, complete=names is None)
        self._confirm()

    def _works(self) -> str:
        """Return what goes on without Postgres, in words."""
        if self.snapshot is None:
            return "no call: this process has never read a policy, and policy.json has none"
        models = len(self.snapshot.policies)
        return f"calls, by the policies that were read last (models: {models}); rows of the log wait on disk"

    def _confirm(self) -> None:
        self._fresh_at = self._now()
        self.degraded = False
        self._outage.succeeded()
        self._report.note_read(self._source.horizon, self._source.newest_change)
        self._telemetry.set("policy_degraded", 0)

    async def _swap(self, document: Mapping[str, Any], *, complete: bool) -> None:
        """Compile a document into the next snapshot, act on it, and show it."""
        before = self.snapshot or PolicySnapshot()
        compiling = Compiling(before, document, complete=complete, protocols=self._protocols)
        await in_turns(compiling.each_model(), self._now)
        after = self.snapshot = compiling.snapshot()
        self._on_swap(after)
        known = self._document["models"]
        asked = {**known, **document["models"]} if complete else document["models"]
        gone = [name for name in asked if not after.knows(name)]
        models = {**({} if complete else known), **document["models"]}
        for name in gone:
            models.pop(name, None)
        self._document = {**self._document, **document, "models": models}
        await in_turns(self._removed.note(before, after, asked), self._now)
        self._unsaved = True
        self._report.expedite()
        await in_turns(self._gauges.publish(before, after, document["models"]), self._now)
        await in_turns(self._gauges.forget(gone), self._now)

    async def _follow_up(self) -> None:
        """Save and report what was swapped in."""
        while True:
            await asyncio.sleep(self._save_seconds)
            if self._unsaved:
                self._unsaved = False
                await asyncio.to_thread(self._file.write, self._document)
            if self._report.is_due and self.snapshot is not None and not self.degraded:
                await self._report.send(self.snapshot)
