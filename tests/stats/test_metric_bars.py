"""The bars of an operator's own metrics (statistics page): equal versions, and worse ones, whose minutes are alike.

Short by default; :mod:`stats.pieces` says how the numbers of runs that the page names are made.
"""

from math import exp, inf
from typing import NamedTuple

import numpy as np
import pytest
from stats.kept_runs import kept
from stats.pieces import runs, say

from understudy.core.canary.checks import needed_of
from understudy.core.canary.decision import CheckState
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.metric_limits import MetricLimit
from understudy.core.canary.metric_samples import MetricSamples
from understudy.core.canary.metrics.metric_check import METRICS, judge_metric
from understudy.core.windows.strata import stratify

pytestmark = pytest.mark.timeout(3_600)
DAY = 1_440
"""Minutes of the champion's past."""
HOURS = 8
POLICY = CanaryPolicy(metrics=(MetricLimit("basket", "$version", "shop", 0.0, lower_is_better=True),))
NEEDED = needed_of(POLICY)[METRICS[0].name]
STAGE = Stage("fraud", "42", 1, (0.0,), 6, 25.0, {1: 25.0})
NO_TRAFFIC = stratify([], 1)


class Metric(NamedTuple):
    """What a metric does by itself, of each version, on a common course of the day of 30 % either way."""

    name: str
    wanders: float
    """Standard deviation of what stays for a while, as a share of the mean."""
    minutes: float
    """For how long it stays (AR(1))."""
    champion: float = 0.02
    """Of what each minute has for itself; or, with ``events``, the events of a minute."""
    challenger: float = 0.05
    is_counted: bool = False
    """Whether values are shares of events, Poisson: ``champion`` and ``challenger`` of them a minute."""
    has_incident: bool = False
    """Whether the challenger has ten times the value for two minutes."""


WHITE = Metric("no wandering, 10 % noise", 0.0, 1.0, challenger=0.1)
STEADY = Metric("wanders by 5 % for 5 min", 0.05, 5.0)
SLOW = Metric("wanders by 10 % for 15 min", 0.1, 15.0)
PODS = Metric("wanders by 20 % for 5 min", 0.2, 5.0)
PODS_LONG = Metric("wanders by 20 % for 15 min", 0.2, 15.0)
HALF_HOURS = Metric("wanders by 20 % for 30 min", 0.2, 30.0)
COUNTS = Metric("shares of 90 and 6 events a minute", 0.05, 5.0, 90.0, 6.0, is_counted=True)
INCIDENT = Metric("10x for two minutes once, wanders by 5 %", 0.05, 5.0, has_incident=True)


def wandering(random: np.random.Generator, count: int, metric: Metric) -> np.ndarray:
    kept_share = exp(-1 / metric.minutes)
    steps = random.normal(size=count) * metric.wanders * (1 - kept_share**2) ** 0.5
    found = np.empty(count)
    found[0] = random.normal() * metric.wanders
    for minute in range(1, count):
        found[minute] = kept_share * found[minute - 1] + steps[minute]
    return found


def values(metric: Metric, seed: int, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return both versions' values, of a day before and of the hours of the rollout."""
    random = np.random.default_rng(seed)
    count = DAY + 60 * HOURS
    course = 1 + 0.3 * np.sin(2 * np.pi * np.arange(count) / DAY + random.uniform(0, 2 * np.pi))
    champion, challenger = (course * np.exp(wandering(random, count, metric)) * side for side in (1.0, factor))
    if metric.is_counted:
        own = (metric.champion, metric.challenger)
        champion, challenger = (
            random.poisson(side * n) / n for side, n in zip((champion, challenger), own, strict=True)
        )
        return champion, challenger
    champion = champion * np.exp(random.normal(size=count) * metric.champion)
    challenger = challenger * np.exp(random.normal(size=count) * metric.challenger)
    if metric.has_incident:
        first = int(random.integers(DAY + 30, count - 10))
        challenger[first : first + 2] *= 10
    return champion, challenger


@kept(float)
def taken_back_after(metric: Metric, seed: int, factor: float) -> float:
    """Return the minute in which the check takes the challenger back, looked at each minute; infinity if never."""
    champion, challenger = values(metric, seed, factor)
    past, (own, other) = tuple(champion[:DAY]), (tuple(side[DAY:].tolist()) for side in (champion, challenger))
    times = tuple(range(60, 60 * (60 * HOURS + 1), 60))
    for minute in range(1, 60 * HOURS):
        samples = MetricSamples(times[:minute], own[:minute], other[:minute], past, asked_at=times[minute - 1])
        now = 60.0 * minute + 35
        inputs = CheckInput(NO_TRAFFIC, POLICY, STAGE, (0,), 0, metrics=(samples,), now=now)
        if judge_metric(0, inputs, NEEDED).state is CheckState.FAIL:
            return float(minute)
    return inf


@pytest.mark.parametrize("metric", [WHITE, STEADY, SLOW, PODS, PODS_LONG, COUNTS, INCIDENT], ids=lambda one: one.name)
def test_an_equal_version_is_taken_back_in_at_most_one_of_a_hundred_rollouts_of_eight_hours(metric):
    seeds = runs(6)

    found = [seed for seed in seeds if taken_back_after(metric, seed, 1.0) < inf]

    say("an equal version, a metric that " + metric.name, f"{len(found)} of {len(seeds)} taken back")
    assert len(found) <= 0.01 * len(seeds) + 3 * (0.01 * len(seeds)) ** 0.5


def test_a_metric_that_stays_wrong_for_half_hours_is_hardly_told_from_a_worse_version():
    seeds = runs(6)

    found = [seed for seed in seeds if taken_back_after(HALF_HOURS, seed, 1.0) < inf]

    say("an equal version, a metric that " + HALF_HOURS.name, f"{len(found)} of {len(seeds)} taken back")
    assert len(found) <= 0.05 * len(seeds) + 3 * (0.05 * len(seeds)) ** 0.5


@pytest.mark.parametrize(
    ("metric", "minutes"),
    [(WHITE, 45), (STEADY, 45), (INCIDENT, 60), (SLOW, 300), (COUNTS, 240)],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_a_version_that_is_worse_by_three_tenths_is_found(metric, minutes):
    found = [taken_back_after(metric, seed, 1.3) for seed in runs(5, 100)]

    say(f"30 % worse, a metric that {metric.name}", f"minute {np.median(found):g} in the median, of {len(found)}")
    assert np.median(found) <= minutes
