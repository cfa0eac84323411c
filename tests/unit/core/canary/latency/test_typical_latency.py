from stats.simulated_rollouts import hour_before
from stats.worlds import ROLLOUT, Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import CheckState, Evidence
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.windows.strata import stratify


def test_a_latency_that_scatters_widely_is_found_while_its_blocks_of_windows_are_few():
    """A quarter of an hour of a version that is 1.3 times as slow, by the rules before and by these."""
    world = World("heavy tail", 3_000, tail_ratio=0.02, log_sigma=0.8, latency_factor=1.3)
    traffic = Traffic(world, 4)
    strata, before = stratify(traffic.windows(0, 60, 2.0), ROLLOUT), hour_before(world, 4, traffic)

    def row(rules: Rules) -> Evidence:
        stage = Stage("fraud", "42", ROLLOUT, (0.0,), 5, 2.0, {1: 2.0}, champion_before=before.blocks, rules=rules)
        return next(row for row in judge(strata, CanaryPolicy(), stage, 905.0).evidence if row.check is TYPICAL_LATENCY)

    found, earlier = row(Rules.MODERATED), row(Rules.CHANGES)

    assert (found.state, earlier.state) == (CheckState.FAIL, CheckState.UNPROVEN)
    assert (found.change, found.challenger) == (earlier.change, earlier.challenger), "what is measured is the same"
