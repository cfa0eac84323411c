import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.cases import ABSOLUTE, MAX_CASES, RELATIVE, Case, cases_of, difference, typed_rows

numbers = st.floats(-1e6, 1e6)


def test_a_row_is_its_inputs_and_what_is_expected_and_a_null_input_is_left_out():
    plain, full = cases_of(
        [
            {"age": 41.0, "ward": None, "expected": 1},
            {"case_id": "old", "age": 90, "expected": [0.2, 0.8], "tolerance_abs": 0.1, "tolerance_rel": 0},
        ]
    )

    assert plain == Case("1", {"age": 41.0}, 1.0, ABSOLUTE, RELATIVE)
    assert full == Case("old", {"age": 90}, [0.2, 0.8], 0.1, 0.0)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "case 1: expected is a finite number, a list of them, or a label, not None"),
        ({"case_id": "a", "expected": True}, "case a: expected is a finite number"),
        ({"expected": float("nan")}, "case 1: expected is a finite number"),
        ({"expected": []}, "case 1: expected is a finite number"),
        ({"expected": 1, "tolerance_abs": -1}, "case 1: a tolerance is a number of at least 0, not -1"),
        ({"expected": 1, "tolerance_rel": "much"}, "case 1: a tolerance is a number of at least 0, not 'much'"),
    ],
)
def test_a_row_that_is_no_case_is_named(row, said):
    with pytest.raises(ValueError, match=said):
        cases_of([row])


@pytest.mark.parametrize("count", [0, MAX_CASES + 1])
def test_no_cases_and_too_many_are_refused(count):
    with pytest.raises(ValueError, match="cases; 1 to 10,000 are asked"):
        cases_of([{"expected": 1}] * count)


@given(numbers, st.floats(0, 1e3), st.floats(0, 1), st.floats(-2, 2))
def test_a_number_may_differ_by_so_much_and_no_more(expected, absolute, relative, share):
    case = Case("1", {}, expected, absolute, relative)
    allowed = absolute + relative * abs(expected)
    found = expected + share * allowed

    assert (difference(case, {"score": found}) is None) == (abs(found - expected) <= allowed)


@pytest.mark.parametrize(
    ("expected", "answer", "said"),
    [
        (0.64, {"score": 0.31}, "0.31 is not 0.64 ± 7.4e-05"),
        ([0.2, 0.8], {"scores": [0.2, 0.7]}, "0.7 is not 0.8 ± 9e-05 (value 1)"),
        ([0.2, 0.8], {"scores": [0.2]}, "1 values are not 2"),
        ("high", {"label": "low"}, "'low' is not 'high'"),
        ("high", {"score": 0.3}, "the answer has no label, and 'high' was expected"),
        (0.64, {"scores": [0.1, 0.9]}, "the answer has no score, and 0.64 was expected"),
        ("high", {"label": "high"}, None),
        ([0.2, 0.8], {"scores": [0.2, 0.8]}, None),
    ],
)
def test_what_differs_is_said_with_what_was_allowed(expected, answer, said):
    found = difference(Case("1", {}, expected), answer)

    assert (found and found.words) == said


def test_the_worst_of_several_values_is_told_with_its_label_and_how_many_differ():
    found = difference(Case("1", {}, [0.2, 0.3, 0.5]), {"scores": [0.2, 0.4, 0.3]}, ("low", "middle", "high"))

    assert found is not None
    assert found.words == "0.3 is not 0.5 ± 6e-05 (value 2, 'high'; 2 of 3 values differ)"
    assert found.times == pytest.approx(0.2 / 6e-5)


@pytest.mark.parametrize(
    ("expected", "found", "said"),
    [
        (123456.789, 123456.788, "123456.788 is not 123456.789 ± 0"),
        (0.5, 0.5000001, "0.5000001 is not 0.5 ± 0"),
        (0.1 + 0.2, 0.3, "0.3 is not 0.30000000000000004 ± 0"),
    ],
)
def test_numbers_that_differ_are_told_with_the_digits_that_tell_them_apart(expected, found, said):
    differs = difference(Case("1", {}, expected, 0.0, 0.0), {"score": found})

    assert differs is not None
    assert differs.words == said


def test_cells_of_a_csv_file_are_numbers_lists_and_labels_and_texts_where_the_version_has_texts():
    row = {"case_id": "7", "age": "41", "code": "007", "smokes": "true", "ward": "", "expected": "[0.2, 0.8]"}

    assert typed_rows([row], texts=["code"], labels=[]) == [
        {"case_id": "7", "age": 41, "code": "007", "smokes": True, "expected": [0.2, 0.8]}
    ]


@pytest.mark.parametrize(
    ("cell", "labels", "meant"), [("1", (), 1), ("1", ("0", "1"), "1"), ("yes", (), "yes"), ("0.5", ("0", "1"), 0.5)]
)
def test_what_is_expected_is_a_label_where_the_version_has_that_label(cell, labels, meant):
    assert typed_rows([{"expected": cell}], texts=[], labels=labels) == [{"expected": meant}]


def test_a_cell_that_is_nothing_but_brackets_or_digits_is_a_text():
    deep, long = "[" * 100_000, "9" * 5_000

    assert typed_rows([{"age": deep, "income": long}], [], []) == [{"age": deep, "income": long}]
