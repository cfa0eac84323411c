from dataclasses import replace

import pytest
from stats.simulated_rollouts import hour_before
from stats.worlds import ROLLOUT, Traffic, wandering_pods

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import CheckState, Evidence
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.windows.strata import stratify

POLICY = CanaryPolicy()
STAGE = Stage("fraud", "42", ROLLOUT, (0.0,), 5, 2.0, {1: 2.0})


def row_at(minute: int, factor: float, pod_noise: float, stage: Stage = STAGE) -> Evidence:
    """Return the row of a challenger on calm pods, beside a champion whose pods wandered in the hour before."""
    traffic = Traffic(replace(wandering_pods(3_000, 0.0), latency_factor=factor), 1)
    strata = stratify(traffic.windows(0, 40, 2.0), ROLLOUT)
    knows = replace(stage, champion_before=hour_before(wandering_pods(3_000, pod_noise), 1, traffic).blocks)
    decision = judge(strata, POLICY, knows, 60.0 * minute + 5)
    return next(row for row in decision.evidence if row.check is TYPICAL_LATENCY)


@pytest.mark.deep
def test_a_difference_that_the_champions_pods_make_by_themselves_fails_no_challenger():
    on_calm_pods, on_wandering_pods = row_at(5, 1.45, 0.0), row_at(5, 1.45, 0.2)

    assert (on_calm_pods.state, on_wandering_pods.state) == (CheckState.FAIL, CheckState.OK)
    assert (on_wandering_pods.change_low or 0) < 1 < (on_calm_pods.change_low or 0)


@pytest.mark.deep
def test_earlier_rules_did_not_know_the_pods():
    assert row_at(5, 1.45, 0.2, replace(STAGE, rules=Rules.INCIDENTS)).state is CheckState.FAIL


@pytest.mark.deep
def test_on_such_pods_ten_times_the_latency_still_fails():
    assert row_at(5, 10.0, 0.2).state is CheckState.FAIL
