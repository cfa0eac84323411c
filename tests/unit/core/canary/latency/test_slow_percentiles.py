from dataclasses import replace

import pytest
from stats.simulated_rollouts import hour_before
from stats.worlds import ROLLOUT, Traffic, World, slow_thousandths, slower_hundredths, wandering_pods

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Check, CheckState, Decision, Evidence, Verdict
from understudy.core.canary.latency.slow_percentiles import SLOW_P99, SLOW_P999
from understudy.core.canary.latency.slow_tail import SLOW_TAIL
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.windows.strata import stratify

POLICY = CanaryPolicy(dwell_seconds=86_400.0)
STAGE = Stage("fraud", "42", ROLLOUT, (0.0,), 5, 10.0, {1: 10.0})
MINUTES = 20


def decided(world: World, rules: Rules = Rules.TAILS, **changes: object) -> Decision:
    traffic = Traffic(world, 1)
    strata = stratify(traffic.windows(0, 4 * MINUTES, 10.0), ROLLOUT)
    before = hour_before(world, 1, traffic)
    stage = replace(STAGE, rules=rules, champion_before=before.blocks, tail_steps=before.tail_steps)
    return judge(strata, POLICY, replace(stage, **changes), 60.0 * MINUTES + 5)  # type: ignore[arg-type]


def row_of(decision: Decision, check: Check) -> Evidence:
    return next(row for row in decision.evidence if row.check is check)


@pytest.mark.deep
@pytest.mark.parametrize("world", [slow_thousandths(), slower_hundredths()], ids=lambda world: world.name)
def test_slowest_answers_that_get_slower_are_rolled_back_and_earlier_rules_did_not_see_them(world):
    found, earlier = decided(world), decided(world, Rules.DAYS)

    assert found.verdict is Verdict.ROLL_BACK
    assert row_of(found, SLOW_P999).state is CheckState.FAIL
    assert row_of(found, TYPICAL_LATENCY).state is CheckState.OK
    assert "slowest 0.1 % " in found.reason
    assert earlier.verdict is Verdict.HOLD
    assert {row.check for row in found.evidence} - {row.check for row in earlier.evidence} == {SLOW_P99, SLOW_P999}


@pytest.mark.deep
def test_equal_versions_pass_and_pods_that_wander_are_no_slower_tail():
    for world in (replace(slow_thousandths(), slowest_ratio=0.0), wandering_pods(3_000, 0.2)):
        decision = decided(world)

        assert {row_of(decision, check).state for check in (SLOW_TAIL, SLOW_P99, SLOW_P999)} == {CheckState.OK}


def test_a_release_before_counted_no_tails_so_that_nothing_is_known():
    decision = decided(slow_thousandths(333), tail_steps=())

    for check in (SLOW_P99, SLOW_P999):
        row = row_of(decision, check)
        assert (row.state, row.change) == (CheckState.TOO_EARLY, None)
        assert check.title not in decision.reason
