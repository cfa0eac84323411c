from collections.abc import Sequence
from functools import partial
from math import log
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic.spooled_rows import a_row, records_of

from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.prediction_log.row_record import FIELDS, NO_RECORDS, RowRecords
from understudy.core.prediction_log.spool_format import encode_header, encode_row, read_frames, read_header
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.core.windows import record_reader
from understudy.core.windows.builder import Staged, WindowBuilder
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.record_reader import read_records
from understudy.core.windows.row_reader import layout_of, read_columns
from understudy.core.windows.window import MICRO, window_to_json

START = 1_763_661_000
calls = st.builds(
    a_row()._replace,
    predicted_at=st.floats(START, START + 40),
    model_version_id=st.sampled_from((1, 2)),
    assigned_version_id=st.sampled_from((1, 2)),
    entity_id=st.sampled_from(("ada", "bob", "eve\t\\n\n", "zoë", "a\ud800b")),
    score=st.none() | st.floats(),
    latency_us=st.integers(0, 60_000_000),
    role=st.sampled_from(Role),
    reason=st.sampled_from(Reason),
    policy_generation=st.sampled_from((3, 4)),
    rollout_id=st.none() | st.just(7),
    cache_hit=st.booleans(),
    status=st.sampled_from(Status),
    error_code=st.sampled_from((None, "E503", "E504")),
    deadline_us=st.none() | st.integers(1, 60_000),
    slices=st.sampled_from((None, b'{"category":"gold"}', b'{"category":"a\\\\b","country":"DE"}', b"no slices")),
)


def slow_us_of(rollout_id: int) -> int | None:
    return 10_000 if rollout_id else None


def staged_by(rows: Sequence[PredictionRow], records: RowRecords) -> Staged:
    return WindowBuilder("shipper-1").stage([encode_line(row) for row in rows], COLUMNS, slow_us_of, records)


def texts(staged: Staged) -> dict[object, str]:
    return {window.key: window_to_json(window) for window in staged.windows}


@given(st.lists(calls, max_size=30))
def test_records_come_to_the_same_windows_as_the_text_beside_them(rows):
    by_records, by_text = staged_by(rows, records_of(rows)), staged_by(rows, NO_RECORDS)

    assert texts(by_records) == texts(by_text)
    assert by_records.unreadable_rows == by_text.unreadable_rows == 0


def test_the_text_is_not_read_where_there_are_records():
    rows = [a_row(number) for number in range(3)]

    staged = WindowBuilder("shipper-1").stage([b"no row\n"] * 3, COLUMNS, slow_us_of, records_of(rows))

    assert [window.calls for window in staged.windows] == [3]


def changed(records: RowRecords, fields: Sequence[tuple[str, str]]) -> RowRecords:
    """Return the records as a release with other fields writes them."""
    old = records.array()
    new = np.zeros(old.shape, np.dtype(list(fields)))
    for name in set(new.dtype.names or ()) & set(old.dtype.names or ()):
        new[name] = old[name]
    return RowRecords(tuple(fields), new.tobytes())


@pytest.mark.parametrize(
    "fields",
    [(*FIELDS, ("slices", "V5")), (("slices", "V5"), *FIELDS), tuple(reversed(FIELDS))],
    ids=["behind", "before", "order"],
)
def test_fields_of_a_later_release_are_passed_over_wherever_they_are(fields):
    rows = [a_row(number) for number in range(3)]

    assert texts(staged_by(rows, changed(records_of(rows), fields))) == texts(staged_by(rows, NO_RECORDS))


def test_where_a_field_is_missing_the_text_is_read():
    rows = [a_row(number) for number in range(3)]

    staged = staged_by(rows, changed(records_of(rows), FIELDS[:-1]))

    assert texts(staged) == texts(staged_by(rows, NO_RECORDS))


BEFORE_DRAWN = (
    *(("model_version_id", "<i8"), ("assigned_version_id", "<i8"), ("policy_generation", "<i8"), ("rollout_id", "<i8")),
    *(("role", "u1"), ("reason", "u1"), ("second", "<i8"), ("status", "u1"), ("is_hit", "u1")),
    *(("is_out_of_time", "u1"), ("entity_hash", "<u8"), ("score", "<f8"), ("latency_us", "<i8")),
    *(("deadline_us", "<i8"), ("is_sliced", "u1")),
)
"""The fields as they were written and read before ``is_drawn`` came (ADR 106): while proxies are replaced, each
release finds segments of the other in the spool."""


DRAWN = [
    a_row(1),
    a_row(2)._replace(entity_id="call:ada", is_drawn=True, rollout_id=7, role=Role.CHALLENGER, model_version_id=2),
    a_row(3)._replace(is_drawn=True, error_code="E504", status=Status.FALLBACK, deadline_us=250_000, slices=b"{}"),
]


def test_a_segment_from_before_entities_were_drawn_is_read_from_its_text_and_none_of_its_entities_is():
    layout = layout_of(COLUMNS)
    assert layout is not None
    columns = read_columns([encode_line(row) for row in DRAWN], layout)

    assert columns is not None
    assert read_records(changed(records_of(DRAWN), BEFORE_DRAWN), [], COLUMNS) is None
    assert columns.is_drawn.tolist() == [False] * len(DRAWN)
    assert texts(staged_by(DRAWN, changed(records_of(DRAWN), BEFORE_DRAWN))) == texts(
        staged_by([row._replace(is_drawn=False) for row in DRAWN], NO_RECORDS)
    )


def test_a_reader_from_before_entities_were_drawn_finds_all_of_its_fields_in_a_segment_of_now():
    segment = encode_header() + b"".join(map(encode_row, DRAWN))

    found = read_header(segment)
    assert found is not None
    header, end = found
    frames = read_frames(segment[end:], header)
    rows = RowRecords(header.fields, b"".join(frames.records)).array()

    assert header.format == 3
    assert frames.lines == [encode_line(row._replace(is_drawn=False)) for row in DRAWN]
    assert set(BEFORE_DRAWN) < set(header.fields)
    assert rows["entity_hash"].tolist() == records_of(DRAWN).array()["entity_hash"].tolist()
    assert rows["latency_us"].tolist() == [12_999] * len(DRAWN)
    assert rows["model_version_id"].tolist() == [1, 2, 1]


@pytest.mark.parametrize(("name", "value"), [("role", 9), ("reason", 9), ("latency_us", -1), ("deadline_us", -1)])
def test_a_record_that_this_release_does_not_write_is_unreadable_and_the_others_are_not(name, value):
    rows = [a_row(number) for number in range(3)]
    records = records_of(rows).array().copy()
    records[name][1] = value

    staged = staged_by(rows, RowRecords(FIELDS, records.tobytes()))

    assert staged.unreadable_rows == 1
    assert [window.calls for window in staged.windows] == [2]


def test_no_row_has_no_window():
    assert staged_by([], records_of([])).windows == ()


def test_an_entity_that_was_made_for_one_call_is_new_each_time_and_no_later_one_is_taken_for_it():
    builder = WindowBuilder("shipper-1")
    calls = [a_row(number)._replace(rollout_id=7, entity_id="call:ada", is_drawn=True) for number in (1, 2)]
    named = a_row(3)._replace(rollout_id=7, entity_id="call:ada")

    found = []
    for row in (*calls, named, named):
        staged = builder.stage([encode_line(row)], COLUMNS, slow_us_of, records_of([row]))
        builder.commit(staged)
        found.append(staged.windows[0].new_entities)

    assert [after - before for before, after in zip([0, *found], found, strict=False)] == [1, 1, 1, 0]


@given(st.lists(calls, min_size=1, max_size=30))
def test_rows_are_grouped_alike_where_all_facts_come_to_one_number(rows):
    read = partial(read_records, records_of(rows), [encode_line(row) for row in rows], COLUMNS)
    found = read()
    with patch.object(record_reader, "_MIX", np.uint64(0)):
        one_by_one = read()

    assert found is not None
    assert one_by_one is not None
    assert found.groups == one_by_one.groups
    assert found.group.tolist() == one_by_one.group.tolist()


def test_of_a_long_latency_the_same_is_kept_as_of_a_short_one_to_the_last_digit():
    latencies = [0, 1, 2, 32_766, 32_767, 32_768, 32_769, 60_000_000, 2**62]
    rows = [a_row(number)._replace(latency_us=one, role=Role.CHAMPION) for number, one in enumerate(latencies)]

    (window,) = staged_by(rows, records_of(rows)).windows

    assert window.log_latency == sum(int(log(max(one, 1)) * MICRO) for one in latencies)
    assert window.latencies.counts == Histogram.of(max(one, 1) for one in latencies).counts
