"""Rollouts of simulated traffic, judged by the product's own evaluator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

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
    hour = Traffic(replace(world, has_histograms=True), seed + 1_000_000)
    return champion_before(hour.windows(0, 60 * PER_MINUTE, 0.0), round(traffic.slow_us))


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
) -> Outcome:
    """Run a whole rollout, a look at every ``look_seconds``, until it is rolled back, has finished or time is over.

    With ``is_pushed`` an operator starts the next stage when a stage's time is over, whatever holds it.
    """
    traffic = Traffic(world, seed)
    before = hour_before(world, seed, traffic)
    policy = policy or CanaryPolicy()
    starts: list[float] = [0.0]
    strata = stratify([], ROLLOUT)
    slices = SliceTally(len(steps), policy.warm_up_seconds) if world.categories else None
    ahead: list[Window] = []
    known = 0
    now = 0.0
    while True:
        now += look_seconds
        step = steps[len(starts) - 1]
        if now > known * WINDOW_SECONDS:
            more = traffic.windows(known, BLOCK_WINDOWS, step.weight_percent, len(starts))
            strata = join_strata([strata, stratify(more, ROLLOUT)])
            known += BLOCK_WINDOWS
            ahead += more if slices is not None else []
        weights = {number: step.weight_percent for number, step in enumerate(steps, 1)}
        stage = Stage(
            "fraud",
            "42",
            ROLLOUT,
            tuple(starts),
            len(steps),
            step.weight_percent,
            weights,
            champion_before=before.blocks,
            tail_steps=before.tail_steps,
            rules=rules,
        )
        if slices is not None:
            ahead = _added(slices, ahead, starts, now)
        counts = None if slices is None else slices.counts()
        decision = judge(strata, replace(policy, dwell_seconds=60 * step.dwell_minutes), stage, now, slices=counts)
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
            strata, known = strata.until(now), int(now // WINDOW_SECONDS)
            ahead = [window for window in ahead if window.key.start < known * WINDOW_SECONDS]


def _added(slices: SliceTally, ahead: list[Window], starts: Sequence[float], now: float) -> list[Window]:
    """Add up the stretches that are over, as the monitor's job does; return the windows of later ones."""
    settled = (now - SHIPPED_SECONDS) // UNIT_SECONDS * UNIT_SECONDS
    for unit in slice_units([window for window in ahead if window.key.start < settled], ROLLOUT):
        slices.add(unit, [start for start in starts if start <= unit.start])
    return [window for window in ahead if window.key.start >= settled]
