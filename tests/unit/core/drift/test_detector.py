from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from traffic.drift import (
    DEVIATION,
    HOUR_SECONDS,
    MEAN,
    WEEK_HOURS,
    Hour,
    baseline_of_hours,
    categorical_baseline,
    fresh_hour,
    usual_baseline,
    weekly_hour,
    windows_of,
)

from understudy.core.drift.baseline import CategoricalBaseline, NumericBaseline
from understudy.core.drift.detector import judge_drift
from understudy.core.drift.evidence import Measure
from understudy.core.drift.limits import DriftPolicy
from understudy.core.drift.report import Drift, DriftState
from understudy.core.drift.subject_window import SubjectWindow, categorical_window, numeric_window

BASELINE = usual_baseline()


def hours(count: int, shift: float = 0.0, seed: int = 1, **kwargs: float) -> list[Hour]:
    generator = np.random.default_rng((seed, count))
    return [fresh_hour(generator, shift, **kwargs) for _ in range(count)]  # type: ignore[arg-type]  # floats alone here


def countries(count: int, brazil: float, seed: int = 1, first: int = 0) -> list[SubjectWindow]:
    """Return hours of 2,000 rows of 400 entities, each entity of one country."""
    generator = np.random.default_rng((seed, count))
    windows = []
    for place in range(first, first + count):
        names = generator.choice(["US", "DE", "BR"], 400, p=[0.65 * (1 - brazil), 0.35 * (1 - brazil), brazil])
        buckets = generator.integers(0, 64, 400)
        windows.append(categorical_window(place * HOUR_SECONDS, np.repeat(names, 5).tolist(), np.repeat(buckets, 5)))
    return windows


COUNTRY = CategoricalBaseline(shares={"US": 0.624, "DE": 0.336, "BR": 0.04}, rows=40_000, null_ratio=0.0)


def test_a_shift_is_found_and_said_with_where_it_began():
    windows = windows_of([*hours(40), *hours(8, shift=0.5)])

    found = judge_drift("prediction", BASELINE, windows)

    assert found.state is DriftState.DRIFT
    assert found.since_seconds is not None
    # The start that shows the drift best lies at the true one or a window or two beside it.
    assert abs(found.since_seconds - 40 * HOUR_SECONDS) <= 2 * HOUR_SECONDS
    assert found.direction == "+"
    assert found.baseline == f"{BASELINE.mean:.3f}"
    assert found.shown is not None
    assert found.shown.distance == pytest.approx(0.5, abs=0.15)
    assert f"{found.shown.words} (limit 0.10), evidence" in found.words


def test_traffic_like_the_baseline_is_ok_although_the_textbook_tests_object():
    found = judge_drift("prediction", BASELINE, windows_of(hours(100, shift=0.05)))

    assert found.state is DriftState.OK
    assert found.since_seconds is None
    assert found.tests is not None
    assert found.tests.ks_p_value is not None
    assert max(found.tests.chi2_p_value, found.tests.ks_p_value) < 0.001


def test_a_wider_spread_around_the_same_mean_is_a_drift_without_a_direction():
    found = judge_drift("prediction", BASELINE, windows_of([*hours(20), *hours(20, spread=2.5)]))

    assert found.state is DriftState.DRIFT
    assert found.shown is not None
    assert found.shown.measure in (Measure.WASSERSTEIN, Measure.PSI)
    mean = next(reading for reading in found.readings if reading.measure is Measure.MEAN)
    assert mean.distance < mean.limit


@pytest.mark.deep
def test_one_entity_that_sends_half_of_the_traffic_is_no_drift():
    loud = Hour(np.full(2_000, MEAN + 2 * DEVIATION), np.full(2_000, 17))
    mixed = [Hour(np.append(hour.values, loud.values), np.append(hour.buckets, loud.buckets)) for hour in hours(100)]

    found = judge_drift("prediction", BASELINE, windows_of(mixed))

    assert found.state is DriftState.OK


def test_a_drift_is_over_after_eight_windows_like_the_baseline():
    windows = windows_of([*hours(20), *hours(6, shift=1.0), *hours(30, seed=2)])

    states = {end: judge_drift("prediction", BASELINE, windows[:end]).state for end in (20, 21, 26, 29, 34, 45, 56)}

    assert {end for end, state in states.items() if state is DriftState.DRIFT} == {21, 26, 29}
    assert {end for end, state in states.items() if state is DriftState.OK} == {20, 34, 45, 56}


def test_a_single_window_far_off_is_told_until_eight_others_have_passed():
    windows = windows_of([*hours(20), *hours(1, shift=0.7), *hours(20, seed=2)])

    states = [judge_drift("prediction", BASELINE, windows[:end]).state for end in (20, 21, 22, 28, 29)]

    # Eight windows with this one in them are within the limits: 0.7 / 8 < 0.1.
    assert states == [DriftState.OK, DriftState.DRIFT, DriftState.DRIFT, DriftState.DRIFT, DriftState.OK]


def test_a_second_drift_is_found_after_the_first_is_over():
    windows = windows_of([*hours(20), *hours(4, shift=1.0), *hours(30, seed=2), *hours(4, shift=-1.0, seed=3)])

    found = judge_drift("prediction", BASELINE, windows)

    assert found.state is DriftState.DRIFT
    assert found.since_seconds == 54 * HOUR_SECONDS
    assert found.direction == "\N{MINUS SIGN}"


def test_a_country_that_comes_in_is_named_with_its_shares():
    found = judge_drift("country", COUNTRY, [*countries(20, 0.04), *countries(10, 0.25, first=20)])

    assert found.state is DriftState.DRIFT
    assert (found.baseline, found.direction) == ("4 % BR", "+BR")
    assert found.shown is not None
    # (0.25 - 0.04) ln(0.25 / 0.04) and what the two others lose: 0.44; standard error 2 sqrt(0.44 / 4,000) = 0.02.
    assert found.shown.measure is Measure.PSI
    assert found.shown.distance == pytest.approx(0.44, abs=0.08)
    assert found.words.startswith("country: BR 4 % \N{RIGHTWARDS ARROW} ")


def test_a_category_that_the_baseline_has_not_counts_as_others():
    windows = [*countries(10, 0.04), *countries(10, 0.3, first=10)]
    renamed = [
        window._replace(categories={name.replace("BR", "new"): rows for name, rows in window.categories.items()})
        for window in windows
    ]

    found = judge_drift("country", COUNTRY, renamed[10:])

    assert found.state is DriftState.DRIFT
    assert found.direction == "+others"


def test_shares_like_the_baseline_are_ok():
    found = judge_drift("country", COUNTRY, countries(100, 0.04))

    assert found.state is DriftState.OK


def test_exactly_the_baselines_shares_are_no_distance_at_all():
    names = ["free"] * 600 + ["pro"] * 300 + ["team"] * 100
    window = categorical_window(0.0, names, np.arange(1_000) % 64)

    found = judge_drift("plan", categorical_baseline(names), [window])

    assert found.state is DriftState.OK
    assert [reading.distance for reading in found.readings] == [0, 0]


def test_nulls_that_come_every_weekend_are_no_drift():
    generator = np.random.default_rng(12)
    baseline = replace(BASELINE, null_ratio=0.2 * 2 / 7)
    quarters = []
    for place in range(3 * 28):
        hour = fresh_hour(generator, entities=100)
        is_weekend = place % 28 >= 20
        values = np.where(generator.random(hour.values.size) < 0.2 * is_weekend, nan, hour.values)
        quarters.append(numeric_window(place * 6 * HOUR_SECONDS, values, hour.buckets))

    unseasoned = judge_drift("ltv_90d", baseline, quarters[2 * 28 :])
    seasoned = judge_drift("ltv_90d", baseline, quarters, judged_from_seconds=2 * 28 * 6 * HOUR_SECONDS)

    assert unseasoned.state is DriftState.DRIFT
    assert seasoned.state is DriftState.OK


def test_values_that_stop_coming_are_a_drift_of_nulls():
    baseline = replace(BASELINE, null_ratio=0.001)
    generator = np.random.default_rng(5)
    late = []
    for hour in hours(40):
        is_late = generator.random(hour.values.size) < 0.1
        late.append(Hour(np.where(is_late, nan, hour.values), hour.buckets))

    found = judge_drift("ltv_90d", baseline, windows_of([*hours(20, seed=3), *late]))

    assert found.state is DriftState.DRIFT
    assert found.shown is not None
    assert found.shown.measure is Measure.NULLS
    assert (found.baseline, found.now, found.direction) == ("0.1 % null", "10 % null", "+")
    assert "9.9 pts (limit 2.0)" in found.words


def test_a_feature_that_never_comes_is_a_drift_of_nulls():
    never = windows_of([Hour(np.full(500, nan), np.arange(500) % 64)] * 3)

    found = judge_drift("ltv_90d", replace(BASELINE, null_ratio=0.001), never)

    assert found.state is DriftState.DRIFT
    assert (found.now, found.tests) == ("100 % null", None)


def test_a_drift_is_not_over_because_the_traffic_is():
    drifted = windows_of([*hours(10), *hours(5, shift=1.0)])
    silent = windows_of([Hour(np.empty(0), np.empty(0, dtype=np.int64))] * 20, first=15)

    found = judge_drift("prediction", BASELINE, [*drifted, *silent])

    assert found.state is DriftState.DRIFT


def test_a_minimal_baseline_tells_a_shift_of_the_mean_and_nothing_else():
    baseline = NumericBaseline(mean=MEAN, standard_deviation=DEVIATION)

    shifted = judge_drift("prediction", baseline, windows_of(hours(10, shift=0.5)))
    wider = judge_drift("prediction", baseline, windows_of(hours(10, spread=3.0)))

    assert [reading.measure for reading in shifted.readings] == [Measure.MEAN]
    assert shifted.state is DriftState.DRIFT
    assert wider.state is DriftState.OK


def test_a_constant_output_that_changes_is_a_drift_and_one_that_stays_is_none():
    constant = NumericBaseline(mean=1 / 3, standard_deviation=0.0)
    buckets = np.arange(1_000) % 64

    stays = judge_drift("prediction", constant, [numeric_window(0.0, np.full(1_000, 1 / 3), buckets)])
    moves = judge_drift("prediction", constant, [numeric_window(0.0, np.full(1_000, 0.334), buckets)])

    assert (stays.state, moves.state) == (DriftState.OK, DriftState.DRIFT)


@pytest.mark.deep
def test_the_week_is_learnt_from_earlier_weeks_and_a_drift_on_top_of_it_is_found():
    generator = np.random.default_rng(11)
    first, last = 3 * WEEK_HOURS // 2, 2 * WEEK_HOURS
    usual_hours = [weekly_hour(generator, hour) for hour in range(last)]
    baseline, usual = baseline_of_hours(usual_hours[:WEEK_HOURS]), windows_of(usual_hours)
    drifted = windows_of((weekly_hour(generator, hour, 0.5) for hour in range(8)), first=last)
    judged_from = first * HOUR_SECONDS

    unseasoned = judge_drift("prediction", baseline, usual[first:])
    seasoned = judge_drift("prediction", baseline, usual, judged_from_seconds=judged_from)
    moved = judge_drift("prediction", baseline, usual + drifted, judged_from_seconds=judged_from)

    assert unseasoned.state is DriftState.DRIFT
    assert seasoned.state is DriftState.OK
    assert len(seasoned.history) == last - first
    assert moved.state is DriftState.DRIFT


def test_without_a_baseline_it_says_so():
    found = judge_drift("tenure", None, windows_of(hours(2)))

    assert found == Drift(
        "tenure",
        DriftState.NO_BASELINE,
        "tenure: no baseline to compare with; `understudy drift baseline set` makes one.",
    )


@pytest.mark.parametrize(
    ("windows", "said"),
    [
        ([], "too early, no traffic"),
        (windows_of([Hour(np.full(150, MEAN), np.arange(150) % 64)]), "too early, 150 rows"),
        (windows_of([Hour(np.full(5_000, MEAN + DEVIATION), np.arange(5_000) % 15)]), "too early, 5,000 rows"),
    ],
)
def test_little_traffic_is_neither_good_nor_bad(windows, said):
    found = judge_drift("prediction", BASELINE, windows)

    assert found.state is DriftState.TOO_EARLY
    assert said in found.words
    assert "200 rows of entities in 16 of the 64 analysis buckets" in found.words
    assert found.shown is None


def test_a_window_without_rows_among_others_changes_nothing():
    windows = windows_of([*hours(5), *hours(5, shift=0.6)])
    empty = numeric_window(4.5 * HOUR_SECONDS, np.empty(0), np.empty(0, dtype=np.int64))

    found = judge_drift("prediction", BASELINE, [*windows[:5], empty, *windows[5:]])

    assert found.state is DriftState.DRIFT
    assert found.shown is not None
    assert found.shown.distance == pytest.approx(0.6, abs=0.2)


def test_nulls_that_no_window_counts_are_no_measure():
    windows = [window._replace(bucket_nulls=()) for window in windows_of(hours(10))]

    found = judge_drift("prediction", BASELINE, windows)

    assert [reading.measure for reading in found.readings] == [Measure.MEAN, Measure.WASSERSTEIN, Measure.PSI]
    # The evidence that is needed is the run length times the measures.
    assert {reading.evidence_needed for reading in found.readings} == {6_000}


def test_the_order_in_which_cells_were_counted_changes_nothing():
    windows = windows_of([*hours(30), *hours(5, shift=0.4)])
    shuffled = [window._replace(cells=dict(sorted(window.cells.items(), reverse=True))) for window in windows]

    assert judge_drift("prediction", BASELINE, windows) == judge_drift("prediction", BASELINE, shuffled)


def test_windows_out_of_order_are_refused():
    windows = windows_of(hours(3))

    with pytest.raises(ValueError, match="windows: expected each to start later"):
        judge_drift("prediction", BASELINE, windows[::-1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"psi_limit": 0.0}, "the limit of psi"),
        ({"nulls_limit_ratio": inf}, "the limit of nulls"),
        ({"run_length_windows": 1.0}, "run_length_windows"),
        ({"minimum_buckets": 1}, "minimum_buckets"),
        ({"recovery_windows": 0}, "recovery"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        DriftPolicy(**changes)


def test_a_baseline_of_few_rows_is_not_taken_for_exact():
    few = replace(categorical_baseline(["US"] * 60 + ["DE"] * 33 + ["BR"] * 7), rows=20)

    certain = judge_drift("country", replace(few, rows=40_000), countries(30, 0.25))
    uncertain = judge_drift("country", few, countries(30, 0.25))

    assert (certain.state, uncertain.state) == (DriftState.DRIFT, DriftState.OK)


def test_a_class_that_loses_five_points_is_found_by_its_share_and_not_by_its_psi():
    windows = [*countries(24, 0.04), *countries(24, 0.09, seed=2, first=24)]

    by_share = judge_drift("class", COUNTRY, windows, DriftPolicy(shares_limit_ratio=0.02))
    by_psi = judge_drift("class", COUNTRY, windows)

    assert by_share.state is DriftState.DRIFT
    assert by_share.shown is not None
    assert by_share.shown.measure is Measure.SHARES
    assert by_share.shown.words.endswith("pts")
    assert by_share.direction == "+BR"
    assert "limit 2.0" in by_share.words
    assert by_psi.state is DriftState.OK


def test_shares_within_their_limit_are_no_drift_however_many_rows_there_are():
    windows = countries(60, 0.05)

    assert judge_drift("class", COUNTRY, windows, DriftPolicy(shares_limit_ratio=0.02)).state is DriftState.OK
