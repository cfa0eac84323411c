import pytest

from understudy.core.baseline_changes import with_baselines
from understudy.core.drift.baseline import Baselines, NumericBaseline, baselines_of

CHANGED = {"by": "dana", "source": "train.csv"}


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
