"""Looks that make no analysis change no outcome, whatever is wrong with the challenger."""

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


def test_nearly_all_looks_at_equal_versions_are_calm_and_none_at_a_challenger_that_fails_every_call():
    shares = {}
    for world in (plain(333), World("every request fails", 333, error_factor=1e6)):
        strata, stage = one_step(world, 90)
        calm, looks = CalmLooks(strata, POLICY, stage), range(31, 91)
        shares[world.name] = sum(calm.has(60.0 * minute) for minute in looks) / len(looks)

    assert shares["plain"] >= 0.8
    assert shares["every request fails"] == 0
