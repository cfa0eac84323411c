from math import nan

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic.drift import categorical_baseline, numeric_baseline

from understudy.core.drift.baseline import (
    MAX_CATEGORIES,
    Baselines,
    CategoricalBaseline,
    NumericBaseline,
    baseline_to_json,
    baselines_of,
    baselines_to_json,
    with_baselines,
)

CHANGED = {"by": "dana", "source": "train.csv"}
numbers = st.lists(st.floats(-1e6, 1e6) | st.just(nan), min_size=1).map(np.array)
names = st.lists(st.none() | st.text(max_size=5), min_size=1)


def test_a_numeric_baseline_holds_what_numpy_says_of_the_values_that_are_there():
    values = np.array([0.1, 0.2, nan, 0.5, 0.9, nan])

    found = numeric_baseline(values, threshold=0.5)

    assert (found.rows, found.positive_ratio) == (4, 0.5)
    assert found.null_ratio == pytest.approx(1 / 3)
    assert (found.mean, found.standard_deviation) == pytest.approx((0.425, np.std([0.1, 0.2, 0.5, 0.9])))
    assert found.quantiles[0.5] == pytest.approx(0.35)
    assert found.histogram.quantile(0.75) == pytest.approx(0.5, rel=0.01)


def test_a_feature_has_no_positive_rate():
    assert numeric_baseline(np.array([14.0, 30.0])).positive_ratio is None


def test_a_categorical_baseline_holds_the_shares_of_the_values_that_are_there():
    found = categorical_baseline(["US"] * 6 + ["BR"] * 2 + [None] * 2)

    assert found == CategoricalBaseline(shares={"US": 0.75, "BR": 0.25}, rows=8, null_ratio=0.2)


def test_only_the_most_frequent_categories_are_kept_by_name():
    values = [f"zip-{place}" for place in range(500)] + ["zip-499"] * 500

    found = categorical_baseline(values)

    assert len(found.shares) == MAX_CATEGORIES
    assert found.shares["zip-499"] == pytest.approx(0.501)


@pytest.mark.deep
@given(numbers.filter(lambda values: not np.isnan(values).all()), names.filter(any))
def test_what_is_stored_is_read_back_as_it_was(values, categories):
    baselines = Baselines(
        numeric_baseline(values, threshold=0.5),
        {"tenure": numeric_baseline(values), "country": categorical_baseline(categories)},
        categorical_baseline(categories),
    )

    stored = orjson.loads(orjson.dumps({"auc": 0.91, "baseline": baselines_to_json(baselines)}))

    assert baselines_of(stored) == baselines


def test_the_seeds_own_names_are_a_minimal_baseline_of_the_predictions():
    found = baselines_of({"auc": 0.91, "baseline_mean": 0.318, "baseline_std": 0.2})

    assert found == Baselines(NumericBaseline(mean=0.318, standard_deviation=0.2), {})


def test_a_baseline_of_ours_goes_before_the_seeds():
    ours = baseline_to_json(NumericBaseline(mean=0.5, standard_deviation=0.1))

    found = baselines_of({"baseline_mean": 0.3, "baseline_std": 0.2, "baseline": {"prediction": ours}})

    assert found.prediction == NumericBaseline(mean=0.5, standard_deviation=0.1)


@pytest.mark.parametrize("metrics", [None, {}, {"auc": 0.91}, {"baseline": {}}])
def test_a_version_without_a_baseline_has_none(metrics):
    assert baselines_of(metrics) == Baselines(None, {})


MALFORMED = [
    ({"baseline": 3}, "baseline: expected an object"),
    ({"baseline": {"inputs": []}}, "baseline.inputs: expected an object"),
    ({"baseline": {"prediction": {"std": 1}}}, "baseline.prediction.mean: expected a finite number, got None"),
    ({"baseline": {"prediction": {"mean": True, "std": 1}}}, "baseline.prediction.mean: expected a finite number"),
    (
        {"baseline": {"prediction": {"mean": 0, "std": -1}}},
        "baseline.prediction.std: expected a finite number from 0 on",
    ),
    ({"baseline": {"prediction": {"mean": 0, "std": 1, "n": 0}}}, "baseline.prediction.n: expected a whole number"),
    (
        {"baseline": {"prediction": {"mean": 0, "std": 1, "null_ratio": 2}}},
        "null_ratio: expected a finite number from 0 to 1",
    ),
    (
        {"baseline": {"prediction": {"mean": 0, "std": 1, "quantiles": {"half": 1}}}},
        "quantiles: expected keys from 0 to 1",
    ),
    ({"baseline": {"prediction": {"mean": 0, "std": 1, "histogram": {"x": 1}}}}, "baseline.prediction.histogram.x: "),
    ({"baseline": {"prediction": {"mean": 0, "std": 1, "histogram": {"7": 0.5}}}}, "baseline.prediction.histogram.7: "),
    ({"baseline": {"inputs": {"plan": {"kind": "text"}}}}, "baseline.inputs.plan.kind: expected 'numeric' or"),
    ({"baseline": {"inputs": {"plan": {"kind": "categorical"}}}}, "baseline.inputs.plan.shares: expected an object"),
    (
        {"baseline": {"inputs": {"plan": {"kind": "categorical", "shares": {"pro": 0.7, "free": 0.7}}}}},
        "baseline.inputs.plan.shares: expected shares that add up to 1 or less, got 1.4",
    ),
    ({"baseline_mean": 0.3}, "baseline_std: expected a finite number from 0 on, got None"),
]


@pytest.mark.parametrize(("metrics", "said"), MALFORMED)
def test_a_malformed_baseline_is_refused_with_the_field_that_is_wrong(metrics, said):
    with pytest.raises(ValueError) as problem:
        baselines_of(metrics)

    assert said in str(problem.value)


@pytest.mark.parametrize("values", [[], [nan, nan], [1.0, float("inf")]])
def test_there_is_no_baseline_of_nothing_or_of_infinity(values):
    with pytest.raises(ValueError, match="values: expected"):
        numeric_baseline(np.array(values))


def test_there_is_no_baseline_of_nulls_alone():
    with pytest.raises(ValueError, match="values: expected"):
        categorical_baseline([None, None])


def a_baseline(mean: float) -> NumericBaseline:
    return NumericBaseline(mean=mean, standard_deviation=1.0)


def test_subjects_that_are_given_are_replaced_and_everything_else_stays():
    before = {"auc": 0.8, "baseline": {"prediction": {"mean": 1, "std": 1}, "inputs": {"a": {"mean": 2, "std": 1}}}}

    after = with_baselines(before, Baselines(None, {"b": a_baseline(3.0)}), CHANGED)

    found = baselines_of(after)
    assert found.prediction == a_baseline(1.0)
    assert found.inputs == {"a": a_baseline(2.0), "b": a_baseline(3.0)}
    assert (after["auc"], after["baseline"]["changed"]) == (0.8, CHANGED)


@pytest.mark.parametrize(
    "before",
    [None, {}, {"baseline": 7}, {"baseline": {"prediction": 1, "inputs": []}}, {"baseline": {"inputs": {"a": 1}}}],
)
def test_what_could_not_be_read_does_not_outlive_a_new_baseline(before):
    after = with_baselines(before, Baselines(a_baseline(0.5), {}), CHANGED)

    assert baselines_of(after) == Baselines(a_baseline(0.5), {})


def test_metrics_that_are_no_object_are_not_replaced():
    with pytest.raises(ValueError, match="expected the version's metrics to be an object"):
        with_baselines([1], Baselines(a_baseline(0.5), {}), CHANGED)


def test_classes_have_shares_and_no_mean():
    with pytest.raises(ValueError, match=r"baseline\.classes\.kind: expected 'categorical'"):
        baselines_of({"baseline": {"classes": {"mean": 0.5, "std": 0.1}}})
