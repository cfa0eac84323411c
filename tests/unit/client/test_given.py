"""What notebooks hold is taken where it is unambiguous, and refused with what is expected where it is not."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pytest

from understudy.client import Entity, Outcome, Treatment
from understudy.client.calls import Call, batch_calls, outcome_calls, predict_call, rank_call, receipt_call

COLUMNS = {"entity_id": [7, 8], "age": [41, 50], "income": [1.5, None], "city": ["Kiel", None]}
PANDAS = pd.DataFrame(COLUMNS)
FIRST = {"entity_id": "7", "inputs": {"age": 41, "income": 1.5, "city": "Kiel"}}
BOTH = [FIRST, {"entity_id": "8", "inputs": {"age": 50, "income": None, "city": None}}]
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def polars() -> pl.DataFrame:
    """Return the same of polars, within a test: its threads do not live through the fork of a worker."""
    return pl.DataFrame(COLUMNS)


def body_of(call: Call) -> Any:
    assert call.body is not None
    return json.loads(call.body)


def anything(value: Any) -> Any:
    """Return what no annotation permits."""
    return value


def entities_sent(given: Any) -> Any:
    (call,) = batch_calls("a", given)
    return body_of(call)["entities"]


def event_sent(**changes: Any) -> Any:
    (call,) = outcome_calls([Outcome("o1", "visits", "came", 1, NOON, "dana")._replace(**changes)])
    return body_of(call)["events"][0]


@pytest.mark.parametrize(
    "inputs",
    [
        lambda: PANDAS.drop(columns="entity_id").iloc[0],
        lambda: PANDAS.drop(columns="entity_id").head(1),
        lambda: polars().drop("entity_id").head(1),
        lambda: polars().drop("entity_id").row(0, named=True),
        lambda: {"age": np.int64(41), "income": np.float64(1.5), "city": np.str_("Kiel")},
        lambda: {"age": Decimal(41), "income": np.array(1.5), "city": "Kiel"},
    ],
    ids=["series", "frame of pandas", "frame of polars", "row of polars", "scalars", "decimal"],
)
def test_one_row_is_the_inputs_of_one_call(inputs):
    assert body_of(predict_call("a", Entity("7", inputs()))) == FIRST


@pytest.mark.parametrize(
    "entity",
    [
        lambda: PANDAS.iloc[0],
        lambda: PANDAS.head(1),
        lambda: polars().head(1),
        lambda: polars().row(0, named=True),
        lambda: {**FIRST, "entity_id": 7},
    ],
    ids=["series", "frame of pandas", "frame of polars", "row of polars", "as the HTTP API has it"],
)
def test_a_row_with_its_id_is_one_call(entity):
    assert body_of(predict_call("a", entity())) == FIRST


@pytest.mark.parametrize(
    "entities",
    [
        lambda: PANDAS,
        polars,
        lambda: {name: np.array(column, dtype=object) for name, column in COLUMNS.items()},
        lambda: COLUMNS,
        lambda: polars().iter_rows(named=True),
        lambda: PANDAS.apply(lambda row: Entity(row.entity_id, row.drop("entity_id")), axis=1),
    ],
    ids=["pandas", "polars", "arrays", "lists", "rows of polars", "series of entities"],
)
def test_a_frame_is_a_batch(entities):
    assert entities_sent(entities()) == BOTH


def test_ids_that_pandas_made_floats_of_are_whole_numbers_again_while_they_are_exact():
    numbers = PANDAS[["entity_id", "income"]]

    for frame in (numbers, numbers.astype({"entity_id": "Int64"}), numbers.convert_dtypes()):
        row = frame.iloc[0]
        assert isinstance(row["entity_id"], float), "as those of a row whose other values are floats"
        assert body_of(predict_call("a", row))["entity_id"] == "7"
    for inexact in (2.0**53, float("nan"), float("inf")):
        with pytest.raises(TypeError, match="expected text, a whole number or a UUID"):
            predict_call("a", Entity(inexact))


def test_a_category_of_a_frame_is_sent_where_there_is_one():
    some = PANDAS.assign(category=["vip", None])

    assert [one.get("category") for one in entities_sent(some)] == ["vip", None]
    assert "category" not in entities_sent(some)[1]


def test_what_is_missing_is_sent_as_null_and_times_and_arrays_as_json_has_them():
    moment = pd.Timestamp("2026-11-20T12:00:00Z")
    given = {"a": np.nan, "b": pd.NA, "c": pd.NaT, "d": moment, "e": np.array(["x"]), "f": pd.Series([1, 2])}

    sent = body_of(predict_call("a", Entity("e", given)))["inputs"]

    assert sent == {"a": None, "b": None, "c": None, "d": "2026-11-20T12:00:00+00:00", "e": ["x"], "f": [1, 2]}


@pytest.mark.parametrize("unit", ["ns", "us", "s", "D"])
def test_times_of_numpy_are_sent_as_iso_8601_in_columns_and_in_inputs(unit):
    times = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype=f"datetime64[{unit}]")
    first, third = "2026-01-01T00:00:00", "2026-01-03T00:00:00"
    given = {"every second": times[::2], "one": times[0].reshape(())}

    assert [one["inputs"]["when"] for one in entities_sent({"entity_id": list("abc"), "when": times})][::2] == [
        first,
        third,
    ]
    assert body_of(predict_call("a", Entity("e", given)))["inputs"] == {"every second": [first, third], "one": first}


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
def test_a_time_of_numpy_that_is_missing_is_null_in_inputs(unit):
    missing = np.datetime64("NaT", unit)
    given = {"one": missing, "some": np.array([missing, "2026-01-01"], dtype=f"datetime64[{unit}]")}

    sent = body_of(predict_call("a", Entity("e", given)))["inputs"]

    assert sent == {"one": None, "some": [None, "2026-01-01T00:00:00"]}


def test_short_floats_of_numpy_are_sent_as_short_as_they_are():
    given = {"one": np.float32(0.1), "some": np.array([0.1], dtype=np.float32), "when": np.datetime64("2026-01-01")}

    call = predict_call("a", Entity("e", given))

    assert body_of(call)["inputs"] == {"one": 0.1, "some": [0.1], "when": "2026-01-01T00:00:00"}


@pytest.mark.parametrize("wait", [np.timedelta64(1, "ns"), np.array([1], dtype="timedelta64[ns]")])
def test_a_duration_of_numpy_is_refused_in_inputs(wait):
    with pytest.raises(TypeError, match=r"/inputs/wait.*: .*\(timedelta\)"):
        predict_call("a", Entity("e", {"wait": wait}))


def test_durations_of_numpy_are_refused_in_columns():
    with pytest.raises(TypeError, match=r"/entities/0/inputs/wait: .*\(timedelta\)"):
        entities_sent({"entity_id": ["a"], "wait": np.array([1], dtype="timedelta64[ns]")})


def test_a_column_of_times_that_is_missing_one_has_null_there():
    times = np.array(["2026-01-01", "NaT"], dtype="datetime64[ns]")

    assert entities_sent({"entity_id": ["a", "b"], "when": times})[1]["inputs"] == {"when": None}


def test_inputs_of_a_row_are_taken_as_those_of_an_entity_and_of_a_treatment():
    inputs = PANDAS[["age", "income"]]
    given: Any

    for given in (inputs.iloc[0], inputs.head(1), polars().select("age", "income").head(1), {"age": 41, "income": 1.5}):
        entity = body_of(predict_call("a", {"entity_id": "e", "inputs": given, "category": "vip"}))
        ranked = body_of(rank_call("a", Entity("e"), [{"id": 1, "inputs": given}], None))
        assert entity == {"entity_id": "e", "inputs": {"age": 41, "income": 1.5}, "category": "vip"}
        assert ranked["treatments"] == {"ids": ["1"], "inputs": {"age": [41], "income": [1.5]}}


def test_treatments_are_the_rows_of_a_frame_and_any_id_may_be_a_number_or_a_uuid():
    frame = pd.DataFrame({"id": [1, 2], "price": [9.5, 4.0]})
    expected = {"ids": ["1", "2"], "inputs": {"price": [9.5, 4.0]}}
    given: Any

    for given in (frame, pl.from_pandas(frame), [Treatment(np.int64(1), {"price": 9.5}), {"id": 2, "price": 4.0}]):
        assert body_of(rank_call("a", Entity(UUID(int=7)), given, 1))["treatments"] == expected
    assert receipt_call("a", np.int64(7), None).path == receipt_call("a", "7", None).path


def test_outcomes_are_the_rows_of_a_frame():
    columns: dict[str, list[Any]] = {
        "event_id": [str(UUID(int=1)), str(UUID(int=2))],
        "model": ["visits"] * 2,
        "name": ["came"] * 2,
        "value": [1, 0],
        "occurred_at": [NOON, NOON],
        "entity_id": ["dana", None],
        "prediction_id": [None, str(UUID(int=3))],
        "note": ["of no column that is sent"] * 2,
    }
    ids = {name: [one and UUID(one) for one in columns[name]] for name in ("event_id", "prediction_id")}

    for frame in (pd.DataFrame(columns), pd.DataFrame({**columns, **ids}), pl.DataFrame(columns)):
        (call,) = outcome_calls(frame)

        first, second = body_of(call)["events"]
        assert first == {
            "event_id": str(UUID(int=1)), "model": "visits", "name": "came", "value": 1, "entity_id": "dana",
            "occurred_at": "2026-11-20T12:00:00+00:00",
        }  # fmt: skip
        assert (second["prediction_id"], "entity_id" in second) == (str(UUID(int=3)), False)


@pytest.mark.parametrize("value", [True, np.bool_(True), np.float32(1), np.int8(1), Decimal(1), 1])
def test_the_value_of_an_outcome_is_any_number(value):
    assert event_sent(value=value)["value"] == 1


@pytest.mark.parametrize(
    "moment", [pd.Timestamp(NOON), "2026-11-20T12:00:00Z", pd.Timestamp(NOON).tz_convert("Asia/Tokyo")]
)
def test_the_time_of_an_outcome_is_any_that_has_its_zone(moment):
    assert datetime.fromisoformat(event_sent(occurred_at=moment)["occurred_at"]) == NOON


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"value": np.nan}, ValueError, "the value of 'o1' is missing .nan.: leave out events"),
        ({"value": pd.NA}, ValueError, "the value of 'o1' is missing"),
        ({"value": np.inf}, ValueError, "the value of 'o1': expected a finite number"),
        ({"value": "1"}, TypeError, "the value of 'o1': expected a number, got '1' .str."),
        ({"occurred_at": pd.NaT}, ValueError, "occurred_at of 'o1' is missing"),
        ({"occurred_at": pd.Timestamp("2026-11-20")}, ValueError, "'o1' has no zone"),
        ({"occurred_at": np.datetime64("2026-11-20")}, TypeError, "occurred_at of 'o1': expected a datetime with its"),
        ({"model": None}, TypeError, r"events\[0\].model of 'o1': expected a name, got None"),
        ({"name": np.nan}, TypeError, r"events\[0\].name of 'o1': expected a name, got nan .float."),
        ({"name": ""}, TypeError, r"events\[0\].name of 'o1': expected a name, got ''"),
        ({"event_id": 1.5}, TypeError, r"events\[0\].event_id: expected text, a whole number or a UUID"),
    ],
)
def test_an_outcome_that_cannot_be_stored_is_named(changes, kind, words):
    with pytest.raises(kind, match=words):
        event_sent(**changes)


def test_no_outcome_is_sent_where_a_later_one_cannot_be_stored():
    good = [Outcome(str(number), "visits", "came", 1, NOON, "dana") for number in range(1_000)]

    with pytest.raises(ValueError, match="'late'"):
        outcome_calls([*good, good[0]._replace(event_id="late", value=np.nan)])


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: predict_call("a", PANDAS), ValueError, "a frame of one row is expected here, got one of 2"),
        (lambda: predict_call("a", Entity("e", PANDAS)), ValueError, "entity.inputs: a frame of one row is expected"),
        (lambda: predict_call("a", anything("customer-42")), TypeError, r"got 'customer-42' .str.. .*Entity\("),
        (lambda: predict_call("a", Entity("e", anything(polars().row(0)))), TypeError, "entity.inputs: expected a m"),
        (lambda: predict_call("a", Entity("e", {"x": object()})), TypeError, "/inputs/x: expected text, a number"),
        (lambda: predict_call("a", Entity("e", {"x": [1, {2: 3}]})), TypeError, "/inputs/x/1: names are text, got 2"),
        (lambda: predict_call("a", Entity("e", {"x": 2**70})), TypeError, "/inputs/x: Integer exceeds 64-bit range"),
        (lambda: predict_call("a", Entity(7.5)), TypeError, "entity_id: expected text.* got 7.5 .float."),
        (lambda: predict_call("a", Entity("e", pd.Series([1.0]))), TypeError, "names are expected to be text, got 0"),
        (lambda: entities_sent(PANDAS.rename(columns={"entity_id": "customer"})), ValueError,
         r"entities\[0\]: entity_id missing among customer, age, income, city; rename"),
        (lambda: predict_call("a", {**FIRST, "segment": 3}), ValueError, "entity: .*not both: segment beside inputs"),
        (lambda: predict_call("a", {"entity_id": "e", "inputs": 3}), TypeError, "entity.inputs: expected a mapping"),
        (lambda: rank_call("a", Entity("e"), [{"id": 1, "inputs": {}, "price": 2}], None), ValueError,
         r"treatments\[0\]: .*not both: price beside inputs"),
        (lambda: entities_sent(Entity("e")), TypeError, "expected a list of Entity, a data frame"),
        (lambda: entities_sent(polars().lazy()), TypeError, "got .* .LazyFrame."),
        (lambda: entities_sent(list(PANDAS.itertuples())), TypeError, r"entities\[0\]: expected a mapping"),
        (lambda: entities_sent({"entity_id": "e", "age": 1}), TypeError, "expected a column of values, got 'e'"),
        (lambda: entities_sent({"entity_id": ["e"], "age": [1, 2]}), ValueError, "columns of one length"),
        (lambda: entities_sent(pd.concat([PANDAS, PANDAS[["age"]]], axis=1)), ValueError, "two columns are called 'a"),
    ],
)  # fmt: skip
def test_what_is_ambiguous_is_refused_with_what_is_expected(make: Callable[[], Any], kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_the_place_of_an_input_without_a_form_is_that_in_the_whole_batch():
    entities = [Entity(str(number), {"x": 1}) for number in range(300)]

    with pytest.raises(TypeError, match=r"^/entities/299/inputs/x: expected text"):
        batch_calls("a", [*entities[:299], Entity("299", {"x": object()})])


def test_the_client_imports_none_of_their_libraries():
    program = "import sys, understudy.client; print(*{name.partition('.')[0] for name in sys.modules})"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert set(done.stdout.split()) & {"pandas", "polars", "numpy"} == set()
