"""The intervals of an A/B report that hold at any moment, now and over time."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.experiments.ab import AbPlan, Interval
from understudy.core.statistics.difference import Difference, compare
from understudy.core.statistics.sample_size import Effect, always_valid_boundary, entities_per_arm
from understudy.experiments.attribution import Period, arms_of
from understudy.experiments.declared_tests import Wanted
from understudy.ports.experiments.experiment_log import EntityGroup, EntityQuery

SLICES = 24
"""Points of the interval over time."""
_ANY_SIZE = 1_000
"""Of a plan that is only asked what is missing before anything can be said."""


class IntervalAt(NamedTuple):
    """What was known at some time of entry."""

    at: float
    """Seconds since the epoch."""
    difference: float
    low: float
    high: float


def usual_plan(difference: Difference | None, wanted: Wanted) -> AbPlan:
    """Return the plan that an interval is drawn for where none was declared."""
    amount = 0.0 if difference is None else wanted.difference(difference.value_a)
    if difference is None or not amount:
        return AbPlan(_ANY_SIZE)
    return AbPlan(entities_per_arm(Effect(amount, difference.variance_a, difference.variance_b)))


def any_time(difference: Difference, plan: AbPlan) -> Interval:
    """Return the interval that holds at every moment at once; it goes on when all planned entities are in."""
    fraction = difference.entities_of_equal_arms / plan.entities_per_arm
    reach = always_valid_boundary(fraction, plan.alpha) * difference.standard_error
    return Interval(difference.difference - reach, difference.difference + reach, always_valid=True)


def timeline(
    groups: Sequence[EntityGroup], split: Sequence[Period], query: EntityQuery, plan: AbPlan
) -> list[IntervalAt]:
    """Return the interval that could have been known at some times, without the declared looks' narrower ones."""
    step = (query.until - query.within_seconds - query.since) / query.slices
    points = []
    for number in range(query.slices):
        difference = compare(*arms_of(groups, split, number))
        if difference is None or min(difference.effective_a, difference.effective_b) < plan.minimum_entities:
            continue
        interval = any_time(difference, plan)
        at = query.since + (number + 1) * step + query.within_seconds
        points.append(IntervalAt(at, difference.difference, interval.low, interval.high))
    return points
