"""What made answers differ is told where a rule holds for all of them, and nothing where none does."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.case_causes import likely_cause, order_cause
from understudy.core.loading.cases import Case

SCORES = (0.02, 0.31, 0.5, 0.77, 0.9)
CLASSES = ([0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.3, 0.45], [0.05, 0.05, 0.9])
LABELS = ("low", "middle", "high")


def scored(*pairs: tuple[float, float]) -> list[tuple[Case, dict[str, Any]]]:
    return [
        (Case(str(row), {}, float(expected)), {"score": float(found)}) for row, (expected, found) in enumerate(pairs)
    ]


def told(of: Callable[[Any], Any], expected: Sequence[float] = SCORES) -> str:
    return likely_cause(scored(*((one, of(one)) for one in expected)))


def listed(of: Callable[[Any], Any]) -> str:
    cases = [(Case("1", {}, one), {"label": "?", "scores": of(np.array(one)).tolist()}) for one in CLASSES]
    return likely_cause(cases, LABELS)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (lambda p: np.log(p / (1 - p)), "the sigmoid of each answer is what is expected"),
        (lambda p: 1 / (1 + np.exp(-p)), "each answer is the sigmoid of what is expected: one too many"),
        (lambda p: 1 - p, "each answer is 1 less what is expected: it is the other class's"),
        (lambda p: p * 100, "each answer is 100 times what is expected"),
        (lambda p: p + 0.25, "each answer is 0.25 above what is expected"),
        (lambda p: p - 0.25, "each answer is 0.25 below what is expected"),
        (lambda _: 0.5, "each answer is 0.5, whatever is asked"),
        (np.log, "each answer is the logarithm of what is expected"),
        (np.log1p, "each answer is the logarithm of what is expected"),
        (lambda p: np.round(p, 1), "each answer is rounded to 1 decimal"),
        (np.round, "each answer is rounded to a whole number"),
        (lambda p: p + 0.003 * np.sin(40 * p), "no answer is off by more than 0.00"),
        (lambda p: np.sin(9 * p), ""),
    ],
)
def test_a_rule_that_holds_for_each_score_is_told(of, said):
    found = told(of)

    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_numbers_of_fewer_bits_are_known_as_the_json_of_a_single_precision_number_has_them():
    expected = np.linspace(0.1, 0.9, 9)
    half = expected.astype(np.float16).astype(np.float32)
    brain = (expected.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)

    assert "16 bits (float16)" in likely_cause(scored(*zip(expected, (float(str(one)) for one in half), strict=True)))
    assert "16 bits (bfloat16)" in likely_cause(scored(*zip(expected, (float(str(one)) for one in brain), strict=True)))


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            lambda p: p[[2, 0, 1]],
            (
                "the values expected at the places 0, 1, 2 stand at 1, 2, 0 ('low' at 'middle', 'middle' at 'high', "
                "'high' at 'low'): its classes are in another order"
            ),
        ),
        (lambda p: np.log(p) + 3, "the softmax of each answer is what is expected: it is missing"),
        (lambda p: np.exp(p) / np.exp(p).sum(), "each answer is the softmax of what is expected: one too many"),
        (lambda p: p[:2], ""),
    ],
)
def test_a_rule_that_holds_for_each_list_is_told(of, said):
    found = listed(of)

    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("low", "high"), ("high", "low"), ("middle", "middle")], "'high' for 'low', 'low' for 'high'"),
        ([("low", "high"), ("high", "high"), ("middle", "high")], "each answer is 'high', whatever is asked"),
        ([("low", "high"), ("low", "low"), ("high", "low")], ""),
        ([("low", "middle"), ("high", "middle"), ("middle", "low")], ""),
        ([("low", "high"), ("low", "high")], ""),
    ],
)
def test_labels_that_have_each_others_place_are_told(pairs, said):
    found = likely_cause([(Case("1", {}, expected), {"label": label}) for expected, label in pairs])

    assert said in found
    assert bool(found) == bool(said)


def test_a_rule_that_all_cases_but_one_follow_is_none():
    pairs = [(p, 1 - p) for p in SCORES]

    assert told(lambda p: 1 - p) != ""
    assert likely_cause(scored(*pairs[:-1], (0.9, 0.35))) == ""


def test_one_case_says_nothing_and_two_no_number():
    assert likely_cause(scored((0.31, 0.69))) == ""
    assert likely_cause(scored((0.31, 0.62), (0.2, 0.4))) == ""
    assert likely_cause(scored((0.31, 0.69), (0.2, 0.8))) != ""


@given(st.lists(st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)), min_size=1, max_size=9))
def test_no_numbers_make_it_fail(pairs):
    assert isinstance(likely_cause(scored(*pairs)), str)


@given(st.permutations(range(6)))
def test_an_order_is_told_only_where_each_row_follows_it(places):
    said = order_cause(6, lambda answer, row: places[answer] == row)

    known = {(5, 4, 3, 2, 1, 0): "reverse", (1, 2, 3, 4, 5, 0): "next one", (5, 0, 1, 2, 3, 4): "one before"}
    assert (known.get(tuple(places)) or "") in said
    assert bool(said) == (tuple(places) in known)
