"""What a judge's questions come to: pairs in both orders, ones under way, lost ones, and who fails."""

from typing import Any

from understudy.core.canary.judgement_records import (
    LOST_SECONDS,
    Judgements,
    JudgeOutcome,
    JudgeQuestion,
    JudgeRecord,
    judgements_of,
    outcome_of,
)

ANSWERED, SLOW, EQUAL = JudgeOutcome.ANSWERED, JudgeOutcome.SLOW, JudgeOutcome.EQUAL
NOW = 1_000.0


def question(number: int, pair: str, difference: float | None = None, **changes: Any) -> JudgeQuestion:
    """Return a question that was answered at once, unless ``changes`` say something else."""
    at = 100.0 + number
    usual = JudgeQuestion(number, pair, True, 7, at, 2_000, ANSWERED, at + 1, difference)
    return usual._replace(**changes)


def found(*questions: JudgeQuestion, now: float = NOW) -> Judgements:
    return judgements_of(JudgeRecord(questions), now)


def test_a_pair_in_both_orders_counts_once_with_the_mean_of_both():
    both = [question(1, "a", -1.0), question(2, "a", 1.0, is_challenger_first=False), question(3, "b", 1.0)]

    seen = found(*both)

    assert seen.differences == (0.0, 1.0)
    assert seen.times == (103.0, 104.0)
    assert (seen.both_ways, seen.contradicted) == (1, 1)
    assert (seen.asked, seen.answered, seen.first_points) == (3, 3, 1.0)
    assert seen.spent_micros == 6_000


def test_a_pair_counts_once_nothing_of_it_is_under_way():
    half = [question(1, "a", -1.0), question(2, "a", outcome=None, answered_at=None, is_challenger_first=False)]

    assert found(*half, now=110.0).differences == ()
    assert found(*half, now=102.0 + LOST_SECONDS).differences == (-1.0,)


def test_equal_answers_are_a_tie_that_costs_nothing_and_is_no_question():
    seen = found(question(1, "a", 0.0, outcome=EQUAL, cost_micros=0), question(2, "b", -1.0))

    assert (seen.differences, seen.equal, seen.asked, seen.spent_micros) == ((0.0, -1.0), 1, 1, 2_000)


def test_a_question_without_an_answer_is_paid_for_and_is_no_judgement():
    seen = found(question(1, "a", 1.0), *(question(number, f"p{number}", outcome=SLOW) for number in range(2, 5)))

    assert (seen.differences, seen.failing, seen.problem, seen.spent_micros) == ((1.0,), 3, "slow", 8_000)
    assert found(question(1, "a", outcome=SLOW), question(2, "b", 1.0)).failing == 0


def test_what_a_leader_took_with_it_is_lost_and_does_not_hide_that_a_judge_fails():
    lost = [question(number, f"p{number}", outcome=None, answered_at=None) for number in range(1, 4)]

    assert found(*lost, now=105.0) == Judgements(asked=3, spent_micros=6_000)
    assert (found(*lost).failing, found(*lost).problem) == (3, "slow")


def test_a_word_of_a_newer_release_is_no_answer():
    assert outcome_of("pondering") is JudgeOutcome.UNREADABLE
    assert outcome_of(None) is None
