"""Calls that fail on both versions: an operator is asked once, and no version is taken back; over a real Postgres."""

from collections.abc import Sequence

import asyncpg
import pytest
from command import CommandLine
from failing.calls import with_failures
from worlds.rollout import TWINS, PastRollout

from understudy.core.canary.decision import CheckState
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Phase, WaitingFor
from understudy.core.windows.window import Window
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.verdicts.replay import Replay, judged_again

pytestmark = pytest.mark.timeout(120)
PLAN = RolloutPlan((Step(10, 3_000, 1_000), Step(100, 0, 0)), canary_limits={"detectable_ratio": 3})
BAD_CALLS = list(range(0, 64, 3))


class Attacked(PastRollout):
    """A rollout of equal versions, one of whose callers sends the challenger what fails on both."""

    def _row(self, window: Window, view: RolloutView, rollout_id: int) -> Sequence[object]:
        (changed,) = with_failures([window], BAD_CALLS)
        return super()._row(changed, view, rollout_id)


@pytest.fixture
async def attacked(database: asyncpg.Connection, database_url: str) -> Attacked:
    world = Attacked(database, database_url, TWINS, seconds_ago=4_000)
    await world.begin(PLAN)
    return world


async def test_calls_that_fail_on_both_versions_stop_a_rollout_for_a_person_once(
    attacked: Attacked, database: asyncpg.Connection, understudy: CommandLine
):
    for _ in range(8):
        await attacked.go_on(1)
        waits = await attacked.store.view(attacked.id)
        if waits.record.state.phase is Phase.WAITING:
            break
    shown = await understudy.beside("rollout", "show", "churn")
    resumed = await understudy.beside("rollout", "resume", "churn", "--reason", "a test of ours", "--yes")
    await attacked.go_on(2)
    same_monitor = await attacked.store.view(attacked.id)
    attacked.starts_anew()
    await attacked.go_on(2)
    next_monitor = await attacked.store.view(attacked.id)
    again = [found for _, found in judged_again(await attacked.store.events(attacked.id)) if isinstance(found, Replay)]

    assert (waits.record.state.phase, waits.record.state.waiting_for) == (Phase.WAITING, WaitingFor.TIME)
    assert waits.policy is not None
    assert waits.policy.weight_percent == 10
    assert "failed calls also failed on the champion that stood in" in waits.record.state.reason
    assert "champion" in shown.out
    assert "failed too" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert resumed.code == 0
    assert same_monitor.record.state.phase is next_monitor.record.state.phase is Phase.PROGRESSING
    assert await database.fetchval("SELECT count(*) FROM AlertOutbox WHERE action = 'trigger'") == 1
    assert [found.agrees for found in again] == [True] * len(again)
    assert CheckState.SHARED in {row.state for found in again for row in found.decision.evidence}
    exposed = attacked.telemetry.exposition()[0].decode()
    assert 'rollout_transitions_total{model="churn",reason="shared_errors",to="WAITING"} 1.0' in exposed
