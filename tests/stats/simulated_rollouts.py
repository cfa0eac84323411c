"""Rollouts of simulated traffic, judged by the product's own evaluator."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from math import ceil
from typing import NamedTuple

from stats.calm_looks import CalmLooks
from stats.kept_runs import kept
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Verdict
from understudy.core.canary.latency.champion_before import ChampionBefore, champion_before
from understudy.core.canary.limits import NEWEST_RULES, CanaryPolicy, Rules, Stage
from understudy.core.canary.slices.failing_slices import UNIT_SECONDS
from understudy.core.canary.slices.slice_tally import SliceTally, slice_units
from understudy.core.windows.strata import join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.rollout.checks.slice_check import SHIPPED_SECONDS

BLOCK_WINDOWS = 15 * PER_MINUTE
LOOK_SECONDS = 60.0


def hour_before(world: World, seed: int, traffic: Traffic) -> ChampionBefore:
    """Return what the champion did in the hour before a rollout whose traffic is given."""
    return _hour_before(replace(world, has_histograms=True), seed + 1_000_000, round(traffic.slow_us))


@cache  # the same world is in several bars, at several weights
def _hour_before(world: World, seed: int, slow_us: int) -> ChampionBefore:
    return champion_before(Traffic(world, seed).windows(0, 60 * PER_MINUTE, 0.0), slow_us)


class Step(NamedTuple):
    weight_percent: float
    dwell_minutes: float


STEPS = (Step(2, 30), Step(5, 30), Step(10, 60), Step(25, 60), Step(50, 120))
"""The default plan's, without the last one, which is the promotion."""


class Outcome(NamedTuple):
    """How a rollout ended; the first two are of the last decision."""

    verdict: str
    reason: str
    minute: float
    challenger_requests: int
    step: int
    finished: bool
    named: list[str]
    """The slices that hold it."""
    has_shared_errors: bool

    @property
    def rolled_back(self) -> bool:
        return self.verdict == Verdict.ROLL_BACK

    @property
    def is_invalid(self) -> bool:
        return self.verdict == Verdict.INVALID


@kept(lambda kept: Outcome(*kept))
def roll_out(
    world: World,
    seed: int,
    *,
    policy: CanaryPolicy | None = None,
    steps: tuple[Step, ...] = STEPS,
    minutes: float = 480,
    look_seconds: float = LOOK_SECONDS,
    is_pushed: bool = False,
    rules: Rules = NEWEST_RULES,
    analyses_calm_looks: bool = False,
) -> Outcome:
    """Run a whole rollout, a look at every ``look_seconds``, until it is rolled back, has finished or time is over.

    With ``is_pushed`` an operator starts the next stage when a stage's time is over, whatever holds it. Looks that
    provably take nothing back while a stage still has to go on make no analysis (:mod:`stats.calm_looks`), but with
    ``analyses_calm_looks``, to the same outcome.
    """
    traffic = Traffic(world, seed)
    before = hour_before(world, seed, traffic)
    limits = policy or CanaryPolicy()
    starts: list[float] = [0.0]
    strata = stratify([], ROLLOUT)
    slices = SliceTally(len(steps), limits.warm_up_seconds) if world.categories else None
    ahead: list[Window] = []
    now = 0.0
    while True:
        now += look_seconds
        step = steps[len(starts) - 1]
        over_at = min(starts[-1] + 60 * step.dwell_minutes, 60 * minutes)
        if now > len(strata.starts) * WINDOW_SECONDS:
            # All that the stage takes in any case: its weight changes when its time is over, and not before.
            firsts = range(len(strata.starts), ceil(max(now, over_at) / WINDOW_SECONDS), BLOCK_WINDOWS)
            more = [traffic.windows(first, BLOCK_WINDOWS, step.weight_percent, len(starts)) for first in firsts]
            strata = join_strata([strata, *(stratify(block, ROLLOUT) for block in more)])
            ahead += chain.from_iterable(more) if slices is not None else []
            limits = replace(limits, dwell_seconds=60 * step.dwell_minutes)
            stage = _stage_of(starts, steps, before, rules)
            is_any_calm = slices is None and not analyses_calm_looks
            calm = CalmLooks(strata, limits, stage) if is_any_calm else None
        if calm is not None and now < over_at and calm.has(now):
            continue
        if slices is not None:
            ahead = _added(slices, ahead, starts, now)
        counts = None if slices is None else slices.counts()
        decision = judge(strata, limits, stage, now, slices=counts)
        is_over = is_pushed and now - starts[-1] >= 60 * step.dwell_minutes and decision.verdict is Verdict.HOLD
        goes_on = is_over or decision.verdict is Verdict.ADVANCE
        is_last = len(starts) == len(steps)
        ended = decision.verdict in (Verdict.ROLL_BACK, Verdict.INVALID) or decision.slices
        if ended or now >= 60 * minutes or (is_last and goes_on):
            # A challenger that fails from its first calls on is judged by its open window too, which is all there here.
            requests = max(strata.until(now).challenger["calls"].sum(), decision.evidence[0].challenger_requests)
            return Outcome(
                decision.verdict,
                decision.reason,
                now / 60,
                int(requests),
                len(starts),
                is_last and goes_on,
                [found.counted.slice.value for found in decision.slices],
                decision.has_shared_errors,
            )
        if goes_on:
            starts.append(now)
            strata = strata.until(now)
            ahead = [window for window in ahead if window.key.start < len(strata.starts) * WINDOW_SECONDS]


def _stage_of(starts: Sequence[float], steps: Sequence[Step], before: ChampionBefore, rules: Rules) -> Stage:
    return Stage(
        "fraud",
        "42",
        ROLLOUT,
        tuple(starts),
        len(steps),
        steps[len(starts) - 1].weight_percent,
        {number: step.weight_percent for number, step in enumerate(steps, 1)},
        champion_before=before.blocks,
        tail_steps=before.tail_steps,
        rules=rules,
    )


def _added(slices: SliceTally, ahead: list[Window], starts: Sequence[float], now: float) -> list[Window]:
    """Add up the stretches that are over, as the monitor's job does; return the windows of later ones."""
    settled = (now - SHIPPED_SECONDS) // UNIT_SECONDS * UNIT_SECONDS
    for unit in slice_units([window for window in ahead if window.key.start < settled], ROLLOUT):
        slices.add(unit, [start for start in starts if start <= unit.start])
    return [window for window in ahead if window.key.start >= settled]
