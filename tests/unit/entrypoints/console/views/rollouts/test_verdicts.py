"""The page of stored verdicts counts those that are the same, another one, or damaged, in the command line's words."""

import pytest

from understudy.core.canary.decision import Decision, Verdict
from understudy.entrypoints.console.views.rollouts.verdicts import MAX_SHOWN, VerdictsSeen, verdicts_page
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.verdicts.replay import Damage, Replay

DECISION = Decision(Verdict.ROLL_BACK, "errors: 4 x", place="churn 7 at 10 %")
EVENT = RolloutEventRecord(4, 1.7e9, 0, "PROGRESSING", Verdict.HOLD, "too early", (), {}, {}, "0.1.0", "monitor")
SAME, OTHER, DAMAGED = Replay(DECISION, agrees=True), Replay(DECISION, agrees=False), Damage("it is no list")


@pytest.mark.parametrize(
    ("replays", "sentence", "tone"),
    [
        ([], "No verdict was stored yet.", "calm"),
        ([SAME], "Judged again, 1 stored verdict: each is the same.", "calm"),
        ([SAME, SAME], "Judged again, 2 stored verdicts: each is the same.", "calm"),
        ([SAME, DAMAGED], "Judged again, 2 stored verdicts: 1 the same, 1 cannot be read any more.", "bad"),
        ([OTHER], "Judged again, 1 stored verdict: 0 the same, 1 come to another verdict.", "bad"),
    ],
)
def test_the_sentence_counts_every_verdict(replays, sentence, tone):
    page = verdicts_page(VerdictsSeen("churn", 3, [(EVENT, replay) for replay in replays]))

    assert (page.sentence, page.tone) == (sentence, tone)


def test_a_row_says_what_the_command_line_says_and_only_the_same_is_calm():
    page = verdicts_page(VerdictsSeen("churn", 3, [(EVENT, SAME), (EVENT, OTHER), (EVENT, DAMAGED)]))

    assert [(row.replay, row.replay_tone) for row in page.rows] == [
        ("event 4 is damaged, and what rests on it is left out: it is no list", "bad"),
        ("now ROLL BACK churn 7 at 10 %: errors: 4 x", "bad"),
        ("the same verdict", "calm"),
    ]
    assert page.commands == ("understudy rollout show churn 3",)


def test_the_newest_are_shown_and_all_are_counted():
    page = verdicts_page(VerdictsSeen("churn", 3, [(EVENT, SAME)] * (MAX_SHOWN + 2)))

    assert (len(page.rows), page.left_out) == (MAX_SHOWN, 2)
    assert f"{MAX_SHOWN + 2} stored verdicts" in page.sentence
