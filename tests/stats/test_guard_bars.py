"""Guards of a day: what regular glances and rarer analyses find, and how soon, with the product's own evaluator.

Short by default; ``UNDERSTUDY_STATS=full`` makes 40 runs of each, or a piece of them (:mod:`stats.pieces`).
"""

from dataclasses import replace
from statistics import median

import pytest
from stats.calm_looks import CalmLooks
from stats.kept_runs import kept
from stats.pieces import runs, say
from stats.simulated_rollouts import hour_before
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, diurnal, plain, wandering_pods

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Verdict
from understudy.core.canary.glance import GLANCE_SECONDS, looks_worse
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import Strata, join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS
from understudy.rollout.calm_guards import ANALYSIS_INTERVAL_SECONDS, CALM_SECONDS, GLANCE_INTERVAL_SECONDS

RUNS = runs(1, full=40)
VOLUME = 333
TICK_SECONDS = 5
ONSET_MINUTE = 24 * 60 + 1
POLICY = CanaryPolicy(min_entities=1)

pytestmark = pytest.mark.timeout(3_600)


def a_day_and_two_hours(world: World, seed: int) -> tuple[Strata, Stage]:
    traffic = Traffic(world, seed)
    hours = [stratify(traffic.windows(60 * PER_MINUTE * hour, 60 * PER_MINUTE, 10.0), ROLLOUT) for hour in range(26)]
    before = hour_before(world, seed, traffic)
    stage = Stage(
        "fraud",
        "42",
        ROLLOUT,
        (0.0,),
        1,
        10.0,
        {1: 10.0},
        champion_before=before.blocks,
        tail_steps=before.tail_steps,
    )
    return join_strata(hours), stage


def minutes_to_rollback(strata: Strata, stage: Stage, *, in_turns: bool) -> float:
    """Return how long after the onset a guard is taken back that is analysed in each tick, or in the rarest turns."""
    onset, is_calm = 60 * ONSET_MINUTE, in_turns
    for passed in range(TICK_SECONDS, 7_200, TICK_SECONDS):
        now = float(onset + passed)
        has_analysis = not is_calm or passed % ANALYSIS_INTERVAL_SECONDS == 0
        has_glance = not has_analysis and passed % GLANCE_INTERVAL_SECONDS == 0
        recent = strata.between(int(now - GLANCE_SECONDS - WINDOW_SECONDS), int(now) + 1)
        # Without the window that is open: all that will be in it is there already in these strata.
        is_worse = looks_worse(recent, POLICY, now - WINDOW_SECONDS)
        # Between two ends of windows an analysis says the same.
        if (has_analysis or (has_glance and is_worse)) and (in_turns or passed % WINDOW_SECONDS == TICK_SECONDS):
            if judge(strata.until(now), POLICY, stage, now).verdict is Verdict.ROLL_BACK:
                return passed / 60
            is_calm = in_turns and not is_worse
    return float("inf")


@pytest.mark.parametrize(
    ("world", "bar"),
    [
        (World("every request fails", VOLUME, error_factor=1e6), 5),
        (World("half of the requests fail", VOLUME, error_factor=100), 15),
        (World("latency x2", VOLUME, latency_factor=2.0, entities=20_000), 15),
        (World("latency x10", VOLUME, latency_factor=10.0, entities=20_000), 5),
        (replace(wandering_pods(VOLUME, 0.2), name="x10, pods +-20 %", latency_factor=10.0, entities=20_000), 10),
    ],
    ids=lambda value: value.name if isinstance(value, World) else "",
)
def test_a_guard_of_a_day_that_has_its_turns_takes_a_bad_version_back_as_soon_as_promised(world, bar):
    late = replace(world, onset_minute=ONSET_MINUTE)
    traffic = [a_day_and_two_hours(late, seed) for seed in RUNS]

    always, in_turns = (
        [minutes_to_rollback(*one, in_turns=has_turns) for one in traffic] for has_turns in (False, True)
    )

    say(
        f"{world.name} after a day (bar {bar} min)",
        f"median {median(in_turns):.2f}, most {max(in_turns):.2f}; analysed at each tick {median(always):.2f}",
    )
    assert median(in_turns) <= bar
    assert max(one - other for one, other in zip(in_turns, always, strict=True)) <= ANALYSIS_INTERVAL_SECONDS / 60


@pytest.mark.parametrize(
    "world", [plain(VOLUME), diurnal(VOLUME), wandering_pods(VOLUME), wandering_pods(VOLUME, 0.2)], ids=lambda w: w.name
)
def test_glances_at_equal_versions_hardly_ever_ask_for_an_analysis(world):
    strata = [a_day_and_two_hours(world, seed)[0] for seed in RUNS]

    glances = [
        looks_worse(one, POLICY, float(now)) for one in strata for now in range(1_800, 86_400, 2 * WINDOW_SECONDS)
    ]

    say(f"{world.name}: glances that ask for an analysis (bar 5 %)", f"{100 * sum(glances) / len(glances):.2f} %")
    assert sum(glances) <= 0.05 * len(glances)


ARMS = 4
ARM_PERCENT = 20.0
"""Of what an arm and the champion have together."""
ARM_HOURS = 3


@kept(bool)
def is_any_arm_taken_back(world: World, seed: int) -> bool:
    """Return whether any of several equal arms beside one champion is taken back by a look each minute."""
    arms = [Traffic(world, 1_000 * (seed + 1) + number) for number in range(ARMS)]
    for arm in arms:
        arm.slow_us = arms[0].slow_us
    strata = [stratify(arm.windows(0, 60 * PER_MINUTE * ARM_HOURS, ARM_PERCENT), ROLLOUT) for arm in arms]
    before = hour_before(world, 1_000 * (seed + 1), arms[0])
    stage = Stage(
        "fraud", "42", ROLLOUT, (0.0,), 1, ARM_PERCENT, {1: ARM_PERCENT},
        champion_before=before.blocks, tail_steps=before.tail_steps,
    )  # fmt: skip
    policy = replace(POLICY, alpha=POLICY.alpha / ARMS)
    beside = [replace(one, champion=strata[0].champion) for one in strata]
    assert all((one.starts == strata[0].starts).all() for one in strata)
    return any(
        judge(one.until(now), policy, stage, float(now)).verdict is Verdict.ROLL_BACK
        for one in beside
        for now in range(60, 3_600 * ARM_HOURS, 60)
    )


@pytest.mark.parametrize("world", [plain(VOLUME), wandering_pods(VOLUME)], ids=lambda w: w.name)
def test_of_several_equal_arms_that_share_alpha_hardly_any_is_taken_back(world):
    false = sum(is_any_arm_taken_back(world, seed) for seed in RUNS)

    say(f"{ARMS} equal arms, {world.name} (bar 1 % of the guards)", f"{false} of {len(RUNS)}")
    assert false <= 0.01 * len(RUNS)


DAY_SECONDS = 86_400
DAYS = 7
"""A guard is a day old at most: a week is so many guards, each with evidence of its own."""


@kept(bool)
def is_taken_back_in_a_day(world: World, seed: int, *, analyses_calm_looks: bool = False) -> bool:
    """Return whether a version is taken back by a guard of a day, which has its turns once it is calm.

    Looks that provably take nothing back (:mod:`stats.calm_looks`) are not analysed, unless ``analyses_calm_looks``.
    """
    traffic = Traffic(world, seed)
    hours = [stratify(traffic.windows(60 * PER_MINUTE * hour, 60 * PER_MINUTE, 10.0), ROLLOUT) for hour in range(24)]
    strata, before = join_strata(hours), hour_before(world, seed, traffic)
    stage = Stage(
        "fraud", "42", ROLLOUT, (0.0,), 1, 10.0, {1: 10.0},
        champion_before=before.blocks, tail_steps=before.tail_steps,
    )  # fmt: skip
    calm = CalmLooks(strata, POLICY, stage)
    for now in range(30, DAY_SECONDS, 30):
        is_analysed = now % (60 if now <= CALM_SECONDS else ANALYSIS_INTERVAL_SECONDS) == 0
        recent = strata.between(int(now - GLANCE_SECONDS - WINDOW_SECONDS), now + 1)
        if not is_analysed and (now < CALM_SECONDS or not looks_worse(recent, POLICY, float(now - WINDOW_SECONDS))):
            continue
        if not analyses_calm_looks and calm.has(now):
            continue
        if judge(strata.until(now), POLICY, stage, float(now)).verdict is Verdict.ROLL_BACK:
            return True
    return False


@pytest.mark.parametrize("volume", [VOLUME, 3_000])
@pytest.mark.parametrize(
    "world",
    [
        plain(VOLUME),
        World("diurnal load, pods that wander by 3 %, retries", VOLUME, day_wave=0.5, pod_noise=0.03, retries=2),
        World("300 tenants with levels of their own", VOLUME, 0.01, zipf=0.8, entities=300, own_errors=1.0),
    ],
    ids=lambda w: w.name,
)
def test_guards_of_equal_versions_hardly_ever_take_them_back_within_a_week(world, volume):
    world = replace(world, requests_per_minute=float(volume))
    weeks = [any(is_taken_back_in_a_day(world, DAYS * seed + day) for day in range(DAYS)) for seed in RUNS]

    say(f"guards of a week, {world.name}, {volume}/min (bar 1 % of a guard)", f"{sum(weeks)} of {len(weeks)} weeks")
    assert sum(weeks) <= 0.01 * DAYS * len(weeks)


@pytest.mark.parametrize(
    "world",
    [World("errors x1.3", VOLUME, error_factor=1.3), World("slower by 8 %", VOLUME, latency_factor=1.08)],
    ids=lambda w: w.name,
)
def test_a_guard_of_a_day_ends_the_same_where_calm_looks_are_analysed_too(world):
    for seed in RUNS:
        assert is_taken_back_in_a_day(world, seed) == is_taken_back_in_a_day(world, seed, analyses_calm_looks=True)
