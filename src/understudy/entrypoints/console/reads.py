"""What the pages read, from the same stores and use cases as the command line and the control plane."""

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from understudy.bootstrap.console import ConsoleParts
from understudy.bootstrap.session import Session
from understudy.core.alerts.alerts import AlertKind
from understudy.entrypoints.console.key_notes import KeyNotes
from understudy.entrypoints.console.views.actors import (
    Notes,
    noted_act,
    noted_entries,
    noted_event,
    noted_policy,
    noted_rollout,
)
from understudy.entrypoints.console.views.audit import SHOWN, AuditSeen, AuditWanted
from understudy.entrypoints.console.views.changes import champion_change
from understudy.entrypoints.console.views.model import ModelSeen
from understudy.entrypoints.console.views.models import ModelsSeen, is_overtaken
from understudy.entrypoints.console.views.policy import PolicySeen
from understudy.entrypoints.console.views.rollouts.seen import RolloutSeen
from understudy.errors import RegistryError
from understudy.ports.monitoring.lease import SILENT_SECONDS
from understudy.ports.registry.registry import (
    RETIRED,
    Actor,
    AuditEntry,
    AuditFilter,
    AuditSubject,
    ModelRecord,
    VersionRecord,
)
from understudy.ports.rollout.rollout_store import (
    MONITOR,
    VIA_CONSOLE,
    RollbackRecord,
    RolloutAct,
    RolloutEventRecord,
    RolloutRecord,
    UnreadableRollout,
)
from understudy.registry.policy_files import open_rollout_of
from understudy.registry.rollback_moves import NEWS_SECONDS, hidden_rollback
from understudy.rollout.manual_rollback import manual_rollback
from understudy.rollout.status import StatusReader

NEWEST_ROLLOUTS = 500
"""Rollouts that are read to find each model's newest; one from longer ago that is open is read by itself."""
MAX_OPEN = 50
"""Open rollouts whose last event the Models page reads."""
AUDIT_ENTRIES = 40
"""Changes of a policy that are read: a rollback that a newer rollout hides is among them."""
NEWS = 300
"""Changes of the last day, of all models, among which the Models page looks for rollbacks that newer rollouts hide."""
RECENT = 8
"""Rollouts of the model that a rollout's page links to."""
MAX_READERS = 32
"""Rollouts whose windows are kept between two looks; beyond that those looked at longest ago are read anew."""
_Events = tuple[Mapping[int, RolloutEventRecord], Mapping[int, RolloutEventRecord]]
_INCIDENTS = tuple(kind for kind in AlertKind if kind is not AlertKind.ROLLOUT_MOVED)


class Reads:
    """Reads pages; of rollouts that are looked at again and again only what is new.

    Args:
        parts: What the process has open.
    """

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._readers: OrderedDict[tuple[str, int], StatusReader] = OrderedDict()
        self.notes = KeyNotes(parts.session.registry.list_keys)
        """Of keys: whom an id stands for that is an actor."""

    @property
    def session(self) -> Session:
        """The stores."""
        return self._parts.session

    async def models(self) -> ModelsSeen:
        """Return what the Models page shows.

        Raises:
            RegistryUnavailable, MigrationNeeded: As the stores.
        """
        session = self.session
        models = await session.registry.list_models()
        async with session.rollouts.shared_session():
            newest, unreadable = newest_of_models(await session.rollouts.listing(None, NEWEST_ROLLOUTS))
            for model in models:
                policy, is_known = model.policy, model.model_name in newest or model.model_name in unreadable
                if policy is not None and policy.rollout_id is not None and not is_known:
                    newest[model.model_name] = (await session.rollouts.record(policy.rollout_id)).record
            events, acts = await self._last_events(newest)
        now = time.time()
        notes = await self.notes.read()
        changes, hidden = await self._changes(models, newest, now, notes), await self._hidden(newest, now, notes)
        is_unwatched, alerts = await self._is_unwatched(models, newest), await self._alerts()
        policies = [one.policy and noted_policy(one.policy, notes) for one in models]
        shown = [one._replace(policy=policy) for one, policy in zip(models, policies, strict=True)]
        named = {name: noted_rollout(one, notes) for name, one in newest.items()}
        told, done = [{one: noted_event(event, notes) for one, event in found.items()} for found in (events, acts)]
        return ModelsSeen(shown, named, told, alerts, now, changes, hidden, unreadable, is_unwatched, done)

    async def rollout(self, model_name: str, rollout_id: int) -> RolloutSeen:
        """Return what a rollout's page shows.

        Raises:
            NotRegistered: There is no such rollout of the model.
            RegistryUnavailable, MigrationNeeded: As the stores.
        """
        registry, rollouts = self.session.registry, self.session.rollouts
        async with rollouts.shared_session(), self.session.windows.shared_session():
            status = await self._reader(model_name, rollout_id).read()
            newest = await rollouts.listing(model_name, RECENT)
        by_hand = await manual_rollback(registry, status.view.record.state)
        audit = await registry.list_audit(model_name, AUDIT_ENTRIES, AuditSubject.POLICY)
        versions = await registry.list_versions(model_name)
        labels, recent = {version.id: version.version for version in versions}, [one.id for one in newest]
        tried = await self._tried_rollback(status.view.record, versions) if recent[:1] == [rollout_id] else None
        notes = await self.notes.read()
        view = status.view._replace(record=noted_rollout(status.view.record, notes))
        status = status._replace(view=view, events=[noted_event(event, notes) for event in status.events])
        by_hand = None if by_hand is None else noted_entries([by_hand], notes)[0]
        return RolloutSeen(status, by_hand, noted_entries(audit, notes), labels, recent, tried)

    async def model(self, model_name: str) -> ModelSeen:
        """Return what the page of a model shows that has no rollout.

        Raises:
            NotRegistered: There is no such model.
            RegistryUnavailable, MigrationNeeded: As the stores.
        """
        registry = self.session.registry
        record = await registry.show_model(model_name)
        audit = await registry.list_audit(model_name, AUDIT_ENTRIES, AuditSubject.POLICY)
        labels = {version.id: version.version for version in await registry.list_versions(model_name)}
        return ModelSeen(record, noted_entries(audit, await self.notes.read()), labels)

    async def policy(self, model_name: str) -> PolicySeen:
        """Return what the page of a model's policy shows.

        Raises:
            NotRegistered: There is no such model.
            RegistryUnavailable, MigrationNeeded: As the stores.
        """
        registry = self.session.registry
        policy = (await registry.show_model(model_name)).policy
        versions = await registry.list_versions(model_name)
        open_rollout = None if policy is None else await open_rollout_of(self.session.rollouts, policy)
        shown = policy and noted_policy(policy, await self.notes.read())
        return PolicySeen(model_name, shown, versions, open_rollout)

    async def audit(self, model_name: str, wanted: AuditWanted) -> AuditSeen:
        """Return the newest changes of a model, and acts on its rollouts, that are like a filter says.

        Raises:
            NotRegistered: There is no such model.
            RegistryUnavailable, MigrationNeeded: As the stores.
        """
        registry = self.session.registry
        policy = (await registry.show_model(model_name)).policy
        entries: Sequence[AuditEntry] = ()
        if wanted.changes is not None:
            entries = await registry.list_audit(model_name, SHOWN + 1, wanted.subject, only=wanted.changes)
        acts: Sequence[RolloutAct] = ()
        if wanted.acts is not None:
            acts = await self.session.rollouts.acts(model_name, SHOWN + 1, wanted.acts)
        labels = {version.id: version.version for version in await registry.list_versions(model_name)}
        notes, generation = await self.notes.read(), 0 if policy is None else policy.generation
        named = [noted_act(act, notes) for act in acts]
        return AuditSeen(model_name, noted_entries(entries, notes), labels, generation, named)

    async def newest_rollout(self, model_name: str) -> int | None:
        """Return a model's newest rollout; ``None`` where it has none.

        Raises:
            RegistryUnavailable, MigrationNeeded: As the store.
        """
        newest = await self.session.rollouts.listing(model_name, 1)
        return newest[0].id if newest else None

    async def _tried_rollback(self, rollout: RolloutRecord, versions: Sequence[VersionRecord]) -> RollbackRecord | None:
        """Return what a rollback would do after a rollout whose champion is retired; ``None``: not asked, or not known.

        Of others it is not asked: the database looks for the way back under a lock of the policy.
        """
        state = rollout.state
        is_retired = any(one.version == state.champion and one.status == RETIRED for one in versions)
        if not state.phase.is_final or not is_retired:
            return None
        with suppress(RegistryError):
            actor = Actor("console", VIA_CONSOLE)
            return await self.session.rollouts.roll_back(state.model_name, actor, dry_run=True)
        return None

    def _reader(self, model_name: str, rollout_id: int) -> StatusReader:
        session, name = self.session, (model_name, rollout_id)
        reader = self._readers.pop(name, None)
        if reader is None:
            measure = session.measure_outcome
            # A page shows no past decisions beside this moment's: its charts, which do, read them by themselves.
            reader = StatusReader(session.rollouts, session.windows, measure, model_name, rollout_id, last_decisions=1)
        self._readers[name] = reader
        while len(self._readers) > MAX_READERS:
            self._readers.popitem(last=False)
        return reader

    async def _last_events(self, newest: Mapping[str, RolloutRecord]) -> _Events:
        """Return what happened last to open rollouts, and what a person did last to them."""
        ids = sorted((one.id for one in newest.values() if not one.state.phase.is_final), reverse=True)[:MAX_OPEN]
        found, acts = {}, {}
        for rollout_id in ids:
            events = await self.session.rollouts.events(rollout_id)
            if events:
                found[rollout_id] = events[-1]
            if by_people := [event for event in events if event.actor != MONITOR]:
                acts[rollout_id] = by_people[-1]
        return found, acts

    async def _is_unwatched(self, models: Sequence[ModelRecord], newest: Mapping[str, RolloutRecord]) -> bool:
        """Return whether something is open and no monitor has looked of late: one looks at all of them, or none."""
        served = (one.model_name for one in models if one.policy is not None)
        name = next((one for one in served if one in newest and not newest[one].state.phase.is_final), None)
        if name is None:
            return False
        seconds = (await self.session.rollouts.reach(name)).monitor_seconds
        return seconds is None or seconds > SILENT_SECONDS

    async def _changes(
        self, models: Sequence[ModelRecord], newest: Mapping[str, RolloutRecord], now: float, notes: Notes
    ) -> Mapping[str, AuditEntry]:
        """Return who gave each model its champion that answers with another than its newest rollout left."""
        overtaken = [
            one.model_name
            for one in models
            if one.policy and (last := newest.get(one.model_name)) and is_overtaken(last, one.policy, now)
        ]
        found = {}
        for name in overtaken[:MAX_OPEN]:
            change = champion_change(await self.session.registry.list_audit(name, AUDIT_ENTRIES, AuditSubject.POLICY))
            if change is not None:
                [found[name]] = noted_entries([change], notes)
        return found

    async def _hidden(self, newest: Mapping[str, RolloutRecord], now: float, notes: Notes) -> Mapping[str, str]:
        """Return the models that were taken back before a rollout or guard that began of late, in words."""
        if not any(now - one.state.started_at < NEWS_SECONDS for one in newest.values()):
            return {}
        of_late = AuditFilter(since=datetime.fromtimestamp(now - NEWS_SECONDS, UTC))
        changes: dict[str, list[AuditEntry]] = {}
        found = await self.session.registry.list_audit(None, NEWS, AuditSubject.POLICY, only=of_late)
        for entry in noted_entries(found, notes):
            changes.setdefault(entry.model_name or "", []).append(entry)
        told = {}
        for name, audit in changes.items():
            if name in newest and hidden_rollback(audit, newest[name].state, now, {}):
                labels = {version.id: version.version for version in await self.session.registry.list_versions(name)}
                told[name] = hidden_rollback(audit, newest[name].state, now, labels)
        return told

    async def _alerts(self) -> Mapping[str, set[AlertKind]]:
        found: dict[str, set[AlertKind]] = {}
        metrics, environment = self.session.metrics, self._parts.environment
        async with metrics.shared_session():
            for kind in _INCIDENTS:
                named = set(await metrics.open_incidents(kind, environment))
                named |= {model for model, _ in await metrics.open_incidents_of_versions(kind, environment)}
                for model_name in named:
                    found.setdefault(model_name, set()).add(kind)
        return found


def newest_of_models(
    found: Sequence[RolloutRecord | UnreadableRollout],
) -> tuple[dict[str, RolloutRecord], dict[str, UnreadableRollout]]:
    """Return the newest rollout of each model, those that this release cannot read apart."""
    newest: dict[str, RolloutRecord] = {}
    unreadable: dict[str, UnreadableRollout] = {}
    for one in found:
        if isinstance(one, UnreadableRollout):
            if one.model_name not in newest:
                unreadable.setdefault(one.model_name, one)
        elif one.state.model_name not in unreadable:
            newest.setdefault(one.state.model_name, one)
    return newest, unreadable
