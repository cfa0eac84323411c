"""What of a warm-up is decided, stored, and judged again."""

from dataclasses import replace

import orjson
import pytest

from understudy import __version__
from understudy.core.canary.decision import Verdict
from understudy.core.canary.scores.constant_scores import LiveScores, live_scores_to_json
from understudy.core.canary.scores.score_agreement import PairSource, ScorePairs, judge_agreement
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Phase, WaitingFor, WarmUpResult, new_rollout_state
from understudy.core.windows.histogram import Histogram
from understudy.ports.rollout.rollout_store import NewRolloutEvent, RolloutEventRecord
from understudy.rollout.verdicts.replay import Damage, Replay, judged_again
from understudy.rollout.warm_up.warm_up_verdict import (
    EXPECTED,
    WarmedUp,
    are_different_scores_expected,
    constant_event,
    held_by_scores,
)

PASSED = WarmUpResult(passed=True, detail="5 example calls answered")
SCORES = [place / 200 for place in range(200)]
INVERTED = judge_agreement(ScorePairs(PairSource.LOG, SCORES, [-score for score in SCORES]))
FEW = judge_agreement(ScorePairs(PairSource.LOG, SCORES[:9], SCORES[:9]))
BEFORE = new_rollout_state(1, "churn", NAMED_PLANS["default"], PolicySeen("6", "7", 0, 3, 1), 100.0)
HELD = replace(BEFORE, phase=Phase.WAITING, waiting_for=WaitingFor.WARM_UP)
BEGUN = replace(BEFORE, step_starts=(130.0,))


def stored(event: NewRolloutEvent) -> RolloutEventRecord:
    """Return the event as it comes back from Postgres."""
    inputs = orjson.loads(orjson.dumps(event.inputs))
    return RolloutEventRecord(1, 130.0, 0, "WAITING", event.verdict, "held", (), inputs, {}, __version__, "monitor")


def test_different_scores_hold_unless_they_are_expected():
    held, expected = WarmedUp(PASSED, INVERTED), WarmedUp(PASSED, INVERTED, is_expected=True)

    assert held.result.scores_differ
    assert not expected.result.scores_differ
    assert expected.result.scores.endswith("the limit is 0.5; that was expected")
    assert WarmedUp(PASSED).result == PASSED


def test_the_verdict_is_stored_with_its_pairs_and_judged_again_to_the_same():
    held = stored(WarmedUp(PASSED, INVERTED).event("monitor", BEFORE, HELD))
    begun = stored(WarmedUp(PASSED, INVERTED, is_expected=True).event("monitor", BEFORE, BEGUN))

    replays = [found for _, found in judged_again([held, begun])]

    assert [event.verdict for event in (held, begun)] == [Verdict.HOLD, Verdict.ADVANCE]
    assert [found.agrees for found in replays if isinstance(found, Replay)] == [True, True]
    assert held_by_scores([held])
    assert not held_by_scores([held, begun])


def test_other_pairs_another_verdict_or_other_words_do_not_agree():
    event = stored(WarmedUp(PASSED, INVERTED).event("monitor", BEFORE, HELD))
    kept = event.inputs["agreement"]
    alike = {**kept, "pairs": [[one, one] for one, _ in kept["pairs"]]}
    changed = [
        event._replace(inputs={"agreement": alike}),
        event._replace(verdict=Verdict.ADVANCE),
        event._replace(inputs={"agreement": {**kept, "words": "it gives 1 score"}}),
    ]

    replays = [found for _, found in judged_again(changed)]

    assert [isinstance(found, Replay) and found.agrees for found in replays] == [False] * 3


@pytest.mark.parametrize("left_out", ["pairs", "source", "is_expected", "words"])
def test_a_stored_verdict_that_another_hand_has_damaged_says_so(left_out):
    event = stored(WarmedUp(PASSED, INVERTED).event("monitor", BEFORE, HELD))
    kept = {name: value for name, value in event.inputs["agreement"].items() if name != left_out}

    ((_, found),) = judged_again([event._replace(inputs={"agreement": kept})])

    assert isinstance(found, Damage)


def test_the_verdict_on_a_constant_score_is_judged_again_to_the_same():
    scores = LiveScores(Histogram.of(SCORES), Histogram.of([0.42] * 30), 8)
    event = stored(constant_event("monitor", scores))
    other = event._replace(inputs={"constant_scores": live_scores_to_json(scores._replace(buckets=3))})

    replays = [found for _, found in judged_again([event, other])]

    assert event.verdict is Verdict.HOLD
    assert [isinstance(found, Replay) and found.agrees for found in replays] == [True, False]
    assert held_by_scores([event])


def test_nothing_is_stored_of_too_few_pairs_nor_with_a_transition_that_is_about_something_else():
    conflict = replace(BEFORE, phase=Phase.WAITING, waiting_for=WaitingFor.CONFLICT)

    for found, after in (
        (WarmedUp(PASSED, FEW), BEGUN),
        (WarmedUp(PASSED, INVERTED), conflict),
        (WarmedUp(PASSED), BEGUN),
    ):
        assert found.event("monitor", BEFORE, after) == NewRolloutEvent("monitor")


def test_only_an_operators_own_word_makes_different_scores_expected():
    event = stored(NewRolloutEvent("dana", inputs={EXPECTED: True}))

    assert are_different_scores_expected([event])
    assert not are_different_scores_expected([event._replace(inputs={EXPECTED: "true"}), event._replace(inputs={})])
