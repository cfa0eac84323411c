"""Keeps the policy snapshot fresh: notifications, a poll as backstop, and the last good file when Postgres is away.

No request ever waits for this: it reads :attr:`PolicyFeed.snapshot`, which is swapped whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from understudy.core.routing.policy import ModelVersion, PolicySnapshot, ServingPolicy
from understudy.core.routing.policy_document import Compiling
from understudy.errors import RegistryError
from understudy.ports.policy import PolicyChange, PolicySource, SnapshotFile
from understudy.ports.telemetry import Telemetry
from understudy.serving.background import run_forever

_log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0
"""Pause after a failed attempt to reach Postgres; then it is asked again at once, whenever the next poll is due."""
REPORT_SECONDS = 10.0
"""Longest time between two reports: an instance that was not seen for 30 seconds counts as silent."""
SIGN_OFF_SECONDS = 2.0
"""Longest time that a proxy which stops takes to sign off. One that cannot becomes stale, which is no error."""
SAVE_SECONDS = 1.0
"""A burst of changes costs one file and one report in this time."""
MODEL_GAUGES = ("policy_generation", "challenger_weight_ratio", "arms_weight_ratio", "policy_rejected")
TURN_SECONDS = 0.002
"""How long the work of many models keeps the event loop; then whoever waits has a turn. Not a thread: it would take the
interpreter from the loop after each of its system calls, and callers of 10,000 models' proxies waited for seconds."""


class PolicyFeed:
    """Reads policies into :attr:`snapshot` until stopped.

    Args:
        source: Where policies come from; closed by whoever opened it.
        file: The last good document.
        telemetry: Gets the age, the generation of each model and what was rejected.
        instance: This process's name in ``ProxyInstance``.
        poll_seconds: Time between two polls.
        now: The monotonic clock, in seconds.
        on_swap: Called with each new snapshot.
        in_flight: Calls under way by version id.
        retry_seconds: Pause after a failed attempt to reach Postgres.
        save_seconds: Pause between two looks for something to save or to report.
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
        retry_seconds: float = RETRY_SECONDS,
        save_seconds: float = SAVE_SECONDS,
    ) -> None:
        self.snapshot: PolicySnapshot | None = None
        self.degraded = True
        """Whether the snapshot may be stale: Postgres did not answer the last time it was asked."""
        self._source = source
        self._file = file
        self._telemetry = telemetry
        self._instance = instance
        self._poll_seconds = poll_seconds
        self._now = now
        self._on_swap = on_swap
        self._in_flight = in_flight
        self._retry_seconds = retry_seconds
        self._save_seconds = save_seconds
        self._document: dict[str, Any] = {"models": {}, "keys": []}
        self._changed: set[str] = set()
        self._reload_all = False
        self._has_just_loaded = False
        """Whether what may have changed since everything was loaded is what a poll tells."""
        self._ask = False
        self._wake = asyncio.Event()
        self._fresh_at: float | None = None
        self._began_at = now()
        self._unsaved = False
        self._report_due_at = 0.0
        self._shown_roles: dict[str, tuple[str, str, str]] = {}
        """The labels of ``policy_info`` by model."""
        self._draining = False
        """Whether the last report had calls in flight at versions that get no new ones."""
        self._tasks: list[asyncio.Task[None]] = []
        self._reporting: asyncio.Task[None] | None = None
        """The last report, which may be under way."""

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
            self._has_just_loaded = True
        except RegistryError:
            self._reload_all = True
            self._wake.set()
            stale = await asyncio.to_thread(self._file.read)
            if stale is not None:
                await self._swap(stale, complete=True)
                self._unsaved = False
        works: Mapping[str, Callable[[], Awaitable[None]]] = {
            "policy_listen": self._listen,
            "policy_reload": self._reload,
            "policy_save": self._follow_up,
        }
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(run_forever(name, work, self._telemetry)) for name, work in works.items()]

    async def stop(self) -> None:
        """End the background work."""
        await _ended(self._tasks)
        if self._reporting is not None:
            await _ended([self._reporting])

    async def sign_off(self) -> None:
        """End the background work and take this instance's report back; for when no call is under way any more."""
        await _ended(self._tasks)
        if self._reporting is None:
            return
        try:
            async with asyncio.timeout(SIGN_OFF_SECONDS):
                # Breaking it off would not stop Postgres, which would write the row after it was deleted.
                await asyncio.wait([self._reporting])
                await self._source.sign_off(self._instance)
        except (RegistryError, TimeoutError) as problem:
            _log.warning("policy.not_signed_off", problem=str(problem) or f"it takes over {SIGN_OFF_SECONDS:g} s")

    # -- background ----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            try:
                await self._source.listen(self._note)
            except RegistryError:
                self._telemetry.count("policy_listen_failures_total")
            # What the next subscription goes to may be another database, restored into this one's place.
            self._has_just_loaded = False
            await asyncio.sleep(self._retry_seconds)

    def _note(self, change: PolicyChange) -> None:
        if change.model_name is not None:
            self._changed.add(change.model_name)
        elif self._has_just_loaded:
            self._has_just_loaded, self._ask = False, True
        else:
            self._reload_all = True
        self._wake.set()

    async def _reload(self) -> None:
        while True:
            woken = await self._woken()
            try:
                await self._catch_up(woken=woken)
            except Exception as problem:
                self._degrade()
                self._wake.set()
                if not isinstance(problem, RegistryError):
                    raise
                await asyncio.sleep(self._retry_seconds)

    async def _woken(self) -> bool:
        """Wait for a notification, at most until the next poll, and not at all after a failure."""
        try:
            async with asyncio.timeout(self._poll_seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    async def _catch_up(self, *, woken: bool) -> None:
        """Load what is known to have changed; ask what has, when nobody said so or the last attempt failed."""
        if not self._reload_all and (self._ask or self.degraded or not woken):
            self._changed.update(await self._source.changed_since_last_poll())
            self._ask = False
            self._confirm()
        while self._reload_all or self._changed:
            # Taken out before the read: a change that arrives during it must be read again.
            everything, self._reload_all = self._reload_all, False
            names, self._changed = self._changed, set()
            try:
                await self._load(None if everything else sorted(names))
            except BaseException:
                self._reload_all |= everything
                self._changed |= names
                raise

    async def _load(self, names: list[str] | None) -> None:
        document = await self._source.load(names)
        await self._swap(document, complete=names is None)
        self._confirm()

    async def _swap(self, document: Mapping[str, Any], *, complete: bool) -> None:
        before = self.snapshot or PolicySnapshot()
        compiling = Compiling(before, document, complete=complete)
        await self._in_turns(compiling.each_model())
        after = self.snapshot = compiling.snapshot()
        self._on_swap(after)
        known = self._document["models"]
        asked = {**known, **document["models"]} if complete else document["models"]
        gone = [name for name in asked if not _is_known(after, name)]
        models = {**({} if complete else known), **document["models"]}
        for name in gone:
            models.pop(name, None)
        self._document = {"models": models, "keys": document.get("keys", self._document["keys"])}
        self._unsaved = True
        self._report_due_at = 0.0
        await self._in_turns(self._publish(before, after, document["models"]))
        await self._in_turns(self._forget(gone))

    async def _in_turns(self, steps: Iterable[object]) -> None:
        """Take all steps, and let the event loop see to others whenever :data:`TURN_SECONDS` are over."""
        turn_ends_at = self._now() + TURN_SECONDS
        for _ in steps:
            if self._now() >= turn_ends_at:
                await asyncio.sleep(0)
                turn_ends_at = self._now() + TURN_SECONDS

    async def _follow_up(self) -> None:
        """Save and report what was swapped in."""
        while True:
            await asyncio.sleep(self._save_seconds)
            if self._unsaved:
                self._unsaved = False
                await asyncio.to_thread(self._file.write, self._document)
            is_due = self._draining or self._now() >= self._report_due_at
            if is_due and self.snapshot is not None and not self.degraded:
                await self._report(self.snapshot)

    async def _report(self, snapshot: PolicySnapshot) -> None:
        self._report_due_at = self._now() + REPORT_SECONDS
        generations = {name: policy.generation for name, policy in snapshot.policies.items()}
        in_flight = self._in_flight()
        left = set(in_flight)
        await self._in_turns(_without_called(left, snapshot.policies.values()))
        self._draining = bool(left)
        self._reporting = asyncio.create_task(self._source.report(self._instance, generations, in_flight))
        try:
            await asyncio.shield(self._reporting)
        except RegistryError as problem:
            _log.warning("policy.not_reported", problem=str(problem))

    # -- what others see -----------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        self._fresh_at = self._now()
        self.degraded = False
        self._telemetry.set("policy_degraded", 0)

    def _degrade(self) -> None:
        self.degraded = True
        self._telemetry.set("policy_degraded", 1)

    def _publish(self, before: PolicySnapshot, after: PolicySnapshot, names: Iterable[str]) -> Iterator[None]:
        """Set the gauges of models, a model at each step; what is as it was is set already."""
        for name in names:
            yield
            known, policy = _gauges_of(before, name), _gauges_of(after, name)
            for gauge, value in policy.items():
                if known.get(gauge) != value:
                    self._telemetry.set(gauge, value, name)
            if name in after.policies:
                self._show_roles(after.policies[name])

    def _forget(self, gone: Iterable[str]) -> Iterator[None]:
        for name in gone:
            yield
            for gauge in MODEL_GAUGES:
                self._telemetry.forget(gauge, name)
            self._forget_roles(name)

    def _show_roles(self, policy: ServingPolicy) -> None:
        """Name the versions in the labels of a gauge, so that a dashboard can say who is who."""
        roles = (policy.champion.version, _label_of(policy.challenger), _label_of(policy.shadow))
        if self._shown_roles.get(policy.model_name) != roles:
            self._forget_roles(policy.model_name)
            self._shown_roles[policy.model_name] = roles
            self._telemetry.set("policy_info", 1, policy.model_name, *roles)

    def _forget_roles(self, model_name: str) -> None:
        roles = self._shown_roles.pop(model_name, None)
        if roles is not None:
            self._telemetry.forget("policy_info", model_name, *roles)


def _gauges_of(snapshot: PolicySnapshot, name: str) -> dict[str, float]:
    """Return what the gauges of a model show; nothing of one that is not known."""
    if not _is_known(snapshot, name):
        return {}
    rejected = {"policy_rejected": float(name in snapshot.rejected)}
    policy = snapshot.policies.get(name)
    if policy is None:
        return rejected
    return {
        "policy_generation": policy.generation,
        "challenger_weight_ratio": policy.challenger_weight / 100,
        "arms_weight_ratio": len(policy.arms) / 100,
        **rejected,
    }


def _without_called(version_ids: set[int], policies: Iterable[ServingPolicy]) -> Iterator[None]:
    """Take the versions that get calls out of a set, a policy at each step."""
    for policy in policies:
        if not version_ids:
            return
        version_ids -= policy.called_ids
        yield


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _label_of(version: ModelVersion | None) -> str:
    return "" if version is None else version.version


def _is_known(snapshot: PolicySnapshot, name: str) -> bool:
    return name in snapshot.policies or name in snapshot.rejected
