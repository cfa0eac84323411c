"""A version's drift rule (default or reference), its judgement of all subjects, and the model's drift as a whole."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from understudy.core.drift.baseline import Baseline, NumericBaseline, baselines_of
from understudy.core.drift.detector import judge_drift
from understudy.core.drift.hours import JUDGED_SECONDS, KEPT_SECONDS, MAX_SUBJECT
from understudy.core.drift.limits import DEFAULT_POLICY, DriftPolicy
from understudy.core.drift.reference_rule import REFERENCE_POLICY, judge_by_reference_rule
from understudy.core.drift.report import Drift, DriftState
from understudy.core.drift.subject_window import CLASSES, PREDICTION, SubjectWindow, input_subject, skewed_feature

REFERENCE_SECONDS = 86_400.0
"""What "recent" is for the reference rule, which does not say."""
MAX_INPUTS = 100
"""Inputs of a version that have baselines and are looked at, the first ones by name: each is a histogram in its row."""

CLASS_LIMIT_RATIO = 0.02
"""Two points, as of nulls: a class of 30 % has a standard deviation of 0.46, of which that is 0.04."""
_SAME_SIZE = 2.0
"""Distances of two versions up to this many times each other count as the same drift."""
_LIMITS = tuple(field.name for field in fields(DriftPolicy))


class DriftRule(NamedTuple):
    """What ``ModelVersion.metrics["drift_policy"]`` asks for."""

    policy: DriftPolicy = DEFAULT_POLICY
    is_reference: bool = False
    """Whether the predictions are judged by the reference rule, which does not look at inputs."""


class ModelDrift(NamedTuple):
    """The drift of a model's versions, by their text."""

    drifts: Mapping[str, Sequence[Drift]]
    shared: Sequence[str]
    """For each subject that drifts alike in every version, the sentence that says so."""

    def drifting(self, versions: Iterable[str]) -> dict[str, list[Drift]]:
        """Return the drifts that were found, of these versions that have any."""
        found = {version: self._found(version) for version in versions}
        return {version: drifts for version, drifts in found.items() if drifts}

    def _found(self, version: str) -> list[Drift]:
        return [drift for drift in self.drifts.get(version, ()) if drift.state is DriftState.DRIFT]


def drift_rule_of(metrics: Mapping[str, Any] | None) -> DriftRule:
    """Return the rule of a version: ``"default"``, ``"seed"``, or an object with the limits that differ.

    Raises:
        ValueError: Naming what cannot be used.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ValueError(f"expected an object, got {metrics!r}")
    asked = (metrics or {}).get("drift_policy", "default")
    if asked in ("default", REFERENCE_POLICY):
        return DriftRule(is_reference=asked == REFERENCE_POLICY)
    if not isinstance(asked, Mapping):
        raise ValueError(f"drift_policy: expected 'default', 'seed' or an object with limits, got {asked!r}")  # noqa: TRY004 - one kind of error for a bad document
    if unknown := sorted(asked.keys() - set(_LIMITS)):
        raise ValueError(f"drift_policy.{unknown[0]}: no such limit; there are: {', '.join(_LIMITS)}")
    if wrong := [name for name, value in asked.items() if type(value) not in (int, float)]:
        raise ValueError(f"drift_policy.{wrong[0]}: expected a number, got {asked[wrong[0]]!r}")
    return DriftRule(DriftPolicy(**asked))


def judged_inputs(metrics: Mapping[str, Any] | None) -> dict[str, Baseline]:
    """Return the baselines of those inputs that a version's drift rule judges, by name.

    None of metrics that cannot be read, of which :func:`judge_version` says what is wrong with them.
    """
    try:
        drift_rule_of(metrics)
        baselines = baselines_of(metrics).inputs
    except ValueError:
        return {}
    fitting = sorted(name for name in baselines if len(input_subject(name)) <= MAX_SUBJECT)
    return {name: baselines[name] for name in fitting[:MAX_INPUTS]}


def judge_version(
    metrics: Mapping[str, Any] | None,
    hours: Mapping[str, Sequence[SubjectWindow]],
    until: float,
    *,
    only: Collection[str] | None = None,
    judged_seconds: float = JUDGED_SECONDS,
) -> tuple[Drift, ...]:
    """Return what is to be said of a version's subjects: its predictions first, then its inputs by name.

    Args:
        metrics: The version's, with its baselines and its rule. One that cannot be read is said to be none, with the
            field that is wrong.
        hours: By subject, oldest first. Subjects of which there is neither a baseline nor an hour are not looked at.
        until: The end of the last closed hour, in seconds since the epoch.
        only: The subjects that are looked at, all by default. Metrics that cannot be read are told in any case.
        judged_seconds: How much of the time before may be called a drift.
    """
    try:
        rule, baselines = drift_rule_of(metrics), baselines_of(metrics)
    except ValueError as problem:
        return (
            Drift(
                PREDICTION,
                DriftState.NO_BASELINE,
                f"{PREDICTION}: the metrics of the version cannot be used: {problem}.",
            ),
        )
    recent = {
        subject: [hour for hour in kept if hour.start_seconds >= until - KEPT_SECONDS]
        for subject, kept in hours.items()
        if skewed_feature(subject) is None
    }
    inputs: dict[str, Baseline] = {input_subject(name): baseline for name, baseline in baselines.inputs.items()}
    if baselines.classes is not None:
        inputs[CLASSES] = baselines.classes
    predictions = recent.pop(PREDICTION, [])
    judged_from = until - judged_seconds
    found = [
        _judge_input(
            name,
            inputs.get(name),
            recent.get(name, ()),
            class_policy(rule.policy) if name == CLASSES else rule.policy,
            judged_from,
        )
        for name in sorted({*inputs, *recent})
        if only is None or name in only
    ]
    if only is not None and PREDICTION not in only:
        return tuple(found)
    if rule.is_reference and isinstance(baselines.prediction, NumericBaseline):
        of_today = [hour for hour in predictions if hour.start_seconds >= until - REFERENCE_SECONDS]
        first = judge_by_reference_rule(PREDICTION, baselines.prediction, of_today)
    else:
        first = judge_drift(PREDICTION, baselines.prediction, predictions, rule.policy, judged_from)
    return first, *found


def class_policy(policy: DriftPolicy) -> DriftPolicy:
    """Return the limits that classes are judged by: each one's share, by points."""
    limit = CLASS_LIMIT_RATIO if policy.shares_limit_ratio is None else policy.shares_limit_ratio
    return replace(policy, shares_limit_ratio=limit)


def _judge_input(
    subject: str,
    baseline: Baseline | None,
    hours: Sequence[SubjectWindow],
    policy: DriftPolicy,
    judged_from_seconds: float,
) -> Drift:
    """Judge an input by those hours that were summed up as what its baseline is: numbers or categories."""
    is_numeric = isinstance(baseline, NumericBaseline)
    alike = [hour for hour in hours if bool(hour.bucket_sums) is is_numeric]
    return judge_drift(subject, baseline, alike, policy, judged_from_seconds)


def model_drift(drifts: Mapping[str, Sequence[Drift]]) -> ModelDrift:
    """Return the drift of a model from that of its versions."""
    subjects = dict.fromkeys(drift.subject for found in drifts.values() for drift in found)
    said = [same_drift_everywhere(_by_version(drifts, subject)) for subject in subjects]
    return ModelDrift(drifts, [sentence for sentence in said if sentence])


def _by_version(drifts: Mapping[str, Sequence[Drift]], subject: str) -> dict[str, Drift]:
    return {version: drift for version, found in drifts.items() for drift in found if drift.subject == subject}


def same_drift_everywhere(drifts: Mapping[str, Drift]) -> str:
    """Say that the input moved and not the model, when every version shows the same drift of a subject.

    Args:
        drifts: One subject's drift by version. Versions of which nothing can be said yet are left out.

    Returns:
        The sentence, or nothing when fewer than two versions drift, one does not, or they drift apart: in another
        direction, or one more than twice as far as another.
    """
    told = {version: drift for version, drift in drifts.items() if drift.shown is not None}
    if len(told) <= 1 or any(drift.state is not DriftState.DRIFT for drift in told.values()):
        return ""
    measure = next(drift.shown.measure for drift in told.values() if drift.shown is not None)
    distances = [
        reading.distance for drift in told.values() for reading in drift.readings if reading.measure is measure
    ]
    is_same_size = len(distances) == len(told) and max(distances) <= _SAME_SIZE * min(distances)
    if not is_same_size or len({drift.direction for drift in told.values()}) > 1:
        return ""
    *most, last = (f"v{version}" for version in told)
    return f"Same drift in {', '.join(most)} and {last}: the input moved, not the model."
