"""Rollouts over calls without an entity: two equal versions are hardly ever told apart, whoever is behind the calls.

Each call is an entity of its own (ADR 106), and who makes it is hidden from the product. The people behind the calls
are as uneven as ever: a few make most of the calls, each has an error level and a latency of its own, and now and then
one has a bad quarter of an hour. They meet both versions, call by call.

Short by default; ``UNDERSTUDY_STATS=full`` makes 300 whole rollouts, or a piece (:mod:`stats.pieces`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from stats.kept_runs import kept
from stats.pieces import IS_FULL, runs, say
from stats.simulated_rollouts import BLOCK_WINDOWS, LOOK_SECONDS, STEPS
from stats.worlds import PER_MINUTE, ROLLOUT, FloatArray, IntArray, Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Verdict
from understudy.core.canary.latency.champion_before import champion_before
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS

pytestmark = pytest.mark.timeout(14_400 if IS_FULL else 600)
MINUTES = 480
FALSE_ROLLBACKS = 0.01
CALLS = 2_000_000
"""More than a whole rollout and the hour before it have."""
PEOPLE, ZIPF = 3_000, 1.1
OWN_ERRORS = 1.5
"""Spread (of the logarithm) of people's own error levels; half of it of their own latencies."""
BAD_RATIO, BAD_FACTOR = 0.02, 20.0
"""Share of people's quarters of an hour in which their calls fail more often, and how much more."""
_BAD_WINDOWS = 15 * PER_MINUTE


def unkeyed(requests_per_minute: float = 3_000.0) -> World:
    """Return equal versions whose callers name no entity."""
    return World("unkeyed", requests_per_minute, entities=CALLS)


class UnkeyedTraffic(Traffic):
    """One run of such a world: an entity is a call, drawn once."""

    def __init__(self, world: World, seed: int) -> None:
        hidden = np.random.default_rng([seed, 106])
        popularity = 1 / np.arange(1, PEOPLE + 1) ** ZIPF
        self._person = hidden.choice(PEOPLE, CALLS, p=popularity / popularity.sum())
        self._called = 0
        own = hidden.normal(size=PEOPLE)
        level = np.exp(OWN_ERRORS * own - OWN_ERRORS**2 / 2) / (1 + BAD_RATIO * (BAD_FACTOR - 1))
        self._bad = hidden
        self._bad_quarters: dict[int, NDArray[np.bool_]] = {}
        super().__init__(world, seed)
        self._own_errors = level[self._person]
        self._own_log_latency = OWN_ERRORS / 2 * hidden.normal(size=PEOPLE)[self._person]
        self.slow_us = self._slow_threshold()

    def drawn_entities(self, calls: int) -> IntArray:
        """Return the next calls: none is ever made again."""
        first, self._called = self._called, self._called + calls
        assert self._called <= CALLS
        return np.arange(first, self._called)

    def _error_chance(
        self, numbers: IntArray, window: IntArray, entity: IntArray, affected: NDArray[np.bool_]
    ) -> FloatArray:
        chance = super()._error_chance(numbers, window, entity, affected)
        quarter = numbers[window] // _BAD_WINDOWS
        for one in np.unique(quarter).tolist():
            if one not in self._bad_quarters:
                self._bad_quarters[one] = self._bad.random(PEOPLE) < BAD_RATIO
            is_bad = (quarter == one) & self._bad_quarters[one][self._person[entity]]
            chance = np.where(is_bad, BAD_FACTOR * chance, chance)
        return np.asarray(np.minimum(1.0, chance), np.float64)


class Ended(NamedTuple):
    """How a rollout ended: the last verdict, why, when, and in which step."""

    verdict: str
    reason: str
    minute: float
    step: int

    @property
    def is_false(self) -> bool:
        return self.verdict == Verdict.ROLL_BACK


@kept(lambda kept: Ended(*kept))
def roll_out_unkeyed(world: World, seed: int) -> Ended:
    """Run a whole rollout, as :func:`.roll_out` does with the traffic of calls that have entities."""
    traffic = UnkeyedTraffic(world, seed)
    hour = UnkeyedTraffic(replace(world, has_histograms=True), seed + 1_000_000)
    before = champion_before(hour.windows(0, 60 * PER_MINUTE, 0.0), round(traffic.slow_us))
    starts, strata, known, now = [0.0], stratify([], ROLLOUT), 0, 0.0
    weights = {number: step.weight_percent for number, step in enumerate(STEPS, 1)}
    while True:
        now += LOOK_SECONDS
        step = STEPS[len(starts) - 1]
        if now > known * WINDOW_SECONDS:
            more = traffic.windows(known, BLOCK_WINDOWS, step.weight_percent, len(starts))
            strata, known = join_strata([strata, stratify(more, ROLLOUT)]), known + BLOCK_WINDOWS
        stage = Stage(
            "fraud", "42", ROLLOUT, tuple(starts), len(STEPS), step.weight_percent, weights,
            champion_before=before.blocks, tail_steps=before.tail_steps,
        )  # fmt: skip
        policy = replace(CanaryPolicy(), dwell_seconds=60 * step.dwell_minutes)
        decision = judge(strata, policy, stage, now)
        goes_on = decision.verdict is Verdict.ADVANCE
        ended = decision.verdict in (Verdict.ROLL_BACK, Verdict.INVALID) or (goes_on and len(starts) == len(STEPS))
        if ended or now >= 60 * MINUTES:
            return Ended(decision.verdict, decision.reason, now / 60, len(starts))
        if goes_on:
            starts.append(now)
            strata, known = strata.until(now), int(now // WINDOW_SECONDS)


def test_equal_versions_whose_calls_name_no_entity_are_hardly_ever_taken_back():
    world = unkeyed()

    outcomes = [roll_out_unkeyed(world, seed) for seed in runs(short=2, full=300)]

    false = [one for one in outcomes if one.is_false]
    ended = sum(one.verdict == Verdict.ADVANCE for one in outcomes)
    say(
        f"unkeyed, A/A, {world.requests_per_minute:g}/min (bar {100 * FALSE_ROLLBACKS:g} % false rollbacks)",
        f"{len(false)} of {len(outcomes)} rolled back, {ended} promoted; {[(one.minute, one.reason) for one in false]}",
    )
    assert len(false) <= FALSE_ROLLBACKS * len(outcomes)


def test_a_challenger_with_three_times_the_errors_is_taken_back_though_its_calls_name_no_entity():
    world = replace(unkeyed(), error_factor=3.0)

    outcomes = [roll_out_unkeyed(world, seed) for seed in runs(short=2, full=100)]

    say("unkeyed, errors x3", f"{sum(one.is_false for one in outcomes)} of {len(outcomes)} rolled back")
    assert all(one.is_false for one in outcomes)
