from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from struct import pack
from zlib import crc32

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.prediction_log.input_sampling import MAX_SAMPLE_BYTES
from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line, encode_rows, encode_text
from understudy.core.prediction_log.row_record import FIELDS, record_bytes
from understudy.core.prediction_log.spool_format import (
    CURRENT,
    FRAME_BYTES,
    MAX_GROUP_ROWS,
    MAX_GROUP_TEXT,
    MAX_PAYLOAD_BYTES,
    Frames,
    SegmentHeader,
    encode_groups,
    encode_header,
    encode_row,
    follows,
    is_damage,
    read_frames,
    read_header,
    rows_before,
)
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.core.schema.outputs import MAX_LOGGED_BYTES, Prediction

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COPY_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "\\": "\\"}

texts = st.text(st.characters(codec="utf-8"), max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
rows = st.builds(
    PredictionRow,
    prediction_id=texts,
    predicted_at=st.floats(-62_135_596_800, 253_402_300_700),
    model_version_id=st.integers(1, 2**63 - 1),
    assigned_version_id=st.integers(1, 2**63 - 1),
    entity_id=texts,
    input_hash=texts,
    prediction=json_values.map(orjson.dumps),
    score=st.none() | st.floats(allow_nan=False),
    latency_us=st.integers(0, 2**31 - 1),
    role=st.sampled_from(Role),
    reason=st.sampled_from(Reason),
    bucket=st.integers(0, 99),
    policy_generation=st.integers(0, 2**63 - 1),
    rollout_id=st.none() | st.integers(1, 2**63 - 1),
    cache_hit=st.booleans(),
    status=st.sampled_from(Status),
    error_code=st.none() | texts,
    defaulted=st.lists(texts, max_size=3).map(tuple),
    deadline_us=st.none() | st.integers(1, 60_000_000),
    slices=st.none() | st.just(b'{"category":"gold \\\\ silver"}'),
    inputs=st.none() | st.dictionaries(texts, json_values, max_size=3).map(orjson.dumps),
)


def copy_fields(payload: bytes) -> list[str | None]:
    """Read one line of COPY text by the rules of the Postgres manual, written independently of the encoder."""
    assert payload.endswith(b"\n")
    return [None if field == "\\N" else unescape(field) for field in payload[:-1].decode().split("\t")]


def unescape(field: str) -> str:
    characters = iter(field)
    return "".join(COPY_ESCAPES[next(characters)] if character == "\\" else character for character in characters)


def a_row(entity_id: str = "user-1") -> PredictionRow:
    return PredictionRow(
        prediction_id="p-1",
        predicted_at=1_763_661_000.25,
        model_version_id=7,
        assigned_version_id=8,
        entity_id=entity_id,
        input_hash="ab" * 32,
        prediction=b'{"score":0.5}',
        score=0.5,
        latency_us=12_999,
        role=Role.CHALLENGER,
        reason=Reason.BUCKET,
        bucket=42,
        policy_generation=3,
        rollout_id=None,
        cache_hit=False,
        status=Status.OK,
        error_code=None,
        defaulted=("age",),
    )


def test_a_row_is_one_line_of_copy_text_in_the_order_of_the_columns():
    line = encode_line(a_row())

    assert line == (
        b"p-1\t2025-11-20T17:50:00.250000+00\t7\t8\tuser-1\t" + b"ab" * 32 + b'\t{"score":0.5}\t0.5\t12\t12999\t'
        b'challenger\tbucket\t42\t3\t\\N\tf\tok\t\\N\t["age"]\t\\N\t\\N\t\\N\n'
    )
    assert line.count(b"\t") == len(COLUMNS) - 1


@pytest.mark.parametrize("element", [b"0.125,", b'\\\\","'])
def test_the_row_of_any_answer_that_is_given_has_a_place(element):
    count = MAX_LOGGED_BYTES // len(element)
    for body in (b'{"labels":["%b"]}' % (element * (count - 3)), b'{"label":1,"scores":[%b1]}' % (element * 2 * count)):
        row = a_row()._replace(
            entity_id="\\" * 255,
            prediction=Prediction(body, 0.5).logged,
            defaulted=("\\" * 262_000,),  # input_schema has at most 524,288 bytes
            inputs=b"\\" * MAX_SAMPLE_BYTES,
        )

        assert len(encode_row(row)) <= MAX_PAYLOAD_BYTES


@given(rows)
def test_every_value_comes_back_from_the_line(row):
    fields = dict(zip(COLUMNS, copy_fields(encode_line(row)), strict=True))

    for name in ("prediction_id", "entity_id", "input_hash", "error_code", "role", "reason", "status"):
        assert fields[name] == getattr(row, name)
    for name in ("model_version_id", "assigned_version_id", "latency_us", "bucket", "policy_generation"):
        assert fields[name] == str(getattr(row, name))
    assert fields["rollout_id"] == (None if row.rollout_id is None else str(row.rollout_id))
    assert fields["latency_ms"] == str(row.latency_us // 1000)
    assert fields["cache_hit"] == ("t" if row.cache_hit else "f")
    assert fields["prediction"] == row.prediction.decode()
    assert (None if fields["score"] is None else float(fields["score"])) == row.score
    assert tuple(orjson.loads(fields["defaulted"] or "[]")) == row.defaulted
    assert fields["deadline_us"] == (None if row.deadline_us is None else str(row.deadline_us))
    assert fields["slices"] == (None if row.slices is None else row.slices.decode())
    assert fields["inputs"] == (None if row.inputs is None else row.inputs.decode())


@given(rows)
def test_the_time_is_the_same_moment_to_the_microsecond(row):
    text = copy_fields(encode_line(row))[COLUMNS.index("predicted_at")]

    assert text is not None
    assert datetime.fromisoformat(text) == EPOCH + timedelta(microseconds=round(row.predicted_at * 1_000_000))


def test_text_that_is_not_unicode_is_replaced_and_never_raises():
    fields = copy_fields(encode_line(a_row("a\ud800b")._replace(prediction=b'"\xff"')))

    assert fields[COLUMNS.index("entity_id")] == "a?b"
    assert fields[COLUMNS.index("prediction")] == '"\ufffd"'


Encoded = tuple[bytes, bytes]
"""A row's record and its line."""


def encoded(many: Iterable[PredictionRow]) -> list[Encoded]:
    records, lines = encode_rows(many)
    return [(record, encode_text([line])) for record, line in zip(records, lines, strict=True)]


def rows_in(found: Frames) -> list[Encoded]:
    width, content = record_bytes(FIELDS), b"".join(found.records)
    records = [content[place : place + width] for place in range(0, len(content), width)]
    return list(zip(records, found.lines, strict=True))


@pytest.mark.deep
@given(st.lists(st.lists(rows, min_size=1, max_size=4), max_size=4), st.data())
def test_a_segment_cut_anywhere_gives_exactly_the_rows_of_its_whole_groups(writes, data):
    frames = [group.frame for many in writes for group in encode_groups(many)]
    segment = b"".join(frames)
    cut = data.draw(st.integers(0, len(segment)))

    found = read_frames(segment[:cut])

    whole = [index for index in range(len(frames)) if len(b"".join(frames[: index + 1])) <= cut]
    assert rows_in(found) == [row for index in whole for row in encoded(writes[index])]
    assert found.consumed == len(b"".join(frames[: len(whole)]))
    assert found.damaged == []
    assert not is_damage(segment[found.consumed : cut])


@pytest.mark.deep
@given(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_one_changed_byte_costs_only_the_rows_of_its_write_and_never_yields_a_wrong_one(writes, data):
    frames = [group.frame for many in writes for group in encode_groups(many)]
    segment = bytearray(b"".join(frames))
    place = data.draw(st.integers(0, len(segment) - 1))
    segment[place] ^= data.draw(st.integers(1, 255))

    found = read_frames(bytes(segment))

    hit = next(index for index in range(len(frames)) if place < len(b"".join(frames[: index + 1])))
    assert rows_in(found) == [row for index, many in enumerate(writes) if index != hit for row in encoded(many)]
    last_is_hit = hit == len(frames) - 1
    assert len(found.damaged) == (0 if last_is_hit else 1)
    assert is_damage(bytes(segment[found.consumed :])) is last_is_hit


@pytest.mark.deep
@given(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 10_000))
def test_behind_each_row_is_a_place_of_its_own_that_leads_to_the_next_one(writes, at):
    frames = [group.frame for many in writes for group in encode_groups(many)]
    segment = b"".join(frames)

    found = read_frames(segment, at=at)

    assert len(set(found.ends)) == len(found.lines) == sum(map(len, writes))
    assert found.ends == sorted(found.ends)
    starts = [len(b"".join(frames[:index])) for index in range(len(frames) + 1)]
    many_rows = [row for many in writes for row in encoded(many)]
    for number, place in enumerate(found.ends, 1):
        skipped = rows_before(segment, place - at)
        start = place - at - skipped
        assert start in starts
        assert (skipped == 0) == (place - at in starts)
        assert rows_in(read_frames(segment[start:]))[skipped:] == many_rows[number:]


def test_many_rows_are_several_groups_and_long_ones_are_apart():
    many, long = [a_row()] * (MAX_GROUP_ROWS + 3), [a_row("x" * (MAX_GROUP_TEXT // 2))] * 3

    assert [group.rows for group in encode_groups(many)] == [MAX_GROUP_ROWS, 3]
    assert [group.rows for group in encode_groups(long)] == [1, 1, 1]
    for some in (many, long):
        assert rows_in(read_frames(b"".join(group.frame for group in encode_groups(some)))) == encoded(some)


def test_frames_of_the_release_before_have_one_row_and_no_number():
    before = CURRENT._replace(format=2)
    many = encoded([a_row("user-1"), a_row("user-2")])
    frames = [pack("<II", len(one), crc32(one, len(one))) + one for one in map(b"".join, many)]

    found = read_frames(b"".join(frames), before)

    assert rows_in(found) == many
    assert found.ends == [len(frames[0]), len(b"".join(frames))]
    assert not is_damage(frames[0][:-1], before)
    assert is_damage(frames[0][:4] + b"?" + frames[0][5:], before)


def test_a_frame_that_has_no_room_for_as_many_rows_as_its_number_says_is_damage():
    for count in (0, 9, 2**32 - 1):
        payload = pack("<I", count) + b"".join(encoded([a_row()])[0])
        frame = pack("<II", len(payload), crc32(payload, len(payload))) + payload

        found = read_frames(frame + encode_row(a_row()))

        assert rows_in(found) == encoded([a_row()])
        assert found.damaged == [(0, len(frame))]


@given(st.binary(max_size=400), st.integers(0, 400))
def test_arbitrary_bytes_are_never_a_row_and_never_raise(noise, offset):
    found = read_frames(noise[offset:])

    assert found.lines == []


def test_reading_stops_after_as_many_rows_as_were_asked_for():
    frame = encode_row(a_row())

    found = read_frames(frame * 4, at=len(frame), max_rows=2)

    assert rows_in(found) == encoded([a_row()]) * 2
    assert found.ends == [2 * len(frame), 3 * len(frame)]
    assert found.consumed == 3 * len(frame)


def test_a_group_is_read_whole():
    (group,) = encode_groups([a_row()] * 3)

    assert [len(read_frames(group.frame * 3, max_rows=rows).lines) for rows in (2, 3, 4, 9)] == [3, 3, 6, 9]


def test_zeros_that_a_power_cut_left_at_the_end_are_neither_rows_nor_damage():
    frame = encode_row(a_row())

    found = read_frames(frame + bytes(4096))

    assert found.consumed == len(frame)
    assert not is_damage(bytes(4096))


def test_a_header_names_the_format_and_the_columns_and_where_the_rows_begin():
    segment = encode_header(("a", "b")) + encode_row(a_row())

    found = read_header(segment)

    assert found is not None
    header, end = found
    assert header == SegmentHeader(3, ("a", "b"), FIELDS)
    assert read_frames(segment[end:], header, at=end).lines == [encode_line(a_row())]


@pytest.mark.parametrize("fields", [[["second", "O"]], [["second"]], [["second", "<i8"], ["second", "<i8"]], 7, "V8"])
def test_a_header_whose_record_has_no_fields_that_can_be_read_is_none(fields):
    payload = orjson.dumps({"format": 2, "columns": ["a"], "record": fields}) + b"\n"

    assert read_header(pack("<II", len(payload), crc32(payload, len(payload))) + payload) is None


def test_the_last_group_is_damage_whatever_numbers_stand_before_it_and_an_unfinished_one_is_not():
    frame = encode_groups([a_row(str(number)) for number in range(5)])[0].frame

    for garbage in (b"\xff" * 12, b"\xff\xff\xff\x00????\xff\x00\x00\x00", frame[:8] + b"\xff" * 4):
        assert is_damage(garbage + frame[12:-1])
    assert not any(is_damage(frame[:place]) for place in range(len(frame)))
    assert not any(is_damage(frame[:place] + bytes(len(frame) - place - 1)) for place in range(4, len(frame)))


def test_a_line_feed_in_the_record_of_an_unfinished_frame_is_no_damage():
    row = a_row()._replace(model_version_id=0x0A0A)
    frame = encode_row(row)

    assert b"\n" in frame[FRAME_BYTES : -len(encode_line(row))]
    assert not any(is_damage(frame[:place]) for place in range(len(frame)))


@given(st.binary(max_size=200))
def test_a_header_that_cannot_be_read_is_none(noise):
    assert read_header(noise) is None
    assert read_header(encode_row(a_row()) + noise) is None
    assert read_header(encode_header()[:-1]) is None


def test_rows_follow_the_committed_place_or_begin_a_later_segment():
    assert follows((3, 100), (3, 100))
    assert follows((3, 100), (4, 0))
    assert follows((0, 0), (1, 0))
    assert not follows((3, 100), (3, 0))
    assert not follows((3, 100), (3, 200))
    assert not follows((3, 100), (4, 10))
    assert not follows((3, 100), (2, 0))
