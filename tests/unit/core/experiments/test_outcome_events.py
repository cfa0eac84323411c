import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from understudy.core.experiments.outcome_events import (
    MAX_EVENTS,
    MAX_VALUE,
    OutcomeEvent,
    Refusal,
    event_of_row,
    read_event,
    read_outcome_batch,
)
from understudy.errors import MAX_VIOLATIONS, BatchInvalid

PREDICTION_ID = "019a9f3e-7b1c-7d2e-8f00-0123456789ab"
zones = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("x" * 300),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(["event_id", "model", "entity_id", "prediction_id", "name", "value", "occurred_at", "other/~"])


def an_event(**changes: Any) -> dict[str, Any]:
    return {
        "event_id": "order-81723",
        "model": "churn",
        "entity_id": "cust-42",
        "name": "converted",
        "value": 1,
        "occurred_at": "2026-11-20T13:02:11Z",
        **changes,
    }


def read(event: Any) -> OutcomeEvent | Refusal:
    return read_event(event, "/events/3")


def pointers(found: OutcomeEvent | Refusal) -> list[str]:
    assert isinstance(found, Refusal)
    return [violation.pointer for violation in found.violations]


def test_an_event_is_read():
    assert read(an_event()) == OutcomeEvent(
        event_id="order-81723",
        model_name="churn",
        entity_id="cust-42",
        prediction_id=None,
        name="converted",
        value=1.0,
        occurred_at=datetime(2026, 11, 20, 13, 2, 11, tzinfo=UTC).timestamp(),
    )


def test_a_prediction_id_may_stand_in_place_of_the_entity_or_beside_it():
    alone = read(an_event(entity_id=None, prediction_id=PREDICTION_ID.upper()))
    beside = read(an_event(prediction_id=PREDICTION_ID))

    assert isinstance(alone, OutcomeEvent)
    assert (alone.entity_id, alone.prediction_id) == (None, PREDICTION_ID)
    assert isinstance(beside, OutcomeEvent)
    assert (beside.entity_id, beside.prediction_id) == ("cust-42", PREDICTION_ID)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones))  # noqa: DTZ001  # hypothesis asks for it
@example(datetime(2024, 2, 29, 23, 59, 59, 999_999, timezone(timedelta(hours=-5, minutes=-30))))
def test_a_time_is_what_the_calendar_says_in_every_zone(moment):
    found = read(an_event(occurred_at=moment.isoformat()))

    assert isinstance(found, OutcomeEvent)
    # A float of seconds holds microseconds until about the year 2242, and 30 of them in the year 9999.
    assert found.occurred_at == pytest.approx(moment.timestamp(), abs=3e-5, rel=0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("1970-01-01t00:00:01.25z", 1.25),
        ("1970-01-01 01:30:00+0130", 0.0),
        ("1970-01-01 01:00:00+01", 0.0),
        ("1969-12-31T19:00:00-05:00", 0.0),
    ],
)
def test_the_ways_in_which_databases_and_services_write_a_time_are_read(text, seconds):
    found = read(an_event(occurred_at=text))

    assert isinstance(found, OutcomeEvent)
    assert found.occurred_at == seconds


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T13:02:11",
        "2026-11-20",
        "2026-02-30T13:02:11Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T13:02:60Z",
        "2026-11-20T13:02:11+24:00",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "2026-11-20T13:02:11Z\n",
        "٢٠٢٦-11-20T13:02:11Z",
        1_795_179_731,
        True,
    ],
)
def test_a_time_without_its_zone_or_that_never_was_is_refused(text):
    assert pointers(read(an_event(occurred_at=text))) == ["/events/3/occurred_at"]


@pytest.mark.parametrize("value", [True, "1", float("nan"), float("inf"), 10**400, -(10**400), 1.01e20, -1e308, [1]])
def test_a_value_that_is_no_number_that_can_be_summed_up_is_refused(value):
    assert pointers(read(an_event(value=value))) == ["/events/3/value"]


@pytest.mark.parametrize("value", [0, -3, 0.5, MAX_VALUE, -MAX_VALUE, sys.float_info.min, 2**63])
def test_any_other_number_is_a_value(value):
    found = read(an_event(value=value))

    assert isinstance(found, OutcomeEvent)
    assert found.value == float(value)


@pytest.mark.parametrize("text", ["", "x" * 256, "nul\0", "half \ud800", 42])
@pytest.mark.parametrize("name", ["event_id", "model", "entity_id"])
def test_a_text_that_the_database_cannot_hold_is_refused(name, text):
    assert pointers(read(an_event(**{name: text}))) == [f"/events/3/{name}"]


def test_the_longest_texts_fit():
    assert isinstance(
        read(an_event(event_id="x" * 255, model="x" * 255, entity_id="x" * 255, name="x" * 100)), OutcomeEvent
    )
    assert pointers(read(an_event(name="x" * 101))) == ["/events/3/name"]


def test_everything_that_is_wrong_is_said_at_once_under_the_events_own_id():
    found = read({"event_id": "e1", "model": "", "prediction_id": "42", "value": "many", "mood/~": "good"})

    assert isinstance(found, Refusal)
    assert found.event_id == "e1"
    assert pointers(found) == [
        "/events/3/model",
        "/events/3/prediction_id",
        "/events/3/name",
        "/events/3/value",
        "/events/3/occurred_at",
        "/events/3/mood~1~0",
    ]
    assert [v.pointer for v in found.violations if v.detail.startswith("missing")] == [
        "/events/3/name",
        "/events/3/occurred_at",
    ]


def test_an_event_about_no_entity_is_refused():
    assert pointers(read(an_event(entity_id=None))) == ["/events/3/entity_id"]


def test_what_is_no_object_is_refused_where_it_stands():
    assert pointers(read([1])) == ["/events/3"]


@settings(max_examples=60)
@given(fields, anything)
def test_whatever_stands_in_a_field_is_read_or_refused_there_and_never_repeated(name, value):
    found = read(an_event(**{name: f"☂{value}" if isinstance(value, str) else value}))

    if isinstance(found, Refusal):
        assert pointers(found) == [f"/events/3/{name.replace('~', '~0').replace('/', '~1')}"]
        assert "☂" not in found.violations[0].detail
    else:
        assert name != "other/~"


def test_a_batch_with_bad_events_is_refused_with_their_places():
    with pytest.raises(BatchInvalid, match=r"^1 of 3 events cannot be used$") as refused:
        read_outcome_batch({"events": [an_event(event_id="e1"), an_event(value=None), an_event(event_id="e3")]})

    assert [violation.pointer for violation in refused.value.violations] == ["/events/1/value"]


def test_a_batch_is_read_until_as_many_places_are_wrong_as_an_answer_names():
    empty: dict[str, Any] = {}

    with pytest.raises(BatchInvalid, match=r"^167 or more of 1,000 events cannot be used$") as refused:
        read_outcome_batch({"events": [empty] * MAX_EVENTS})

    assert len(refused.value.violations) == MAX_VIOLATIONS


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"events": {}}, {"events": []}, {"events": [{}] * (MAX_EVENTS + 1)}, {"events": [{}], "more": 1}],
)
def test_a_batch_that_is_none_is_refused_with_what_to_send(document):
    with pytest.raises(BatchInvalid) as refused:
        read_outcome_batch(document)

    assert '{"events": [...]}' in refused.value.next_step
    assert "1,000" in refused.value.next_step


def test_a_full_batch_is_read():
    assert len(read_outcome_batch({"events": [an_event()] * MAX_EVENTS})) == MAX_EVENTS


def test_a_row_of_a_file_is_the_same_event():
    row: dict[Any, Any] = {**an_event(value="1", prediction_id=""), "country": "BR", None: ["too many cells"]}

    assert read(event_of_row(row)) == read(an_event())


def test_a_row_whose_value_is_no_number_is_refused_there():
    assert pointers(read(event_of_row(an_event(value="many")))) == ["/events/3/value"]
    assert pointers(read(event_of_row(an_event(value="nan")))) == ["/events/3/value"]
    assert pointers(read(event_of_row(an_event(value="")))) == ["/events/3/value"]
