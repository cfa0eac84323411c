"""Which cells of training data are values, and what is said of the others."""

import math
from typing import Any

import pytest

from understudy.core.drift.baseline import CategoricalBaseline, NumericBaseline
from understudy.core.drift.training_profile import ROWS_AT_ONCE, CellRefused, TrainingProfile, training_columns
from understudy.core.schema.compile import compile_input_schema

FEATURES = compile_input_schema(
    {
        "features": [
            {"name": "tenure", "dtype": "float32"},
            {"name": "active", "dtype": "bool"},
            {"name": "country", "dtype": "string"},
            {"name": "plan", "dtype": "int64", "enum": [1, 2]},
            {"name": "pixels", "dtype": "float32", "shape": [4]},
        ]
    }
).features
COLUMNS = training_columns(FEATURES, ["tenure", "active", "country", "plan", "pixels", "p", "id"], "p", None)


def a_profile(*rows: dict[str, Any]) -> TrainingProfile:
    profile = TrainingProfile(COLUMNS)
    for row in rows:
        profile.add({"p": 0.5, **row})
    return profile


def test_single_inputs_and_the_score_are_read_and_lists_and_other_columns_are_not():
    assert COLUMNS.names == ("p", "tenure", "active", "country", "plan")
    assert training_columns(FEATURES, ["tenure", "plan", "p"], "p", ["plan"]).names == ("plan",)
    assert training_columns(FEATURES, ["tenure"], None, None).names == ("tenure",)


def test_cells_of_a_csv_file_and_of_a_typed_one_mean_the_same():
    typed = a_profile({"tenure": 3, "active": True, "country": "BR", "plan": 2.0}, {"tenure": None})
    text = a_profile({"tenure": "3", "active": "TRUE", "country": "BR", "plan": "2"}, {"tenure": "nan"})

    assert typed.baselines() == text.baselines()
    inputs = typed.baselines().inputs
    assert isinstance(inputs["tenure"], NumericBaseline)
    assert (inputs["tenure"].mean, inputs["tenure"].null_ratio) == (3.0, 0.5)
    assert isinstance(inputs["plan"], CategoricalBaseline)
    assert (dict(inputs["plan"].shares), inputs["plan"].null_ratio) == ({"2": 1.0}, 0.5)


def test_an_input_without_any_value_has_no_baseline():
    baselines = a_profile({"country": "BR"}).baselines()

    assert list(baselines.inputs) == ["country"]


def test_rows_beyond_those_that_are_held_count():
    profile = TrainingProfile(COLUMNS)
    for place in range(ROWS_AT_ONCE + 5):
        profile.add({"p": place % 2, "tenure": place})

    baselines = profile.baselines()

    assert baselines.prediction is not None
    assert baselines.prediction.rows == profile.rows == ROWS_AT_ONCE + 5
    assert isinstance(baselines.inputs["tenure"], NumericBaseline)
    assert baselines.inputs["tenure"].mean == pytest.approx((ROWS_AT_ONCE + 4) / 2)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"p": None}, "column 'p': expected a score, got none"),
        ({"p": math.nan}, "column 'p': expected a score, got none"),
        ({"p": "high"}, "column 'p': expected a number, got 'high'"),
        ({"tenure": "1_000"}, "column 'tenure': expected a number, got '1_000'"),
        ({"tenure": "inf"}, "column 'tenure': expected a number up to 1e.100, got 'inf'"),
        ({"tenure": 10**400}, "column 'tenure': expected a number, got 1000"),
        ({"tenure": [1]}, r"column 'tenure': expected a number, got \[1\]"),
        ({"active": "yes"}, "column 'active': expected a number, got 'yes'"),
        ({"plan": "3"}, "column 'plan': expected one of 1, 2, got '3'"),
        ({"country": 1.5}, "column 'country': expected text, got 1.5"),
        ({"country": "x" * 256}, "column 'country': expected a category of at most 255 characters, got 256"),
        ({"country": "a\0"}, "column 'country': expected text in UTF-8 without NUL"),
        ({"country": "\udcff"}, r"column 'country': expected text in UTF-8 without NUL, got '\\udcff'"),
    ],
)
def test_a_cell_that_is_no_value_is_named_with_its_column(cells, says):
    with pytest.raises(CellRefused, match=says):
        a_profile(cells)
