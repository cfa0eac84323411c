"""What a checkup says of judges that rollouts and guards ask."""

import pytest

from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgement_records import Judgements
from understudy.registry.findings.finding import State
from understudy.registry.findings.judges import judge_asked

QUALITY = JudgeLimit("quality")


def test_a_judge_that_answers_is_good_and_one_whose_money_is_spent_is_as_it_was_asked_to_be():
    answering = judge_asked("churn", "7", QUALITY, Judgements((1.0, 2.0), (0.0, 1.0), (3, 4)), is_guard=True)
    spent = judge_asked("churn", "7", QUALITY, Judgements(idle="money_spent"), is_guard=True)

    assert (answering.name, answering.state, answering.what) == (
        "judge churn 7",
        State.GOOD,
        "2 judgements by quality",
    )
    assert (spent.state, spent.what) == (State.GOOD, "0 judgements by quality; the money of this day is spent")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Judgements(failing=5, problem="down"), "quality cannot be reached (5 questions)"),
        (Judgements(idle="unknown_judge"), "UNDERSTUDY_JUDGES of the monitor that leads has no judge quality"),
        (Judgements(idle="no_inputs"), "no inputs of the champion's calls are logged"),
        (Judgements(idle="no_answers"), "the challenger's model server gives the monitor no answers"),
    ],
)
def test_a_judge_that_cannot_be_relied_on_or_asked_is_worth_a_look(said, why):
    of_guard = judge_asked("churn", "7", QUALITY, said, is_guard=True)
    of_rollout = judge_asked("churn", "7", QUALITY, said, is_guard=False)

    assert of_guard.state is of_rollout.state is State.WARNING
    assert of_guard.what == f"{why}; the guard judges by its other checks alone"
    assert of_rollout.what == f"{why}; the step waits"
    assert "understudy rollout show churn" in of_guard.next_step
