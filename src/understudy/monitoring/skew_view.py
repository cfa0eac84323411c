"""A model's training/serving skew for reports, judged from the monitor's hours, beside the training profile."""

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from understudy.core.drift.hours import HOUR_SECONDS, KEPT_SECONDS, closed_until
from understudy.core.drift.report import Drift, DriftState
from understudy.core.drift.skew.judgement import JUDGED_SECONDS, FeatureSkew, judge_skews
from understudy.core.drift.subject_window import input_subject, skewed_feature
from understudy.core.drift.version_drift import judge_version
from understudy.core.durations import duration_words
from understudy.core.routing.policy import Role
from understudy.ports.monitoring.metric_store import ActiveVersion, DriftFacts, MetricStore
from understudy.ports.registry.registry import Registry


class SkewVerdict(StrEnum):
    """What can be said of a version or a model; the last two are neither good nor bad."""

    SKEW = "skew"
    NONE = "none"
    TOO_EARLY = "too_early"
    NOT_COMPARED = "not_compared"
    """No call of it was compared with a feature store."""


class FeatureView(NamedTuple):
    """A feature as it is served, beside the feature store and beside the training profile."""

    skew: FeatureSkew
    training: Drift | None
    """From its baseline; ``None`` where there is none to compare with."""


class VersionSkew(NamedTuple):
    """A version's features."""

    version: str
    role: Role | None
    features: Sequence[FeatureView]
    compared_until: float | None = None
    """End of the newest hour of which a call was compared; ``None`` where none ever was."""

    @property
    def verdict(self) -> SkewVerdict:
        """One feature that is skewed is enough, and so is one that is not."""
        found = {_VERDICTS[one.skew.drift.state] for one in self.features}
        return next((verdict for verdict in SkewVerdict if verdict in found), SkewVerdict.NOT_COMPARED)


class SkewView(NamedTuple):
    """A model's versions that answer."""

    model_name: str
    now: float
    """By Postgres' clock."""
    versions: Sequence[VersionSkew]
    input_sample_percent: int | None = None
    """Of how many calls the inputs are logged; ``None`` without a policy."""
    judged_seconds: float = JUDGED_SECONDS

    @property
    def compared_until(self) -> float | None:
        """End of the newest hour of which a call was compared, of any version; ``None`` where none ever was."""
        return max((one.compared_until for one in self.versions if one.compared_until is not None), default=None)

    @property
    def is_old(self) -> bool:
        """Whether it is of calls of an hour ago and more: the store does not answer, or no monitor asks it."""
        return self.compared_until is not None and self.now - self.compared_until >= HOUR_SECONDS

    @property
    def verdict(self) -> SkewVerdict:
        """What can be said of the model."""
        found = {one.verdict for one in self.versions}
        return next((verdict for verdict in SkewVerdict if verdict in found), SkewVerdict.NOT_COMPARED)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        skewed = [
            f"v{one.version}: {', '.join(view.skew.feature for view in one.features if view.skew.is_skewed)}"
            for one in self.versions
            if one.verdict is SkewVerdict.SKEW
        ]
        said = f"Served unlike the feature store: {'; '.join(skewed)}." if skewed else _SENTENCES[self.verdict]
        if not self.is_old or self.compared_until is None:
            return said
        return f"{said} No call of the last {duration_words(self.now - self.compared_until)} was compared."


_VERDICTS = {
    DriftState.DRIFT: SkewVerdict.SKEW,
    DriftState.OK: SkewVerdict.NONE,
    DriftState.TOO_EARLY: SkewVerdict.TOO_EARLY,
    DriftState.NO_BASELINE: SkewVerdict.NOT_COMPARED,
}
_SENTENCES = {
    SkewVerdict.NONE: "All features are served as the feature store has them.",
    SkewVerdict.TOO_EARLY: "Too early: too few calls were compared with the feature store.",
    SkewVerdict.NOT_COMPARED: "No call was compared with a feature store.",
}


async def view_skew(store: MetricStore, registry: Registry, model_name: str, version: str | None = None) -> SkewView:
    """Return the skew of a model's versions that answer, or of one of them.

    Raises:
        NotRegistered: There is no such model or version.
        RegistryUnavailable, MigrationNeeded: As the store.
    """
    policy = (await registry.show_model(model_name)).policy
    if version is not None:
        await registry.show_version(model_name, version)
    active = await store.active(model_name)
    asked = [one for one in active.versions if version in (None, one.version) and one.role is not Role.SHADOW]
    versions = [await _view(store, one, active.now) for one in asked]
    percent = None if policy is None else policy.input_sample_percent
    return SkewView(model_name, active.now, versions, percent)


async def _view(store: MetricStore, version: ActiveVersion, now: float) -> VersionSkew:
    facts = await store.drift_facts(version.id, closed_until(now) - KEPT_SECONDS)
    skews, training = await to_thread(partial(_judged, facts, now))
    features = [FeatureView(skew, training.get(input_subject(skew.feature))) for skew in skews]
    hours = [hour for subject, hours in facts.hours.items() if skewed_feature(subject) for hour in hours]
    until = max((hour.start_seconds + HOUR_SECONDS for hour in hours), default=None)
    return VersionSkew(version.version, version.role, features, until)


def _judged(facts: DriftFacts, now: float) -> tuple[Sequence[FeatureSkew], Mapping[str, Drift]]:
    skews = judge_skews(facts.hours, now)
    asked = {input_subject(skew.feature) for skew in skews}
    drifts = judge_version(facts.metrics, facts.hours, closed_until(now), only=asked)
    return skews, {drift.subject: drift for drift in drifts if drift.state is not DriftState.NO_BASELINE}
