"""Mean scores that have moved: how often they are looked at, of which rollouts, and how a verdict is judged again."""

from dataclasses import replace

import orjson
import pytest
from stats.worlds import ROLLOUT, Traffic, World

from understudy import __version__
from understudy.core.canary.decision import Verdict
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Kind, Phase, new_rollout_state
from understudy.core.windows.strata import stratify
from understudy.ports.rollout.rollout_store import NewRolloutEvent, RolloutEventRecord, RolloutRecord, RolloutView
from understudy.rollout.checks.moved_scores import LOOK_SECONDS, MovedScores, moved_event
from understudy.rollout.stored_move import MOVED
from understudy.rollout.verdicts.replay import Damage, Replay, judged_again
from understudy.rollout.warm_up.warm_up_verdict import held_by_scores

POLICY = PolicySeen("6", "7", 0, 3, 1)
STATE = replace(new_rollout_state(1, "churn", NAMED_PLANS["default"], POLICY, 0.0), step_starts=(0.0,))
WORLD = World("moved", 2_000, entities=20_000, has_scores=True, own_scores=True, score_shift=0.1)
STRATA = stratify(Traffic(WORLD, 1).windows(0, 80, 20.0), ROLLOUT)


def a_view(now: float = 1_205.0, **changes: object) -> RolloutView:
    record = RolloutRecord(1, replace(STATE, **changes), 3, 1, 2, "salt", 9_000, None, "dana", None, None)  # type: ignore[arg-type]
    return RolloutView(record, POLICY, {1: 20}, 1, 1, {}, now)


def stored(event: NewRolloutEvent) -> RolloutEventRecord:
    """Return the event as it comes back from Postgres."""
    inputs = orjson.loads(orjson.dumps(event.inputs))
    return RolloutEventRecord(1, 130.0, 0, "WAITING", event.verdict, "held", (), inputs, {}, __version__, "monitor")


async def test_each_rollout_is_looked_at_once_a_minute():
    scores = MovedScores()

    first = await scores.look(a_view(), STRATA)
    again = await scores.look(a_view(1_205.0 + LOOK_SECONDS - 1), STRATA)
    later = await scores.look(a_view(1_205.0 + LOOK_SECONDS), STRATA)

    assert first is not None
    assert "the limit is 0.1" in first.words
    assert again is None
    assert later is not None


async def test_a_rollout_that_is_over_is_forgotten():
    scores = MovedScores()
    await scores.look(a_view(), STRATA)

    scores.forget_others(())

    assert await scores.look(a_view(), STRATA) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": Kind.GUARD},
        {"phase": Phase.WAITING},
        {"promoted_at": 600.0},
        {"step_starts": ()},
        {"plan": replace(NAMED_PLANS["default"], canary_limits={"score_shift_limit": 2.0})},
    ],
    ids=["guard", "waits", "promoted", "not begun", "a limit of its own"],
)
async def test_what_is_not_on_its_way_or_has_a_limit_of_its_own_is_not_looked_at(changes):
    assert await MovedScores().look(a_view(**changes), STRATA) is None


async def test_without_windows_nothing_is_looked_at():
    assert await MovedScores().look(a_view(), None) is None


async def test_the_verdict_is_stored_with_its_windows_and_judged_again_to_the_same():
    moved = await MovedScores().look(a_view(), STRATA)
    assert moved is not None

    event = stored(await moved_event("monitor", moved))

    assert event.verdict is Verdict.HOLD
    assert held_by_scores([event])
    [(_, replay)] = judged_again([event])
    assert isinstance(replay, Replay)
    assert replay.agrees
    assert replay.decision.reason == moved.words


async def test_a_verdict_on_more_windows_than_are_stored_holds_by_scores_and_is_not_judged_again():
    moved = await MovedScores().look(a_view(), STRATA)
    assert moved is not None
    event = stored(NewRolloutEvent("monitor", Verdict.HOLD, inputs=moved.inputs({"strata_windows": 9_000})))

    assert held_by_scores([event])
    assert judged_again([event]) == [(event, None)]


async def test_a_damaged_verdict_is_said_to_be():
    moved = await MovedScores().look(a_view(), STRATA)
    assert moved is not None
    event = stored(await moved_event("monitor", moved))
    damaged = event._replace(inputs={MOVED: {**event.inputs[MOVED], "step_starts": "x"}})

    [(_, replay)] = judged_again([damaged])

    assert isinstance(replay, Damage)
