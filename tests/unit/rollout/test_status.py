"""Which calls of the log are asked for, to say what a challenger's calls failed with."""

import pytest

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import new_rollout_state
from understudy.ports.prediction_log.prediction_history import LoggedFailures, TrialAsked
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.status import MAX_FAILURE_ROWS, failures_of

PLAN = RolloutPlan((Step(10, 300, 1_000), Step(100, 0, 0)), keep_warm_seconds=1_800)
STATE = new_rollout_state(1, "churn", PLAN, PolicySeen("6", "7", 0, 4, 1), 1_000.0)


class History:
    """Answers every question alike and keeps the last one."""

    def __init__(self) -> None:
        self.asked: tuple[TrialAsked, int] | None = None

    async def failures(self, trial: TrialAsked, at_most: int) -> LoggedFailures:
        self.asked = trial, at_most
        return LoggedFailures({"E503": 3}, is_whole=True)


@pytest.mark.parametrize(("finished_at", "until"), [(None, 9_060.0), (5_000.0, 5_060.0)])
async def test_the_calls_of_the_rollouts_own_time_are_asked_for_and_so_many_at_most(finished_at, until):
    record = RolloutRecord(5, STATE, 3, 11, 12, "salt", 9_000, None, "dana", finished_at, None)
    history = History()

    found = await failures_of(history, RolloutView(record, None, {}, 1, 1, {}, read_at=9_000.0))

    assert found.calls_by_code == {"E503": 3}
    assert history.asked == (TrialAsked(5, 11, 12, 940.0, until), MAX_FAILURE_ROWS)
