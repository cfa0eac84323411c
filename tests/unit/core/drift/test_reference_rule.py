import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.drift.baseline import NumericBaseline
from understudy.core.drift.reference_rule import judge_by_reference_rule
from understudy.core.drift.report import DriftState
from understudy.core.drift.subject_window import SubjectWindow, numeric_window

scores = st.lists(st.integers(-2_000_000, 2_000_000).map(lambda millionths: millionths / 1e6), min_size=1, max_size=40)


def windows_of(values: list[float]) -> list[SubjectWindow]:
    halves = np.array_split(np.array(values, dtype=np.float64), 2)
    return [numeric_window(3_600.0 * place, half, np.arange(len(half))) for place, half in enumerate(halves)]


def as_the_seed_wrote_it(recent: list[float], mean: float, deviation: float) -> bool:
    sample_mean = statistics.mean(recent)
    return sample_mean != mean if deviation == 0 else abs(sample_mean - mean) / deviation > 3.0


@given(scores, st.sampled_from([0.0, 0.25]), st.sampled_from([0.0, 0.02, 0.1, 0.5]))
def test_it_flags_what_the_seed_flags(values, mean, deviation):
    baseline = NumericBaseline(mean=mean, standard_deviation=deviation)

    found = judge_by_reference_rule("prediction", baseline, windows_of(values))

    is_clear = abs(abs(statistics.fmean(values) - mean) - 3 * deviation) > 1e-6
    assert not is_clear or (found.state is DriftState.DRIFT) == as_the_seed_wrote_it(values, mean, deviation)


def test_a_constant_that_stayed_is_no_drift_and_one_that_moved_is():
    baseline = NumericBaseline(mean=1 / 3, standard_deviation=0.0)

    assert judge_by_reference_rule("prediction", baseline, windows_of([1 / 3] * 50)).state is DriftState.OK
    assert judge_by_reference_rule("prediction", baseline, windows_of([0.334] * 50)).state is DriftState.DRIFT


def test_it_cannot_see_a_shift_of_one_standard_deviation():
    baseline = NumericBaseline(mean=0.32, standard_deviation=0.18)

    found = judge_by_reference_rule("prediction", baseline, windows_of([0.32 + 0.18] * 10_000))

    assert found.state is DriftState.OK
    assert found.shown is not None
    assert found.shown.distance == pytest.approx(1)
    assert found.words == "prediction: mean 1.00 sd (limit 3.00)."


def test_without_rows_or_baseline_it_says_so():
    baseline = NumericBaseline(mean=0.3, standard_deviation=0.2)

    assert judge_by_reference_rule("prediction", baseline, []).state is DriftState.TOO_EARLY
    assert judge_by_reference_rule("prediction", None, windows_of([0.3])).state is DriftState.NO_BASELINE
