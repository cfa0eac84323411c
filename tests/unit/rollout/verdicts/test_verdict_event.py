"""What is stored of the windows that a verdict rests on."""

from dataclasses import replace
from typing import cast

import orjson
import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy import __version__
from understudy.core.canary.decision import Verdict
from understudy.core.canary.limits import Stage
from understudy.core.canary.post_promotion import judge_watch, past_of, watch_of
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import new_rollout_state
from understudy.core.windows.strata import Side, Strata, stratify
from understudy.core.windows.strata_codec import strata_digest, strata_from_text
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView
from understudy.rollout.verdicts.replay import Replay, replayed
from understudy.rollout.verdicts.verdict_event import is_after_promotion, stored_strata, watch_event


@pytest.fixture(scope="module")
def strata() -> Strata:
    world = World("any", requests_per_minute=60)
    return stratify(Traffic(world, 1).windows(0, 5 * PER_MINUTE, 20.0), ROLLOUT)


async def test_a_verdict_can_be_judged_again_from_what_is_stored(strata):
    stored = await stored_strata(strata)

    assert stored.keys() == {"strata"}
    assert strata_digest(strata_from_text(cast("str", stored["strata"]))) == strata_digest(strata)


async def test_a_decision_is_made_although_its_windows_cannot_be_stored(strata):
    stored = await stored_strata(replace(strata, champion=cast("Side", None)))

    assert stored == {"strata_windows": len(strata.starts)}


@pytest.mark.parametrize("minutes", [2, 6], ids=["each past window is used once", "later windows are added to them"])
@pytest.mark.parametrize("code_version", [__version__, "0.0.9"])
async def test_a_verdict_about_a_new_champion_comes_to_the_same_again(minutes, code_version):
    traffic = Traffic(World("dead", requests_per_minute=240, error_factor=1e6, onset_minute=3), 1)
    before = traffic.windows(0, 3 * PER_MINUTE, 50.0, 1)
    windows = [*before, *traffic.windows(3 * PER_MINUTE, minutes * PER_MINUTE, 100.0, 2)]
    stage, now = Stage("churn", "7", ROLLOUT, (0.0, 180.0), 2, 100.0, {1: 50.0}), 180.0 + 60 * minutes + 5
    watch = watch_of(past_of(windows, stage, 0), windows, stage, 1, now)
    assert watch is not None
    decision = judge_watch(watch, now)
    state = new_rollout_state(ROLLOUT, "churn", RolloutPlan((Step(100, 0, 0),)), PolicySeen("6", "7", 0, 1, ROLLOUT), 0)
    record = RolloutRecord(ROLLOUT, state, 3, 0, 1, "salt", None, None, "dana", None, None)

    event = await watch_event(RolloutView(record, None, {}, 1, 1, {}, read_at=now), decision, watch)

    written = orjson.loads(orjson.dumps(event._asdict() | {"verdict": None}, option=orjson.OPT_NON_STR_KEYS))
    stored = RolloutEventRecord(
        1, now, 0, "FAILED", Verdict.ROLL_BACK, "bad", written["evidence"], written["inputs"], written["thresholds"],
        code_version, "monitor",
    )  # fmt: skip
    assert is_after_promotion(stored.inputs)
    assert replayed(stored) == Replay(decision, agrees=True)
