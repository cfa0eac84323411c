"""A model's drift for reports, judged from the same hours and by the same rules as by the monitor."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from understudy.core.drift.baseline import Baselines, baselines_of
from understudy.core.drift.hours import HOUR_SECONDS, KEPT_SECONDS, SETTLE_SECONDS, closed_until
from understudy.core.drift.report import Drift, DriftState
from understudy.core.drift.subject_window import PREDICTION, SubjectWindow
from understudy.core.drift.version_drift import DriftRule, drift_rule_of, judge_version, model_drift
from understudy.core.durations import duration_words
from understudy.core.routing.policy import Role
from understudy.ports.monitoring.metric_store import ActiveVersion, MetricStore
from understudy.ports.registry.registry import Registry

_NO_BASELINES = Baselines(None, {})


class DriftQuestion(NamedTuple):
    """What a report is about."""

    model_name: str
    judged_seconds: float
    """How much of the time before now may be called a drift."""
    version: str | None = None
    """``None``: every version that is active."""
    policy: str | None = None
    """``default`` or ``seed``; ``None``: what each version's metrics ask for."""


class DriftVerdict(StrEnum):
    """What can be said of a version; the last three are neither good nor bad."""

    DRIFT = "drift"
    NONE = "none"
    TOO_EARLY = "too_early"
    NO_BASELINE = "no_baseline"
    NOT_ACTIVE = "not_active"


class SubjectView(NamedTuple):
    """A subject, and what is compared."""

    drift: Drift
    recent: Sequence[SubjectWindow]
    """The hours that its distance now is of."""


class VersionView(NamedTuple):
    """A version's drift."""

    version: str
    role: Role | None
    """``None`` for one that has none."""
    is_active: bool
    """Whether the monitor goes on summing it up."""
    summed_until: float | None
    """The end of the last hour that is summed up, in seconds since the epoch; ``None`` when there is none."""
    rule: DriftRule
    baselines: Baselines
    subjects: Sequence[SubjectView]

    @property
    def verdict(self) -> DriftVerdict:
        """What can be said of all its subjects: one that drifts is enough, and so is one that does not."""
        found = {subject.drift.state for subject in self.subjects}
        return next((verdict for state, verdict in _VERDICTS.items() if state in found), DriftVerdict.NO_BASELINE)

    @property
    def is_unseen(self) -> bool:
        """Whether nothing of it is in the hours that are judged, so that there is nothing to compare yet."""
        drifts = [subject.drift for subject in self.subjects]
        return all(drift.state is DriftState.TOO_EARLY and not drift.rows for drift in drifts)


class DriftView(NamedTuple):
    """A model's drift."""

    model_name: str
    until: float
    """The end of the last hour that is over, in seconds since the epoch."""
    judged_seconds: float
    versions: Sequence[VersionView]
    shared: Sequence[str]
    """For each subject that drifts alike in every version, the sentence that says so."""
    now: float
    """By Postgres' clock."""
    input_sample_percent: int | None = None
    """Of how many calls the inputs are logged; ``None`` without a policy."""

    @property
    def next_hour_at(self) -> float:
        """When the next hour is summed up, and judged from then on."""
        return self.until + HOUR_SECONDS + SETTLE_SECONDS

    @property
    def verdict(self) -> DriftVerdict:
        """What can be said of the model."""
        found = {one.verdict for one in self.versions}
        return next((verdict for verdict in _VERDICTS.values() if verdict in found), DriftVerdict.NOT_ACTIVE)

    @property
    def sentence(self) -> str:
        """The verdict in words, such as "v7: country drifts; no drift in v6"."""
        if not self.versions:
            return f"No version of {self.model_name} is active: there is nothing to judge."
        drifting = [f"v{one.version}: {_drifting_words(one)}" for one in self.versions if _drifting(one)]
        said = [
            f"{words} {_listed(same)}"
            for verdict, words in _OTHER_WORDS.items()
            if (same := [f"v{one.version}" for one in self.versions if one.verdict is verdict])
        ]
        sentence = "; ".join([*drifting, *said])
        return f"{sentence[0].upper() if not drifting else sentence[0]}{sentence[1:]}."


_VERDICTS = {
    DriftState.DRIFT: DriftVerdict.DRIFT,
    DriftState.OK: DriftVerdict.NONE,
    DriftState.TOO_EARLY: DriftVerdict.TOO_EARLY,
    DriftState.NO_BASELINE: DriftVerdict.NO_BASELINE,
}
"""The first of them that is there decides."""
_OTHER_WORDS = {
    DriftVerdict.NONE: "no drift in",
    DriftVerdict.TOO_EARLY: "too early to say anything of",
    DriftVerdict.NO_BASELINE: "no baseline of",
}


class _Asked(NamedTuple):
    id: int
    version: str
    active: ActiveVersion | None


def judged_seconds_since(since: float, now: float) -> float:
    """Return how much of the time before now may be called a drift, for a report from a moment on: an hour at least.

    Raises:
        ValueError: The hours of then are deleted; the message says how long they are kept.
    """
    if now - since > KEPT_SECONDS:
        raise ValueError(f"hours are kept for {duration_words(KEPT_SECONDS)}")
    return max(now - since, HOUR_SECONDS)


async def view_drift(store: MetricStore, registry: Registry, question: DriftQuestion) -> DriftView:
    """Return the drift of a model's active versions, or of one version.

    Raises:
        NotRegistered: There is no such model or version.
        RegistryUnavailable, MigrationNeeded: As the store.
    """
    policy = (await registry.show_model(question.model_name)).policy
    active = await store.active(question.model_name)
    until = closed_until(active.now)
    by_version = {one.version: one for one in active.versions}
    if question.version is None:
        asked = [_Asked(one.id, one.version, one) for one in active.versions]
    else:
        record = await registry.show_version(question.model_name, question.version)
        asked = [_Asked(record.id, record.version, by_version.get(record.version))]
    versions = [await _view(store, one, question, until) for one in asked]
    found = model_drift({one.version: [subject.drift for subject in one.subjects] for one in versions})
    percent = None if policy is None else policy.input_sample_percent
    return DriftView(question.model_name, until, question.judged_seconds, versions, found.shared, active.now, percent)


async def _view(store: MetricStore, asked: _Asked, question: DriftQuestion, until: float) -> VersionView:
    facts = await store.drift_facts(asked.id, until - KEPT_SECONDS)
    metrics = _with_policy(facts.metrics, question.policy)
    drifts = await asyncio.to_thread(
        partial(judge_version, metrics, facts.hours, until, judged_seconds=question.judged_seconds)
    )
    rule, baselines = _readable(metrics)
    return VersionView(
        version=asked.version,
        role=None if asked.active is None else asked.active.role,
        is_active=asked.active is not None,
        summed_until=_last_hour(facts.hours) if asked.active is None else asked.active.summed_until,
        rule=rule,
        baselines=baselines,
        subjects=[SubjectView(drift, _recent(drift, facts.hours.get(drift.subject, ()), rule)) for drift in drifts],
    )


def _with_policy(metrics: Any, policy: str | None) -> Any:
    """Return the metrics with another rule; what is no object is judged, and refused, as it is."""
    if policy is None or (metrics is not None and not isinstance(metrics, Mapping)):
        return metrics
    return {**(metrics or {}), "drift_policy": policy}


def _readable(metrics: Any) -> tuple[DriftRule, Baselines]:
    """Return rule and baselines; of metrics that :func:`judge_version` finds fault with, none."""
    try:
        return drift_rule_of(metrics), baselines_of(metrics)
    except ValueError:
        return DriftRule(), _NO_BASELINES


def _recent(drift: Drift, hours: Sequence[SubjectWindow], rule: DriftRule) -> list[SubjectWindow]:
    """Return the hours that the readings are of: since the drift began, else the most recent ones."""
    judged = set(drift.history_seconds)
    used = [hour for hour in hours if hour.start_seconds in judged]
    if drift.since_seconds is not None:
        return [hour for hour in used if hour.start_seconds >= drift.since_seconds]
    is_all = rule.is_reference and drift.subject == PREDICTION
    return used if is_all else used[-rule.policy.recent_windows :]


def _last_hour(hours: Mapping[str, Sequence[SubjectWindow]]) -> float | None:
    ends = [kept[-1].start_seconds + HOUR_SECONDS for kept in hours.values() if kept]
    return max(ends, default=None)


def _drifting(view: VersionView) -> list[str]:
    return [subject.drift.subject for subject in view.subjects if subject.drift.state is DriftState.DRIFT]


def _drifting_words(view: VersionView) -> str:
    found = _drifting(view)
    return f"{_listed(found)} {'drifts' if len(found) == 1 else 'drift'}"


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
