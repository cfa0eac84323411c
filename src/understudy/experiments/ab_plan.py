"""Plans an A/B test: how large it has to be, and how long that takes at today's traffic."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.statistics.difference import compare
from understudy.core.statistics.sample_size import (
    ALPHA,
    Effect,
    ReferenceSampleSize,
    entities_per_arm,
    look_fractions,
    reference_sample_size,
    relative_change,
    sample_inflation_ratio,
    when_known,
)
from understudy.errors import NotRegistered
from understudy.experiments.attribution import Period, arms_of, shares_of
from understudy.experiments.declared_rows import declared_plan_from_json
from understudy.experiments.declared_tests import MetricChoice, Plan, Wanted
from understudy.ports.experiments.experiment_log import Allocation, EntityGroups, EntityQuery, ExperimentLog

DAY_SECONDS = 86_400.0
TRAFFIC_DAYS = 14.0
"""How far back traffic and the champion's figures are looked at: two whole weeks, since weekdays differ."""
_ALL_PERCENT = 100


class PlanQuestion(NamedTuple):
    """What a test is to see."""

    model_name: str
    metric: str | None
    """``None``: the metric has no data yet; its standard deviation is taken to be its mean, as seed 003 does."""
    wanted: Wanted
    choice: MetricChoice
    looks: int
    now: float
    version_id: int | None = None
    """Who is compared with the champion; ``None``: the challenger."""


class Baseline(NamedTuple):
    """The champion's own figures of late."""

    gap: str
    """Why there are none, in words; the first three figures are then 0."""
    entities: int
    """With their time for outcomes over."""
    value: float
    variance: float
    """Of one entity's contribution."""
    is_share: bool
    entities_per_day: float
    """Of all versions; those that came again are counted once."""
    share_b: float
    """The challenger's share (0-1) today, or that of the arm that is compared."""
    share_a: float
    """The champion's."""


class AbSizes(NamedTuple):
    """The size of a test."""

    baseline: Baseline
    wanted: Wanted
    difference: float
    one_look: int
    """Entities that each of two equal arms needs when there is one look, at the end."""
    with_looks: int
    looks: int
    days_even: int | None
    """Until the answer is known if half of the entities meet the challenger; ``None`` for never, as things are."""
    days_today: int | None
    """The same at today's weight; ``None`` also when that is 0 or 100."""
    seed: ReferenceSampleSize | None
    """What seed 003 says, for a relative change."""
    beside: tuple[int, ...] = ()
    """Other versions that share the calls with the champion, and so alpha with this test."""


async def plan_ab(log: ExperimentLog, question: PlanQuestion) -> AbSizes:
    """Return the size of a test, and the days that it takes.

    Raises:
        NotRegistered: The model has no policy.
        RegistryUnavailable, MigrationNeeded: As the log.
        ValueError: If the difference is zero, or not relative while nothing is known of the metric.
    """
    allocations = await log.allocations(question.model_name)
    baseline = await _baseline(log, question, allocations)
    effect = effect_of(question.wanted, baseline)
    beside = versions_beside(allocations, question.version_id)
    one_look = entities_per_arm(effect, alpha=ALPHA / (1 + len(beside)))
    inflation = planned_inflation(effect, question.looks, 1 + len(beside))
    shares = baseline.share_a, baseline.share_b
    return AbSizes(
        baseline=baseline,
        wanted=question.wanted,
        difference=effect.difference,
        one_look=one_look,
        with_looks=_inflated(one_look, question.looks, 1 + len(beside)),
        looks=question.looks,
        days_even=_days(effect, baseline, (0.5, 0.5), inflation),
        days_today=_days(effect, baseline, shares, inflation) if all(shares) else None,
        seed=reference_sample_size(question.wanted.amount) if question.wanted.is_relative else None,
        beside=beside,
    )


async def plan_to_declare(log: ExperimentLog, question: PlanQuestion) -> Plan:
    """Return the plan of a test.

    Raises:
        ValueError: If nothing is known of the metric yet, or the plan leaves the bounds within which it could be read
            again; the rest as :func:`plan_ab`.
    """
    sizes = await plan_ab(log, question)
    if sizes.baseline.gap:
        raise ValueError(sizes.baseline.gap)
    plan = Plan(
        question.wanted,
        question.choice,
        sizes.baseline.is_share,
        sizes.difference,
        sizes.with_looks,
        question.looks,
        beside=sizes.beside,
    )
    return declared_plan_from_json(plan.to_json())


def effect_of(wanted: Wanted, baseline: Baseline) -> Effect:
    """Return what is to be seen, in the metric's own unit; with nothing known of that in units of its mean.

    Raises:
        ValueError: If nothing is known and the change is not relative.
    """
    if baseline.gap:
        if not wanted.is_relative:
            raise ValueError(baseline.gap)
        return relative_change(wanted.amount)
    return Effect(wanted.difference(baseline.value), baseline.variance, baseline.variance)


def versions_beside(allocations: Sequence[Allocation], version_id: int | None) -> tuple[int, ...]:
    """Return the versions beside a planned A/B test: they get calls now, but are neither champion nor compared.

    Args:
        allocations: Of the model's policy; the last one is today's.
        version_id: Who is compared with the champion; ``None`` stands for the challenger.
    """
    if not allocations:
        return ()
    latest = allocations[-1]
    compared = latest.challenger_id if version_id is None else version_id
    return tuple(other for other in sorted(shares_of(latest)) if other not in (latest.champion_id, compared))


def planned_inflation(effect: Effect, looks: int, comparisons: int) -> float:
    """Return by which ratio a planned A/B test needs more entities than one with a single look and the whole alpha."""
    alpha = ALPHA / comparisons
    smaller_alpha = entities_per_arm(effect, alpha=alpha) / entities_per_arm(effect) if comparisons > 1 else 1.0
    return smaller_alpha * sample_inflation_ratio(look_fractions(looks), alpha)


def _inflated(one_look: int, looks: int, comparisons: int) -> int:
    if looks == 1:
        return one_look
    return round(one_look * sample_inflation_ratio(look_fractions(looks), ALPHA / comparisons))


def _days(effect: Effect, baseline: Baseline, shares: tuple[float, float], inflation: float) -> int | None:
    daily = shares[0] * baseline.entities_per_day, shares[1] * baseline.entities_per_day
    return when_known(effect, "", (0, 0), daily, inflation).days


async def _baseline(log: ExperimentLog, question: PlanQuestion, allocations: Sequence[Allocation]) -> Baseline:
    champion_id = allocations[-1].champion_id if allocations else None
    if champion_id is None:
        raise NotRegistered(
            f"{question.model_name} has no policy, so its versions get no traffic",
            hint="understudy model list shows the models that are served.",
        )
    metric, within = question.metric or "", question.choice.within_seconds
    since = max(question.now - TRAFFIC_DAYS * DAY_SECONDS - within, allocations[0].since)
    facts = await log.outcome_facts(question.model_name, metric, since, question.now)
    generations = tuple(row.generation for row in allocations if row.champion_id == champion_id)
    found = await log.entities(
        EntityQuery(
            model_name=question.model_name,
            metric=metric,
            champion_id=champion_id,
            challenger_id=None,
            epochs=dict.fromkeys(generations, 0),
            since=since,
            until=question.now,
            within_seconds=within,
            is_share=facts.is_share and not question.choice.per_call,
            per_call=question.choice.per_call,
        )
    )
    latest = allocations[-1]
    version_id = latest.challenger_id if question.version_id is None else question.version_id
    share_b = 0 if version_id is None else (latest.percent_of(version_id) or 0) / _ALL_PERCENT
    share_a = latest.champion_percent / _ALL_PERCENT
    per_day = _entities_per_day(found, question.now - since, share_a)
    unknown = Baseline("", 0, 0.0, 0.0, facts.is_share, per_day, share_b, share_a)
    if question.metric is None:
        return unknown._replace(gap="no metric was named")
    if not facts.events:
        return unknown._replace(gap=no_outcomes_sentence(question.model_name, metric, facts.known_names))
    arm, _ = arms_of(found.groups, [Period(since, 0.5, generations)])
    alike = compare(arm, arm)
    if alike is None or not alike.value_a or not alike.variance_a:
        return unknown._replace(gap=f"{metric} differs between no two of {len(arm.numerator):,} entities so far")
    return unknown._replace(entities=len(arm.numerator), value=alike.value_a, variance=alike.variance_a)


def _entities_per_day(found: EntityGroups, seconds: float, share_a: float) -> float:
    """Return how many entities of all versions come a day, from those that met the champion."""
    if not found.entities or share_a <= 0:
        return 0.0
    met = sum(group.entities for group in found.groups) * found.total / found.entities
    return met / (max(seconds, 1.0) / DAY_SECONDS) / share_a


def no_outcomes_sentence(model_name: str, metric: str, known_names: Sequence[str]) -> str:
    """Return what a plan, or an A/B report, says of a metric that has no outcomes."""
    there_are = ", ".join(known_names) or "none at all"
    return f"no outcomes of {model_name} named {metric!r} are known in this time; there are: {there_are}"
