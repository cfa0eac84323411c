"""The bars of statistics.md §2, each against the product's own evaluator.

Short by default; ``UNDERSTUDY_STATS=full`` makes 300 runs of each world at each volume.
Every test prints its figure next to its bar. :mod:`stats.pieces` says how a long one is done in pieces.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from statistics import median

import numpy as np
import pytest
from stats.calm_looks import CalmLooks
from stats.kept_runs import kept
from stats.pieces import IS_FULL, runs, say
from stats.simulated_rollouts import STEPS, Outcome, Step, hour_before, roll_out
from stats.worlds import (
    ROLLOUT,
    Traffic,
    World,
    diurnal,
    incident,
    one_burst,
    pareto_latency,
    plain,
    retrying_callers,
    slow_thousandths,
    slower_hundredths,
    two_modes,
    wandering_pods,
)

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.reference_rule import evaluate_reference_rule
from understudy.core.windows.histogram import Histogram, merged
from understudy.core.windows.strata import join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS

VOLUMES = (333, 3_000)
"""Requests per minute."""
EQUAL_WORLDS = (
    plain(),
    diurnal(),
    wandering_pods(),
    retrying_callers(),
    pareto_latency(),
    two_modes(),
)
OTHER_EQUAL_WORLDS = (
    World("few errors", error_rate=0.0005),
    World("many errors, wandering pods", error_rate=0.05, pod_noise=0.03),
    World("waves and bursts", wave=0.5, bursts_per_hour=1.0),
    World("heavy tail", tail_ratio=0.02, log_sigma=0.8),
)
UNEQUAL_ENTITIES = (
    World("Zipf entities with their own error level", zipf=1.1, entities=20_000, own_errors=1.0),
    World("300 tenants with their own error level", zipf=0.8, entities=300, own_errors=1.0, error_rate=0.01),
)

pytestmark = pytest.mark.timeout(7_200 if IS_FULL else 300)


def named(world: World) -> str:
    return world.name


def at(world: World, requests_per_minute: int) -> World:
    return replace(world, requests_per_minute=requests_per_minute)


def finishing(outcomes: Sequence[Outcome]) -> str:
    minutes = [outcome.minute for outcome in outcomes if outcome.finished]
    last = f", median minute {median(minutes):.0f}, last {max(minutes):.0f}" if minutes else ""
    return f"{len(minutes)} of {len(outcomes)} reached the end{last}"


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize("world", [*EQUAL_WORLDS, *OTHER_EQUAL_WORLDS], ids=named)
def test_an_equal_challenger_is_hardly_ever_rolled_back_and_reaches_the_end(world, volume):
    outcomes = [roll_out(at(world, volume), seed) for seed in runs(short=1)]

    false = sum(outcome.rolled_back for outcome in outcomes)
    invalid = sum(outcome.is_invalid for outcome in outcomes)
    say(
        f"A/A {world.name}, {volume}/min (bar 1 %)",
        f"{false} of {len(outcomes)} rolled back, {invalid} invalid, {finishing(outcomes)}",
    )
    assert false <= 0.01 * len(outcomes)
    assert invalid <= 0.01 * len(outcomes)
    assert sum(outcome.finished for outcome in outcomes) >= 0.8 * len(outcomes)


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize("world", UNEQUAL_ENTITIES, ids=named)
def test_entities_that_are_unlike_each_other_do_not_roll_an_equal_challenger_back(world, volume):
    # Its operator resumes it whatever holds it: waiting at 2 % for ever would be no test of the other stages.
    policy = CanaryPolicy(min_entities=1)
    outcomes = [roll_out(at(world, volume), seed, policy=policy, is_pushed=True) for seed in runs(short=1)]

    false = sum(outcome.rolled_back for outcome in outcomes)
    say(f"A/A {world.name}, {volume}/min (bar 2 %)", f"{false} of {len(outcomes)} rolled back, {finishing(outcomes)}")
    assert false <= 0.02 * len(outcomes)


@pytest.mark.parametrize("volume", VOLUMES if IS_FULL else VOLUMES[1:])
@pytest.mark.parametrize(
    ("world", "bar", "look_seconds"),
    [
        (World("errors x2", error_factor=2), 8_000, 60),
        (World("errors x3", error_factor=3), 2_200, 60),
        (World("errors x10", error_factor=10), 400, 10),
        (World("every request fails", error_factor=1e6), 80, 10),
        (World("latency x1.3", latency_factor=1.3), 700, 10),
        (World("latency x1.5", latency_factor=1.5), 250, 10),
        (World("tail three times as heavy", tail_ratio=0.02, tail_factor=3), 12_000, 60),
        (World("slowest tenth x3", slowest_tenth_factor=3), 12_000, 60),
    ],
    ids=lambda value: value.name if isinstance(value, World) else "",
)
def test_a_worse_challenger_is_rolled_back_within_so_many_requests(world, bar, look_seconds, volume):
    # Errors come one by one: the median of 11 runs has a standard error of a sixth, that of 101 runs of a twentieth.
    seeds = runs(short=101 if "errors" in world.name else 11)
    outcomes = [roll_out(at(world, volume), seed, look_seconds=look_seconds) for seed in seeds]

    requests = [outcome.challenger_requests if outcome.rolled_back else float("inf") for outcome in outcomes]
    minutes = median(outcome.minute for outcome in outcomes)
    say(f"{world.name}, {volume}/min (bar {bar:,} requests)", f"median {median(requests):,.0f}, minute {minutes:.1f}")
    assert median(requests) <= bar


@pytest.mark.parametrize("volume", VOLUMES if IS_FULL else VOLUMES[1:])
@pytest.mark.parametrize(
    ("world", "bars"), [(slower_hundredths(), (12_000, 9_000)), (slow_thousandths(), (3_000, 3_000))], ids=str
)
def test_slowest_answers_that_get_slower_are_found_in_nine_of_ten_rollouts(world, bars, volume):
    bar = bars[VOLUMES.index(volume)]
    outcomes = [roll_out(at(world, volume), seed) for seed in runs(short=20)]  # of five, nine tenths are all

    requests = [outcome.challenger_requests if outcome.rolled_back else float("inf") for outcome in outcomes]
    say(f"{world.name}, {volume}/min (bar {bar:,} requests)", f"median {median(requests):,.0f}, most {max(requests):,}")
    assert sum(number <= bar for number in requests) >= 0.9 * len(requests)


def test_a_late_regression_is_caught_within_half_an_hour():
    world = World("late", error_factor=3, onset_minute=120)

    outcomes = [roll_out(world, seed) for seed in runs(short=3)]

    minutes = [outcome.minute if outcome.rolled_back else float("inf") for outcome in outcomes]
    say("errors x3 from minute 120 on (bar minute 150)", f"median minute {median(minutes):.0f}")
    assert median(minutes) <= 150
    assert min(minutes) > 120


DAY_MINUTES = 1_440
LONG_STEP = (Step(10, 2 * DAY_MINUTES),)
"""In which it stays for days: no operator resumes it, and nothing begins anew with a stage."""


@pytest.mark.parametrize("volume", VOLUMES if IS_FULL else VOLUMES[:1])
@pytest.mark.parametrize("world", [*OTHER_EQUAL_WORLDS, *UNEQUAL_ENTITIES, wandering_pods(pod_noise=0.1)], ids=named)
def test_an_equal_challenger_stays_for_a_day_in_one_step(world, volume):
    policy = CanaryPolicy(min_entities=1)

    outcomes = [
        roll_out(at(world, volume), seed, policy=policy, steps=LONG_STEP, minutes=DAY_MINUTES, look_seconds=300)
        for seed in runs(short=1, full=50)
    ]

    false = sum(outcome.rolled_back for outcome in outcomes)
    say(f"A/A of a day in one step, {world.name}, {volume}/min (bar 1 %)", f"{false} of {len(outcomes)} rolled back")
    assert false <= 0.01 * len(outcomes)


@pytest.mark.parametrize(
    ("world", "bar"),
    [
        (World("every request fails", error_factor=1e6), 5),
        (World("half of the requests fail", error_factor=100), 15),
        (World("errors x10", error_factor=10), 30),
        (World("every request fails, 2,000 entities", error_factor=1e6, entities=2_000), 10),
        (
            World("every request fails, 30 tenants", error_factor=1e6, zipf=0.8, entities=300, own_errors=1.0),
            10,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, World) else "",
)
def test_a_challenger_that_turns_bad_after_a_day_in_one_step_is_taken_back_within_minutes(world, bar):
    # A minute after evidence began anew: two more have to pass until it does again.
    late = replace(world, requests_per_minute=VOLUMES[0], onset_minute=DAY_MINUTES + 1)

    minutes = [minutes_from_onset(late, seed) for seed in runs(short=2, full=50)]

    say(f"{world.name} after a day in one step (bar {bar} min)", f"median {median(minutes):.1f}, most {max(minutes)}")
    assert median(minutes) <= bar


@pytest.mark.parametrize(
    ("pod_noise", "factor", "bar"), [(0.0, 2.0, 15), (0.0, 10.0, 5), (0.2, 10.0, 10)], ids=lambda value: f"{value:g}"
)
def test_a_challenger_that_turns_slow_after_a_day_in_one_step_is_taken_back_within_minutes(pod_noise, factor, bar):
    late = replace(
        wandering_pods(VOLUMES[0], pod_noise), latency_factor=factor, onset_minute=DAY_MINUTES + 1, entities=20_000
    )

    minutes = [minutes_from_onset(late, seed) for seed in runs(short=1, full=50)]

    say(f"latency x{factor:g} after a day, {late.name} (bar {bar} min)", f"median {median(minutes):.1f}")
    assert median(minutes) <= bar


@pytest.mark.parametrize("volume", VOLUMES)
def test_equal_versions_on_pods_that_wander_by_a_fifth_are_hardly_ever_rolled_back(volume):
    outcomes = [roll_out(wandering_pods(volume, 0.2), seed, minutes=120) for seed in runs(short=3)]

    false = sum(outcome.rolled_back for outcome in outcomes)
    say(f"A/A pods that wander by 20 %, {volume}/min, two hours (bar 2 %)", f"{false} of {len(outcomes)} rolled back")
    assert false <= 0.02 * len(outcomes)


@kept(float)
def minutes_from_onset(world: World, seed: int) -> float:
    """Return how long after its onset a regression takes traffic back, looking every 15 seconds for two hours."""
    traffic, step = Traffic(world, seed), LONG_STEP[0]
    hours = [stratify(traffic.windows(240 * hour, 240, step.weight_percent), ROLLOUT) for hour in range(26)]
    strata, policy = join_strata(hours), CanaryPolicy(min_entities=1)
    weights = {1: step.weight_percent}
    stage = Stage(
        "fraud",
        "42",
        ROLLOUT,
        (0.0,),
        1,
        step.weight_percent,
        weights,
        champion_before=hour_before(world, seed, traffic).blocks,
    )
    onset = 60 * world.onset_minute
    for look in range(480):
        decision = judge(strata, policy, stage, onset + WINDOW_SECONDS * look + policy.watermark_seconds)
        if decision.verdict is Verdict.ROLL_BACK:
            return WINDOW_SECONDS * look / 60
    return float("inf")


# -- incidents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("volume", "bar"), [(VOLUMES[0], 0.01), (VOLUMES[1], 5 / 300)])
def test_one_burst_of_two_minutes_does_not_roll_an_equal_challenger_back(volume, bar):
    number = (1_000 if volume == VOLUMES[0] else 300) if IS_FULL else 2
    outcomes = [roll_out(one_burst(volume), seed) for seed in runs(short=2, full=number)]

    false, ended = (sum(column) for column in zip(*((one.rolled_back, one.finished) for one in outcomes), strict=True))
    say(
        f"A/A {one_burst().name}, {volume}/min (bars {100 * bar:.2g} and 90 %)",
        f"{false} of {len(outcomes)} rolled back, {ended} ended by themselves",
    )
    assert false <= bar * len(outcomes)
    assert ended >= 0.9 * len(outcomes)


INCIDENT_STEPS = {VOLUMES[0]: Step(10, 480), VOLUMES[1]: Step(2, 480)}
"""The share from which on incidents of five minutes are found, by requests a minute."""


@pytest.mark.parametrize("after_minutes", [2.0, 60.0])
@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize("error_rate", [0.3, 1.0])
def test_an_incident_of_two_minutes_takes_no_traffic_back_and_one_of_five_does(error_rate, volume, after_minutes):
    short, long = (
        [
            minutes_from_incident(incident(volume, seconds, error_rate, after_minutes), seed)
            for seed in runs(short=2, full=50)
        ]
        for seconds in (120.0, 300.0)
    )

    back, found = (sum(minutes < float("inf") for minutes in outcomes) for outcomes in (short, long))
    say(
        f"{100 * error_rate:g} % errors from minute {after_minutes:g} on, {volume}/min (bar 1 in 50; 95 % in 5 min)",
        f"of 120 s {back} of {len(short)} back; of 300 s {found} of {len(long)}, median {median(long):.2f} min",
    )
    assert back <= len(short) / 50
    assert sum(minutes <= 5.5 for minutes in long) >= 0.95 * len(long)


@kept(float)
def minutes_from_incident(world: World, seed: int) -> float:
    """Return how long after its beginning an incident takes traffic back, looking each 15 s for twenty minutes."""
    step = INCIDENT_STEPS[int(world.requests_per_minute)]
    traffic = Traffic(world, seed)
    begins = 60 * (world.incident_minute or 0.0)
    count = int(begins // WINDOW_SECONDS) + 80
    strata = stratify(traffic.windows(0, count, step.weight_percent), ROLLOUT)
    stage = Stage("fraud", "42", ROLLOUT, (0.0,), 1, step.weight_percent, {1: step.weight_percent})
    policy = CanaryPolicy(dwell_seconds=60 * step.dwell_minutes)
    calm = CalmLooks(strata, policy, stage)
    for number in range(int(begins // WINDOW_SECONDS), count + 1):
        now = number * WINDOW_SECONDS + policy.watermark_seconds
        if not calm.has(now) and judge(strata, policy, stage, now).verdict is Verdict.ROLL_BACK:
            return (now - begins) / 60
    return float("inf")


def test_a_challenger_that_fails_every_call_is_rolled_back_within_ninety_seconds():
    world = World("every request fails", error_factor=1e6)

    outcomes = [roll_out(world, seed, look_seconds=10) for seed in runs(short=10)]

    seconds = max(60 * outcome.minute for outcome in outcomes)
    lost = max(outcome.challenger_requests for outcome in outcomes)
    typical = median(outcome.challenger_requests for outcome in outcomes)
    say("every request fails (bar 90 s)", f"slowest {seconds:.0f} s, {typical:.0f} requests lost to it, at most {lost}")
    assert all(outcome.rolled_back for outcome in outcomes)
    assert seconds <= 90
    assert typical < 100


def test_a_challenger_that_fails_from_its_first_calls_on_is_rolled_back_within_twenty_seconds():
    world = World("150 calls a second, every one of the challenger's fails", 9_000, error_factor=1e6)

    outcomes = [roll_out(world, seed, look_seconds=1, minutes=1) for seed in runs(short=10)]

    seconds = [60 * outcome.minute if outcome.rolled_back else float("inf") for outcome in outcomes]
    lost = max(outcome.challenger_requests for outcome in outcomes)
    say(
        f"{world.name} (bar 20 s)",
        f"median {median(seconds):.0f} s, slowest {max(seconds):.0f} s, at most {lost} calls",
    )
    assert max(seconds) <= 20


@pytest.mark.parametrize("weight", [2.0, 50.0])
@pytest.mark.parametrize(
    "world",
    [
        World("three of ten calls fail", 9_000, error_rate=0.3),
        World("nine of ten calls fail", 9_000, error_rate=0.9),
        World("bursts", 9_000, error_rate=0.02, bursts_per_hour=60.0),
        World("300 tenants, some of which always fail", 9_000, 0.05, zipf=0.8, entities=300, own_errors=2.0),
    ],
    ids=named,
)
def test_an_equal_challenger_is_not_rolled_back_in_its_first_minute(world, weight):
    policy = CanaryPolicy(min_entities=1)
    steps = (Step(weight, 30), Step(50, 30))

    outcomes = [
        roll_out(world, seed, policy=policy, steps=steps, look_seconds=1, minutes=1)
        for seed in runs(short=4, full=1_000)
    ]

    false = sum(outcome.rolled_back for outcome in outcomes)
    say(f"A/A in its first minute, {world.name}, {weight:g} % (bar 0.1 %)", f"{false} of {len(outcomes)} rolled back")
    assert false <= 0.001 * len(outcomes)


def test_the_seeds_rule_rolls_an_identical_model_back():
    world = World("plain", has_histograms=True)
    stage = Stage("fraud", "42", ROLLOUT, (0.0,), 5, 50.0, {1: 50.0})
    outcomes = []
    for seed in runs(short=3, full=100):
        windows = Traffic(world, seed).windows(0, 120, 50.0)
        looks = [evaluate_reference_rule(windows, stage, 60.0 * minute + 5) for minute in range(1, 31)]
        outcomes.append(any(look.verdict is Verdict.ROLL_BACK for look in looks))

    say("the reference rule on an equal model (bar: it fails)", f"{sum(outcomes)} of {len(outcomes)} in half an hour")
    assert sum(outcomes) >= 0.5 * len(outcomes)


def test_without_the_second_key_unlike_entities_would_roll_equal_challengers_back():
    world = UNEQUAL_ENTITIES[1]
    policy = CanaryPolicy()
    with_one_key, with_both = 0, 0
    seeds = runs(short=16)
    for seed in seeds:
        # 90 minutes at 10 %: thirty tenants meet the challenger.
        strata = stratify(Traffic(world, seed).windows(0, 360, 10.0), ROLLOUT)
        stage = Stage("fraud", "42", ROLLOUT, (0.0,), 5, 10.0, {1: 10.0})
        decision = judge(strata, policy, stage, 360.0 * WINDOW_SECONDS + 5)
        errors = next(row for row in decision.evidence if row.check is ERROR_RATE)
        with_one_key += (errors.evidence or 0) >= (errors.evidence_needed or 0)
        with_both += decision.verdict is Verdict.ROLL_BACK

    say("one key (bar: it fails)", f"{with_one_key} of {len(seeds)} equal challengers rolled back, both {with_both}")
    assert with_one_key >= 0.1 * len(seeds)
    assert with_both <= ceil(0.02 * len(seeds))


@pytest.mark.parametrize("lost_ratio", [0.2])
def test_a_split_that_is_not_the_policys_is_found_invalid(lost_ratio):
    world = World("lost", lost_ratio=lost_ratio)

    outcomes = [roll_out(world, seed) for seed in runs(short=2, full=50)]

    minutes = median(outcome.minute for outcome in outcomes)
    found = sum(outcome.is_invalid for outcome in outcomes)
    say("a fifth of the challenger's entities lost", f"{found} of {len(outcomes)} invalid, median minute {minutes:.0f}")
    assert found >= 0.9 * len(outcomes)


def test_any_quantile_of_the_sketch_is_within_two_percent_and_merging_is_exact_in_any_order():
    rng = np.random.default_rng(0)
    latencies = rng.lognormal(9, 1.5, 100_000).astype(np.int64) + 1
    parts = [Histogram.of(part.tolist()) for part in np.array_split(latencies, 50)]
    exact = np.sort(latencies)

    together = merged(parts)
    shares = np.linspace(0.001, 1.0, 1_000)
    errors = [abs((together.quantile(s) or 0) / exact[ceil(s * len(exact)) - 1] - 1) for s in shares]

    say("sketch (bar 2 %)", f"{100 * max(errors):.2f} %")
    assert max(errors) <= 0.02
    assert merged(parts[order] for order in rng.permutation(50)) == together


def test_the_bars_are_run_on_the_default_plan():
    assert [step.weight_percent for step in STEPS] == [2, 5, 10, 25, 50]


SHARED = 0.005
"""The champion stands in, and has as many errors as ever."""


@pytest.mark.parametrize("volume", VOLUMES if IS_FULL else VOLUMES[1:])
@pytest.mark.parametrize(
    ("world", "look_seconds"),
    [
        *([(World("errors x2", error_factor=2, shared_ratio=SHARED), 60)] if IS_FULL else []),
        (World("errors x3", error_factor=3, shared_ratio=SHARED), 60),
        (World("errors x10", error_factor=10, shared_ratio=SHARED), 10),
        (World("every request fails", error_factor=1e6, shared_ratio=SHARED), 10),
    ],
    ids=lambda value: value.name if isinstance(value, World) else "",
)
def test_errors_that_the_champion_has_now_and_then_as_well_cost_hardly_any_power(world, look_seconds, volume):
    seeds = runs(short=3, full=25)
    with_them, without = (
        [roll_out(at(one, volume), seed, look_seconds=look_seconds) for seed in seeds]
        for one in (world, replace(world, shared_ratio=0.0))
    )

    found = [sum(outcome.challenger_requests for outcome in outcomes) for outcomes in (with_them, without)]
    say(f"{world.name}, {volume}/min (bar 1.1x)", f"{found[0]:,} requests until the rollback, {found[1]:,} without")
    assert all(outcome.rolled_back for outcome in with_them)
    assert found[0] <= 1.1 * found[1]


def test_a_challenger_that_fails_every_call_is_taken_back_although_the_champion_fails_half_of_them_as_well():
    world = World("every request fails, half of them on both", error_factor=1e6, shared_ratio=0.5)

    outcomes = [roll_out(world, seed, look_seconds=10) for seed in runs(short=3)]

    requests = [outcome.challenger_requests for outcome in outcomes if outcome.rolled_back]
    say("every request fails, half of them on both (bar 400)", f"median {median(requests):,.0f}")
    assert len(requests) == len(outcomes)
    assert median(requests) <= 400


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize("bad_calls", [10, 40])
def test_calls_that_fail_on_both_versions_take_no_equal_version_back(bad_calls, volume):
    world = at(World("attacked", bad_calls_per_window=bad_calls), volume)

    outcomes = [roll_out(world, seed, minutes=60) for seed in runs(short=2, full=50)]
    waited = sum(outcome.has_shared_errors for outcome in outcomes)

    say(f"{4 * bad_calls} bad calls a minute, {volume}/min (bar 0)", f"{waited} of {len(outcomes)} wait, none is back")
    assert not any(outcome.rolled_back for outcome in outcomes)
    assert waited == len(outcomes) or bad_calls < 40  # of a few entities, which hold nothing
