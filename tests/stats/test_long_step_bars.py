"""Equal versions that stay ninety days in one step, with a look each quarter of an hour.

Ninety days are half a million windows, of which an analysis takes seconds. So only the evidence against chance is asked
here, which a rollback needs besides that across entities, and sums that do not change with later windows are added up
once. That this is what the product's own analysis says is a test of its own, on the first days.
"""

from collections.abc import Iterator
from math import exp, log
from typing import NamedTuple

import numpy as np
import pytest
from stats.kept_runs import kept
from stats.pieces import runs, say
from stats.simulated_rollouts import hour_before
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.checks import needed_of
from understudy.core.canary.errors.early_failure import EARLY_FAILURE_ALPHA_SHARE
from understudy.core.canary.evidence.rate_checks import MIN_WINDOWS
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.statistics.incident_bound import incident_bounded
from understudy.core.statistics.mean_shift import Moments, mean_shift
from understudy.core.statistics.own_past import DROPPED_UNITS, SPANS, UNIT_SECONDS, beyond_own_past
from understudy.core.statistics.pod_noise import Blocks, blocks_of, pod_noise
from understudy.core.statistics.sequential_evidence import (
    MAX_RESTARTS,
    FloatArray,
    IntArray,
    Rates,
    Restarts,
    even_schedules,
    half_normal_log_evidence,
    log_mean_exp,
    processes_of,
    rate_gains,
)
from understudy.core.windows.strata import Side, Strata, join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS

DAYS = 90
DAY_WINDOWS = 24 * 60 * PER_MINUTE
LOOK_WINDOWS = 15 * PER_MINUTE
WEIGHT_PERCENT = 10.0
POLICY = CanaryPolicy(min_entities=1)
NEEDED = needed_of(POLICY)
ROUNDING = 1e-6
"""Of logarithms that are added up in another order."""
WORLD = World("diurnal load, pods that wander by 3 %, retries", 333, day_wave=0.5, pod_noise=0.03, retries=2)

pytestmark = pytest.mark.timeout(14_400)


class Season(NamedTuple):
    """The windows of one step, without their analysis buckets: sums of shape (windows, columns) of both sides."""

    starts: IntArray
    champion: Side
    challenger: Side
    beyond: tuple[Rates, ...]
    """Of each percentile that the hour before the rollout knew."""
    before: Blocks


def strata_of(traffic: Traffic, hours: range) -> Iterator[Strata]:
    for hour in hours:
        yield stratify(traffic.windows(60 * PER_MINUTE * hour, 60 * PER_MINUTE, WEIGHT_PERCENT), ROLLOUT)


def season_of(world: World, seed: int, days: int) -> Season:
    traffic = Traffic(world, seed)
    before = hour_before(world, seed, traffic)
    parts = [_without_buckets(part, before.tail_steps) for part in strata_of(traffic, range(24 * days))]
    *columns, percentiles = zip(*parts, strict=True)
    starts, champion, challenger = (np.concatenate(column) for column in columns)
    beyond = tuple(Rates(*np.concatenate(of, axis=1)) for of in zip(*percentiles, strict=True))
    blocks = Blocks(*np.array(before.blocks, np.float64).reshape(-1, 3).T)
    none = np.zeros((1, 1, 1))
    return Season(starts, Side(champion, none), Side(challenger, none), beyond, blocks)


def _without_buckets(
    part: Strata, steps: tuple[int | None, ...]
) -> tuple[IntArray, FloatArray, FloatArray, tuple[Rates, ...]]:
    champion, challenger = part.champion, part.challenger
    beyond = tuple(
        Rates(champion.count_beyond(step), champion.answered, challenger.count_beyond(step + 1), challenger.answered)
        for step in steps
        if step is not None
    )
    return part.starts, champion.sums, challenger.sums, beyond


class AddedUp(NamedTuple):
    """What windows add to each alternative, from the first one to before each."""

    sums: FloatArray

    @classmethod
    def of(cls, gains: FloatArray) -> "AddedUp":
        return cls(np.vstack((np.zeros((1, gains.shape[1])), gains.cumsum(axis=0))))

    def since(self, firsts: IntArray, end: int) -> FloatArray:
        return log_mean_exp((self.sums[end] - self.sums[firsts]).T)


def restarts_at(season: Season, end: int) -> tuple[Restarts, ...]:
    passed = float(season.starts[end - 1] - season.starts[0])
    found = []
    for schedule in even_schedules(1):
        begun = int(passed // schedule.seconds)
        newest = np.arange(max(0, begun - MAX_RESTARTS), begun) + 1
        moments = season.starts[0] + schedule.seconds * newest - WINDOW_SECONDS
        firsts = np.searchsorted(season.starts, moments, side="right").astype(np.int64)
        found.append(Restarts(firsts, begun, schedule.alpha_share, schedule.even_for))
    return tuple(found)


def evidence_at_each_look(season: Season, ends: range) -> Iterator[dict[str, float]]:
    """Yield the logarithm of the evidence against chance of each check, less what it needs: above 0 it is reached.

    Of the rates of slow answers it is more than the analysis has, which counts what typical latency does not explain.
    """
    champion, challenger = season.champion, season.challenger
    errors = Rates(
        champion["error_entities"], champion["entities"], challenger["error_entities"], challenger["entities"]
    )
    needed = NEEDED["error_rate"]
    failing = AddedUp.of(incident_bounded(rate_gains(errors, POLICY.tolerated_error_ratio, np.inf), needed))
    tail = Rates(champion["slow_low"], champion.answered, challenger["slow_high"], challenger.answered)
    slow = {
        name: AddedUp.of(rate_gains(rates, POLICY.tolerated_slow_ratio, NEEDED[name] / MIN_WINDOWS))
        for name, rates in zip(("slow_tail", "slow_p99", "slow_p999"), (tail, *season.beyond), strict=False)
    }
    differences = differences_by_unit(season)
    shifts = Shifts.of(season)
    warm = int(np.searchsorted(season.starts, season.starts[0] + POLICY.warm_up_seconds - WINDOW_SECONDS, "right"))
    for end in ends:
        processes = processes_of((0,), 1, restarts_at(season, end))
        evidence = processes.together(failing.since(processes.firsts, end)) + log(1 - EARLY_FAILURE_ALPHA_SHARE)
        found = {"error_rate": evidence - needed}
        alone = processes_of((warm,), 1)
        for name, added in slow.items():
            found[name] = alone.together(added.since(alone.firsts, end)) - NEEDED[name]
        is_slower = shifts.between(warm, end) > log(POLICY.tolerated_latency_ratio) - ROUNDING
        typical = typical_latency_at(season, warm, end) if is_slower else 0.0
        found["typical_latency"] = typical - NEEDED["typical_latency"]
        units = differences[warm * WINDOW_SECONDS // UNIT_SECONDS : end * WINDOW_SECONDS // UNIT_SECONDS]
        found["latency_change"] = latency_change_of(units) - NEEDED["latency_change"]
        yield found


class Shifts(NamedTuple):
    """Sums over the windows before each of what the difference of the means is made of.

    A challenger that is not slower than is tolerated has no evidence against it, and needs none to be computed.
    """

    weights: FloatArray
    weighted: FloatArray

    @classmethod
    def of(cls, season: Season) -> "Shifts":
        champion, challenger = season.champion, season.challenger
        both = (champion.answered > 0) & (challenger.answered > 0)
        numbers = [np.where(both, side.answered, 1) for side in (champion, challenger)]
        weights = np.where(both, numbers[0] * numbers[1] / (numbers[0] + numbers[1]), 0.0)
        means = [side["log_latency"] / number for side, number in zip((champion, challenger), numbers, strict=True)]
        weighted = np.where(both, weights * (means[1] - means[0]), 0.0)
        return cls(*(np.append(0.0, column.cumsum()) for column in (weights, weighted)))

    def between(self, first: int, end: int) -> float:
        """Return the difference of the means of logarithms, challenger less champion; 0 where nothing was compared."""
        weight = self.weights[end] - self.weights[first]
        return float((self.weighted[end] - self.weighted[first]) / weight) if weight > 0 else 0.0


def latency_change_of(units: FloatArray) -> float:
    """Return the logarithm of the evidence; the past is looked at where the last minutes of a span ask for it."""
    least, values = log(POLICY.lone_latency_ratio), units[~np.isnan(units)]
    newest = [np.sort(values[-span:])[: span - DROPPED_UNITS].mean() for span in SPANS if len(values) >= span]
    if all(latest < least - ROUNDING for latest in newest):
        return 0.0
    past = beyond_own_past(values, log(POLICY.tolerated_latency_ratio), least)
    return past.log_evidence if past else 0.0


def typical_latency_at(season: Season, warm: int, end: int) -> float:
    sides = (season.champion.cut(warm, end), season.challenger.cut(warm, end))
    moments = Moments(*(c for side in sides for c in (side.answered, side["log_latency"], side["log_latency_squares"])))
    newest = max(0, end - 25 * 60 * PER_MINUTE)
    champion = season.champion.cut(newest, end)
    since = blocks_of(
        season.starts[newest:end], champion.answered, champion["log_latency"], champion["log_latency_squares"]
    )
    noise = pod_noise(Blocks(*(np.append(*columns) for columns in zip(season.before, since, strict=True))))
    shift = mean_shift(moments, noise)
    if shift is None:
        return 0.0
    z = (shift.difference - log(POLICY.tolerated_latency_ratio)) / shift.standard_error
    return half_normal_log_evidence(z, float(shift.windows), exp(-NEEDED["typical_latency"]))


def differences_by_unit(season: Season) -> FloatArray:
    """Return the challenger's mean logarithm less the champion's of each unit, NaN where one of them answered none."""
    windows = UNIT_SECONDS // WINDOW_SECONDS
    units = len(season.starts) // windows
    means = []
    for side in (season.champion, season.challenger):
        answered, total = (
            column[: units * windows].reshape(units, windows).sum(axis=1)
            for column in (side.answered, side["log_latency"])
        )
        means.append(np.divide(total, answered, out=np.full(units, np.nan), where=answered > 0))
    differences: FloatArray = means[1] - means[0]
    return differences


@pytest.mark.parametrize("seed", runs(short=1, full=3))
def test_what_is_added_up_once_is_what_the_analysis_finds(seed):
    world, days = WORLD, 2
    traffic = Traffic(world, seed)
    before = hour_before(world, seed, traffic)
    strata = join_strata(list(strata_of(traffic, range(24 * days))))
    season = season_of(world, seed, days)
    stage = Stage(
        "fraud", "42", ROLLOUT, (0.0,), 1, WEIGHT_PERCENT, {1: WEIGHT_PERCENT},
        champion_before=before.blocks, tail_steps=before.tail_steps,
    )  # fmt: skip
    ends = range(LOOK_WINDOWS, days * DAY_WINDOWS + 1, 23 * LOOK_WINDOWS)

    for end, found in zip(ends, evidence_at_each_look(season, ends), strict=True):
        now = float(WINDOW_SECONDS * end)
        rows = judge(strata, POLICY, stage, now + POLICY.watermark_seconds).evidence
        own = {
            row.check.name: log(row.evidence or 0) - NEEDED[row.check.name] for row in rows if row.check.name in found
        }
        assert own.keys() == found.keys()
        assert own["error_rate"] == pytest.approx(found["error_rate"])
        assert own["latency_change"] == pytest.approx(found["latency_change"])
        # What is below 1 says nothing; there a t-distribution's tail is nearer to 0 than the normal one's.
        assert all(own[name] <= max(found[name], -NEEDED[name]) + 1e-6 for name in found)


@kept(list)
def reached_within(world: World, seed: int, days: int) -> list[str]:
    """Return the checks whose evidence against chance is reached at any look."""
    season = season_of(world, seed, days)
    looks = evidence_at_each_look(season, range(LOOK_WINDOWS, days * DAY_WINDOWS + 1, LOOK_WINDOWS))
    return sorted({name for found in looks for name, beyond in found.items() if beyond >= 0})


def test_an_equal_challenger_stays_for_ninety_days_in_one_step():
    seeds = runs(short=1, full=20)
    days = DAYS if len(seeds) > 1 else 5

    reached = [reached_within(WORLD, seed, days) for seed in seeds]

    false = sum(bool(names) for names in reached)
    say(f"A/A of {days} days in one step, {WORLD.name} (bar 0)", f"{false} of {len(seeds)} had any evidence")
    assert not false
