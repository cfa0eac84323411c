"""Looks that make no analysis change no outcome, whatever is wrong with the challenger."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from stats.calm_looks import CalmLooks
from stats.simulated_rollouts import STEPS, hour_before, roll_out
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, plain, slow_thousandths, wandering_pods

from understudy.core.canary.analysis import judge
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import Strata, stratify

POLICY = CanaryPolicy()


@pytest.mark.parametrize(
    "world",
    [
        plain(),
        World("errors x3", error_factor=3.0),
        World("every request fails", error_factor=1e6),
        World("latency x1.3 from minute 45 on", latency_factor=1.3, onset_minute=45),
        World("cold server x4", cold_factor=4.0),
        World("a fifth of its entities lost", lost_ratio=0.2),
        World("errors x3, half of them on both", error_factor=3.0, shared_ratio=0.5),
    ],
    ids=lambda world: world.name,
)
def test_looks_that_are_left_out_change_no_outcome(world):
    slower = replace(world, requests_per_minute=333)

    assert roll_out(slower, 0, minutes=90) == roll_out(slower, 0, minutes=90, analyses_calm_looks=True)


def one_step(world: World, minutes: int) -> tuple[Strata, Stage]:
    traffic = Traffic(world, 0)
    strata, before = stratify(traffic.windows(0, minutes * PER_MINUTE, 10.0), ROLLOUT), hour_before(world, 0, traffic)
    stage = Stage(
        "fraud", "42", ROLLOUT, (0.0,), len(STEPS), 10.0, {1: 10.0},
        champion_before=before.blocks, tail_steps=before.tail_steps,
    )  # fmt: skip
    return strata, stage


@pytest.mark.parametrize(
    ("world", "looks", "reached"),
    [
        (World("errors x10", error_factor=10.0, onset_minute=10), range(15, 60), "error_rate"),
        (World("slowest tenth x3", slowest_tenth_factor=3.0), range(10, 40), "slow_tail"),
        (World("slowest 3 % x3", 3_000, slowest_hundredths_factor=3.0), range(3, 13), "slow_p99"),
        (slow_thousandths(), range(3, 13), "slow_p999"),
        (World("latency x1.3", latency_factor=1.3, onset_minute=10), range(15, 60), "typical_latency"),
        # It got faster as a server that gets warm does, so only what came then counts.
        (
            World("faster, then slower", cold_factor=1.01, warm_factor=0.3, latency_factor=7.0, onset_minute=20),
            range(15, 40),
            "typical_latency",
        ),
        (
            World("latency x10 after three hours", latency_factor=10.0, onset_minute=180),
            range(170, 200),
            "latency_change",
        ),
        (wandering_pods(pod_noise=0.2), range(5, 60, 5), None),
    ],
    ids=lambda value: value.name if isinstance(value, World) else "",
)
def test_no_check_that_is_said_not_to_fail_has_the_evidence_for_it(world, looks, reached):
    volume = 3_000 if reached in {"slow_p99", "slow_p999"} else 333  # fewer calls know no such percentile
    strata, stage = one_step(replace(world, requests_per_minute=volume), looks.stop)
    calm = CalmLooks(strata, POLICY, stage)

    rows = [(60.0 * minute, row) for minute in looks for row in judge(strata, POLICY, stage, 60.0 * minute).evidence]
    proven = [(row.check.name, now) for now, row in rows if (row.evidence or 0) >= (row.evidence_needed or 0)]

    assert reached is None or reached in {name for name, _ in proven}
    assert not [place for place in proven if calm.cannot_fail[place[0]][calm.closed(place[1])]]


def two_steps(parts: Sequence[tuple[World, int]], second_minute: int, seed: int = 0) -> tuple[Strata, Stage]:
    """Return the traffic of one world after the other, each until a minute, in a rollout that is in its second step."""
    windows, known = [], 0
    for world, minute in parts:
        windows += Traffic(world, seed).windows(
            known, minute * PER_MINUTE - known, 10.0, 1 + (known >= second_minute * 4)
        )
        known = minute * PER_MINUTE
    stage = Stage("fraud", "42", ROLLOUT, (0.0, 60.0 * second_minute), len(STEPS), 10.0, {1: 10.0, 2: 10.0})
    return stratify(windows, ROLLOUT), stage


PLAIN = World("plain", 333)
TWICE = World("latency x2", 333, latency_factor=2.0)
FASTER_THEN_SLOWER = World(
    "faster, then slower",
    333,
    cold_factor=1.01,
    warm_factor=0.3,
    warming_minutes=3.0,
    latency_factor=7.0,
    onset_minute=15,
)
HALF = World("latency x0.5", 333, latency_factor=0.5)
FAILING = World("every request fails", 333, error_factor=1e6)


@pytest.mark.parametrize(
    ("parts", "second_minute", "looks", "reached"),
    [
        # Fast for an hour, so that the mean since the first call says nothing yet: the second step's process does.
        ([(HALF, 60), (TWICE, 90)], 60, range(61, 90), "typical_latency"),
        # It got faster as a server that gets warm does, was slow until the second step began, and is equal in that:
        # since its first call and since that step it is no slower, since the moment when it was warm it is.
        ([(FASTER_THEN_SLOWER, 25), (PLAIN, 30)], 25, range(26, 31), "typical_latency"),
        # The same, but slow from the moment on when nothing counts as cold any longer, and its first half hour is over.
        ([(replace(FASTER_THEN_SLOWER, onset_minute=30), 40)], 25, range(31, 40), "typical_latency"),
        ([(PLAIN, 60), (World("errors x10", 333, error_factor=10.0), 90)], 60, range(61, 90), "error_rate"),
        ([(PLAIN, 240), (World("latency x10", 333, latency_factor=10.0), 260)], 60, range(235, 260), "latency_change"),
    ],
    ids=["slower in the second step", "cold in the first step", "cold until half an hour", "errors", "late change"],
)
def test_in_a_later_step_no_check_that_is_said_not_to_fail_has_the_evidence_for_it(
    parts, second_minute, looks, reached
):
    strata, stage = two_steps(parts, second_minute)
    calm = CalmLooks(strata, POLICY, stage)

    rows = [(60.0 * minute, row) for minute in looks for row in judge(strata, POLICY, stage, 60.0 * minute).evidence]
    proven = [(row.check.name, now) for now, row in rows if (row.evidence or 0) >= (row.evidence_needed or 0)]

    assert reached in {name for name, _ in proven}
    assert not [place for place in proven if calm.cannot_fail[place[0]][calm.closed(place[1])]]
    assert any(calm.has(60.0 * minute) for minute in looks) or reached == "typical_latency"


def test_nearly_all_looks_at_equal_versions_are_calm_and_none_at_a_challenger_that_fails_every_call():
    shares = {}
    for world in (plain(333), World("every request fails", 333, error_factor=1e6)):
        strata, stage = one_step(world, 90)
        calm, looks = CalmLooks(strata, POLICY, stage), range(31, 91)
        shares[world.name] = sum(calm.has(60.0 * minute) for minute in looks) / len(looks)

    assert shares["plain"] >= 0.8
    assert shares["every request fails"] == 0
