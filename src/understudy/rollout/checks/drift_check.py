"""Drift of the challengers of open rollouts beside the champion on the same hours, judged once for each hour."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from shlex import quote
from typing import Any

from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.core.canary.challenger_drift import drift_reason
from understudy.core.drift.beside_champion import BesideChampion, judge_beside_champion
from understudy.core.drift.hours import HOUR_SECONDS, JUDGED_SECONDS, closed_until
from understudy.core.drift.limits import DriftPolicy
from understudy.core.drift.subject_window import CLASSES, OF_ANSWERS, PREDICTION, input_subject
from understudy.core.drift.version_drift import class_policy, drift_rule_of, judged_inputs
from understudy.core.rollout.state import DriftMode
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.metric_store import DriftFacts, MetricStore
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutStore, RolloutView
from understudy.rollout.analysis import policy_of
from understudy.rollout.checks.each_by_itself import EachByItself

SUBJECTS_AT_ONCE = 10
"""Of a rollout in a tick; the next one goes on."""


@dataclass
class _Round:
    """What is known of a rollout's challenger as of the end of an hour."""

    until: float
    left: list[str]
    """Subjects that are still to be compared."""
    subjects: int
    policy: DriftPolicy
    found: list[BesideChampion] = field(default_factory=list)


class DriftCheck:
    """Keeps how each challenger drifts, and alerts where the policy says that it does no more.

    Args:
        store: The rollouts.
        metrics: The hours of each version.
        environment: Named in alerts.
    """

    def __init__(self, store: RolloutStore, metrics: MetricStore, *, environment: str) -> None:
        self._store = store
        self._metrics = metrics
        self._environment = environment
        self._rounds: dict[int, _Round] = {}
        self._latest: dict[int, tuple[BesideChampion, ...]] = {}
        self._watched: dict[int, tuple[str, str]] = {}
        """The model and the challenger of each open rollout."""
        self._asked_in: Epoch | None = None
        """In which epoch the outbox was asked for the alerts of earlier leaders."""

    def latest(self, rollout_id: int) -> Sequence[BesideChampion]:
        """Return what drifted by the newest hour that was judged; nothing while none was."""
        return self._latest.get(rollout_id, ())

    async def tick(self, epoch: Epoch) -> None:
        """Compare the next subjects of each open rollout.

        Raises:
            Exception: The last failure, once all were looked at; a rollout that failed keeps what was found.
        """
        open_ids = set(await self._store.open_ids())
        before = set(self._watched.values())
        self._forget_others(open_ids)
        each = EachByItself()
        now = 0.0
        for rollout_id in sorted(open_ids):
            with each.one():
                view = await self._store.view(rollout_id)
                now = view.read_at
                self._watched[rollout_id] = view.record.state.model_name, view.record.state.challenger
                await self._look(view, epoch)
        each.end()
        await self._end_gone(before, now, epoch)

    async def _look(self, view: RolloutView, epoch: Epoch) -> None:
        record, state = view.record, view.record.state
        if not state.step_starts or state.promoted_at is not None or state.phase.is_final:
            return
        since = ceil(state.step_starts[0] / HOUR_SECONDS) * HOUR_SECONDS
        current = self._rounds.get(record.id)
        judged_until = since if current is None or current.left else current.until
        if closed_until(view.read_at) <= judged_until:
            return
        until = await self._summed_until(view)
        if until <= judged_until:
            return
        if current is None or not current.left:
            current = self._rounds[record.id] = await self._begin(view, until)
        subjects = current.left[:SUBJECTS_AT_ONCE]
        from_hour = max(since, current.until - JUDGED_SECONDS)
        a, b = [
            await self._metrics.drift_facts(version_id, from_hour, subjects)
            for version_id in (record.champion_id, record.challenger_id)
        ]
        alpha = policy_of(view).alpha / max(current.subjects, 1)
        current.found += await asyncio.to_thread(
            partial(_judged, subjects, a, b, current.policy, alpha=alpha, since=since, until=current.until)
        )
        current.left = current.left[SUBJECTS_AT_ONCE:]
        if not current.left:
            self._latest[record.id] = tuple(current.found)
            await self._tell(view, epoch)

    async def _summed_until(self, view: RolloutView) -> float:
        """Return the end of the last hour that both versions are summed up to."""
        record = view.record
        active = await self._metrics.active(record.state.model_name)
        ends = {one.id: one.summed_until or 0.0 for one in active.versions}
        both = (ends.get(version_id, 0.0) for version_id in (record.champion_id, record.challenger_id))
        return min(closed_until(view.read_at), *both)

    async def _begin(self, view: RolloutView, until: float) -> _Round:
        record = view.record
        a, b = [
            (await self._metrics.drift_facts(version_id, until, [])).metrics
            for version_id in (record.champion_id, record.challenger_id)
        ]
        inputs = sorted(judged_inputs(a).keys() & judged_inputs(b).keys())
        answers = [] if record.state.plan.expect_different_scores else await self._answers_of(record)
        subjects = [*answers, *map(input_subject, inputs)]
        return _Round(until, subjects, len(subjects), _limits_of(b))

    async def _answers_of(self, record: RolloutRecord) -> Sequence[str]:
        """Return the subjects of the versions' answers; classes beside the champion's need no baseline."""
        active = await self._metrics.active(record.state.model_name)
        with_classes = {one.id for one in active.versions if one.has_classes}
        return OF_ANSWERS if {record.champion_id, record.challenger_id} <= with_classes else (PREDICTION,)

    async def _tell(self, view: RolloutView, epoch: Epoch) -> None:
        """Alert, or tell that it is over; what takes a challenger back is alerted with the rollback."""
        found = self.latest(view.record.id)
        if found and view.on_drift is DriftMode.ALERT:
            await self._metrics.tell_drift([], self._triggered(view, found), epoch=epoch)
        elif not found:
            state = view.record.state
            over = self._resolved(state.model_name, state.challenger, view.read_at)
            await self._metrics.tell_drift([], over, epoch=epoch)

    async def _end_gone(self, before: set[tuple[str, str]], now: float, epoch: Epoch) -> None:
        """End the incidents of rollouts that are over, also of those that an earlier leader alerted."""
        if self._asked_in != epoch:
            before |= set(await self._metrics.open_incidents_of_versions(AlertKind.DRIFT, self._environment))
        for model_name, version in before - set(self._watched.values()):
            await self._metrics.tell_drift([], self._resolved(model_name, version, now), epoch=epoch)
        self._asked_in = epoch

    def _forget_others(self, open_ids: set[int]) -> None:
        self._watched = {rollout_id: kept for rollout_id, kept in self._watched.items() if rollout_id in open_ids}
        self._rounds = {rollout_id: kept for rollout_id, kept in self._rounds.items() if rollout_id in open_ids}
        self._latest = {rollout_id: kept for rollout_id, kept in self._latest.items() if rollout_id in open_ids}

    def _triggered(self, view: RolloutView, found: Sequence[BesideChampion]) -> AlertEvent:
        record, state = view.record, view.record.state
        summary = (
            f"{state.model_name}: version {state.challenger} {drift_reason(found)}; on_drift = alert changes nothing"
        )
        details: dict[str, Any] = {
            "rollout": record.id,
            "champion": state.champion,
            "challenger": state.challenger,
            "drift": [one.to_json() for one in found],
            "next": f"understudy rollout show {quote(state.model_name)} {record.id}",
        }
        return self._event(AlertAction.TRIGGER, state.model_name, state.challenger, summary, view.read_at, details)

    def _resolved(self, model_name: str, version: str, now: float) -> AlertEvent:
        summary = f"{model_name}: version {version} is not known to drift from the champion any more"
        return self._event(AlertAction.RESOLVE, model_name, version, summary, now, {})

    def _event(  # noqa: PLR0917 - as the event's own fields
        self, action: AlertAction, model: str, version: str, summary: str, now: float, details: Mapping[str, Any]
    ) -> AlertEvent:
        return AlertEvent(action, AlertKind.DRIFT, self._environment, model, summary, now, details, version=version)


def _limits_of(metrics: Mapping[str, Any] | None) -> DriftPolicy:
    """Return the limits of a version; the usual ones where its metrics cannot be read."""
    try:
        return drift_rule_of(metrics).policy
    except ValueError:
        return DriftPolicy()


def _judged(
    subjects: Sequence[str],
    champion: DriftFacts,
    challenger: DriftFacts,
    policy: DriftPolicy,
    *,
    alpha: float,
    since: float,
    until: float,
) -> list[BesideChampion]:
    found = []
    for subject in subjects:
        sides = [
            [hour for hour in facts.hours.get(subject, ()) if hour.start_seconds < until]
            for facts in (champion, challenger)
        ]
        limits = class_policy(policy) if subject == CLASSES else policy
        one = judge_beside_champion(subject, sides[0], sides[1], limits, alpha=alpha, since=since)
        found += [] if one is None else [one]
    return found
