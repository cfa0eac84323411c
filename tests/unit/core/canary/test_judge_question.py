"""What a judge is sent, and how its answer is read."""

import orjson
import pytest

from understudy.core.canary.judge_question import compared_answer, pair_of, question_to_json, read_judgement


@pytest.mark.parametrize(
    ("answer", "difference"),
    [
        ({"id": "judge_7", "winner": "first"}, 1.0),
        ({"id": "judge_7", "winner": "second"}, -1.0),
        ({"id": "judge_7", "winner": "tie", "why": "both are fine"}, 0.0),
        ({"id": "judge_7", "scores": {"first": 0.75, "second": 1}}, -0.25),
        ({"id": "judge_8", "winner": "first"}, None),
        ({"id": 7, "winner": "first"}, None),
    ],
    ids=str,
)
def test_an_answer_is_the_points_of_the_first_less_those_of_the_second(answer, difference):
    assert read_judgement(orjson.dumps(answer), "judge_7") == difference


@pytest.mark.parametrize(
    "answer",
    [
        b"first",
        b"[]",
        b'{"winner": "first"}',
        b'{"id": "judge_7"}',
        b'{"id": "judge_7", "winner": "challenger"}',
        b'{"id": "judge_7", "winner": ["first"]}',
        b'{"id": "judge_7", "winner": "first", "scores": {"first": 1, "second": 0}}',
        b'{"id": "judge_7", "scores": {"first": 1}}',
        b'{"id": "judge_7", "scores": {"first": 2, "second": 0}}',
        b'{"id": "judge_7", "scores": {"first": true, "second": 0}}',
        b'{"id": "judge_7", "scores": [1, 0]}',
    ],
)
def test_what_is_no_judgement_is_refused(answer):
    with pytest.raises(ValueError, match=r"expected|unexpected|JSON"):
        read_judgement(answer, "judge_7")


def test_a_question_says_neither_whose_answers_they_are_nor_that_one_is_new():
    text = question_to_json("judge_7", "churn", {"tenure": 3}, {"score": 0.2}, {"score": 0.9})

    assert orjson.loads(text) == {
        "id": "judge_7",
        "type": "understudy.judge",
        "model": "churn",
        "inputs": {"tenure": 3},
        "first": {"score": 0.2},
        "second": {"score": 0.9},
    }


def test_answers_are_compared_without_what_the_log_leaves_out():
    assert compared_answer(b'{"label": "spam", "scores": [0.1, 0.9]}') == {"label": "spam"}
    assert compared_answer(b'{"scores": [0.1, 0.9]}') is None
    assert compared_answer(b'{"treatments": []}') is None
    assert pair_of({"a": 1, "b": 2}, {"score": 1}, {"score": 2}) == pair_of(
        {"b": 2, "a": 1}, {"score": 1}, {"score": 2}
    )
    assert pair_of({"a": 1}, {"score": 1}, {"score": 2}) != pair_of({"a": 1}, {"score": 2}, {"score": 1})
