from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic.drift import numeric_baseline

from understudy.core.drift.baseline import Baseline, Baselines, CategoricalBaseline, baselines_to_json, category_of
from understudy.core.drift.hours import MAX_SUBJECT, hour_from_json, hour_to_json
from understudy.core.drift.input_hours import MAX_OTHER_CATEGORIES, MAX_ROWS, MAX_VALUES, input_hours, rows_of_hour
from understudy.core.drift.report import DriftState
from understudy.core.drift.subject_window import PREDICTION, input_subject
from understudy.core.drift.version_drift import MAX_INPUTS, judge_version, judged_inputs
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.windows.analysis_buckets import analysis_bucket

NUMERIC = numeric_baseline(np.random.default_rng(3).normal(size=2_000))
CATEGORICAL = CategoricalBaseline({"BR": 0.2, "US": 0.8}, rows=2_000, null_ratio=0.0)
START = 3_600.0


def samples_of(*documents: dict[str, Any]) -> list[InputSample]:
    return [InputSample(f"customer-{place}", orjson.dumps(one)) for place, one in enumerate(documents)]


def metrics_of(**inputs: Baseline) -> dict[str, Any]:
    return {"baseline": baselines_to_json(Baselines(None, inputs))}


def test_numbers_and_categories_are_summed_by_the_analysis_bucket_of_their_entity():
    samples = samples_of({"age": 1.5, "country": "BR"}, {"age": True, "country": None}, {"age": None, "country": "US"})

    hours = input_hours(START, samples, {"age": NUMERIC, "country": CATEGORICAL})

    first, second, third = (analysis_bucket(sample.entity_id) for sample in samples)
    assert hours["age"].bucket_sums[first] == 1_500_000
    assert hours["age"].bucket_sums[second] == 1_000_000
    assert hours["age"].bucket_nulls[third] == 1
    assert sum(hours["age"].bucket_rows) == 3
    assert hours["country"].categories["BR"][first] == 1
    assert hours["country"].bucket_nulls[second] == 1
    assert hours["country"].categories["US"][third] == 1


def test_an_input_that_was_not_logged_is_not_null():
    hours = input_hours(START, samples_of({"age": 1}, {}, {}), {"age": NUMERIC, "country": CATEGORICAL})

    assert set(hours) == {"age"}
    assert sum(hours["age"].bucket_rows) == 1


def test_values_of_the_other_kind_are_text_where_they_can_be_and_else_not_counted():
    codes = CategoricalBaseline({"7": 1.0})

    hours = input_hours(START, samples_of({"code": 7, "age": "old"}), {"code": codes, "age": NUMERIC})

    assert set(hours) == {"code"}
    assert sum(hours["code"].categories["7"]) == 1


@pytest.mark.parametrize(
    ("value", "category"), [("a", "a"), (True, "true"), (False, "false"), (7, "7"), (7.0, "7"), (0.5, "0.5")]
)
def test_a_category_is_the_values_text(value, category):
    assert category_of(value) == category


def test_an_hour_of_many_categories_keeps_few_names_and_every_row():
    documents = [{"country": f"other-{place % 50}"} for place in range(5_000)]
    documents += [{"country": "frequent"}] * 200 + [{"country": "x" * 1_000}] * 300 + [{"country": "BR"}]

    hour = input_hours(START, samples_of(*documents), {"country": CATEGORICAL})["country"]

    assert len(hour.categories) == MAX_OTHER_CATEGORIES + 1
    assert sum(hour.categories["frequent"]) == 200
    assert sum(hour.categories["BR"]) == 1
    assert sum(hour.bucket_rows) == 5_501


def test_a_text_that_few_entities_send_however_often_leaves_no_name_behind():
    loud = [InputSample(f"customer-{place % 9}", b'{"country":"dana@example.org"}') for place in range(500)]

    hour = input_hours(START, loud, {"country": CATEGORICAL})["country"]

    assert hour.categories == {}
    assert sum(hour.bucket_rows) == 500


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_whatever_callers_send_an_hour_can_be_written_and_read_again(values):
    hour = input_hours(START, samples_of(*({"x": value} for value in values)), {"x": NUMERIC})["x"]

    read = hour_from_json(START, hour_to_json(hour))

    assert (read.bucket_rows, read.square_sum, read.cells) == (hour.bucket_rows, hour.square_sum, hour.cells)
    assert np.allclose(np.array(read.bucket_sums, float), np.array(hour.bucket_sums, float), rtol=1e-15)


@pytest.mark.parametrize("value", [1e308, -1e308, 1.8e12, 1e16])
def test_extreme_values_are_judged_like_others(value):
    hours = [
        input_hours(START * place, samples_of(*[{"x": value}] * 300), {"x": NUMERIC})["x"] for place in range(1, 30)
    ]

    _, drift = judge_version(metrics_of(x=NUMERIC), {"x": hours}, START * 30)

    assert drift.state is DriftState.DRIFT


def test_the_more_inputs_are_looked_at_the_fewer_rows_are_read():
    assert rows_of_hour(1) == MAX_ROWS
    assert rows_of_hour(100) == MAX_VALUES // 100


def test_an_input_that_is_called_like_the_prediction_has_a_subject_of_its_own():
    names = ["age", PREDICTION, f"input:{PREDICTION}", "input:age"]

    subjects = [input_subject(name) for name in names]

    assert len({PREDICTION, *subjects}) == len(names) + 1
    assert subjects[0] == "age"


def test_an_input_that_is_called_like_the_prediction_is_judged_by_its_own_baseline():
    samples = [samples_of(*({"prediction": 5.0 + place % 2} for place in range(500))) for _ in range(5)]
    hours = [input_hours(START * n, one, {"prediction": NUMERIC}) for n, one in enumerate(samples, 1)]

    prediction, own = judge_version(
        metrics_of(prediction=NUMERIC), {"input:prediction": [hour["input:prediction"] for hour in hours]}, START * 6
    )

    assert (prediction.subject, prediction.state) == (PREDICTION, DriftState.NO_BASELINE)
    assert (own.subject, own.state) == ("input:prediction", DriftState.DRIFT)


def test_only_inputs_with_a_baseline_are_looked_at_and_not_more_than_a_hundred():
    many = {f"x{place:03d}": NUMERIC for place in range(150)}
    long = {"a" * MAX_SUBJECT: NUMERIC, "a" * (MAX_SUBJECT + 1): NUMERIC}

    assert list(judged_inputs(metrics_of(**many))) == sorted(many)[:MAX_INPUTS]
    assert [len(name) for name in judged_inputs(metrics_of(**long))] == [MAX_SUBJECT]


@pytest.mark.parametrize(
    "metrics", [None, {}, [1], {"baseline": {"inputs": {"age": {"mean": "high"}}}}, {"drift_policy": "none"}]
)
def test_metrics_that_say_nothing_have_nothing_looked_at(metrics):
    assert judged_inputs(metrics) == {}


def test_hours_that_were_summed_up_as_something_else_are_left_out():
    numbers = input_hours(START, samples_of(*({"x": 1.0} for _ in range(500))), {"x": NUMERIC})["x"]

    _, drift = judge_version(metrics_of(x=CATEGORICAL), {"x": [numbers]}, 2 * START)
    _, back = judge_version(
        metrics_of(x=NUMERIC),
        {"x": [input_hours(START, samples_of(*[{"x": "BR"}] * 500), {"x": CATEGORICAL})["x"]]},
        2 * START,
    )

    assert {drift.state, back.state} == {DriftState.TOO_EARLY}


def test_a_few_subjects_at_a_time_come_to_the_same_as_all_at_once():
    generator = np.random.default_rng(8)
    metrics = metrics_of(x=NUMERIC, y=NUMERIC)
    watched = judged_inputs(metrics)
    drawn = [generator.normal([0.0, 1.0], size=(400, 2)).tolist() for _ in range(9)]
    summed = [
        input_hours(START * place, samples_of(*({"x": x, "y": y} for x, y in rows)), watched)
        for place, rows in enumerate(drawn, 1)
    ]
    hours = {name: [one[name] for one in summed] for name in watched}

    whole = judge_version(metrics, hours, START * 10)
    parts = [
        judge_version(metrics, {name: hours.get(name, [])}, START * 10, only={name}) for name in (PREDICTION, "x", "y")
    ]

    assert [drift for part in parts for drift in part] == list(whole)
    assert [drift.state for drift in whole] == [DriftState.NO_BASELINE, DriftState.OK, DriftState.DRIFT]
