from datetime import UTC, datetime, timedelta
from struct import pack
from zlib import crc32

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.prediction_log.input_sampling import MAX_SAMPLE_BYTES
from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.prediction_log.row_record import FIELDS
from understudy.core.prediction_log.spool_format import (
    FRAME_BYTES,
    MAX_PAYLOAD_BYTES,
    Frames,
    encode_header,
    encode_row,
    encode_rows,
    follows,
    is_damage,
    read_frames,
    read_header,
    row_starts,
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


def payloads_of(found: Frames) -> list[bytes]:
    return [record + line for record, line in zip(found.records, found.lines, strict=True)]


@pytest.mark.deep
@given(st.lists(rows, max_size=5), st.data())
def test_a_segment_cut_anywhere_gives_exactly_its_whole_rows(many, data):
    frames = encode_rows(many)
    assert frames == [encode_row(row) for row in many]
    segment = b"".join(frames)
    cut = data.draw(st.integers(0, len(segment)))

    found = read_frames(segment[:cut])

    whole = [frame for index, frame in enumerate(frames) if len(b"".join(frames[: index + 1])) <= cut]
    assert payloads_of(found) == [frame[FRAME_BYTES:] for frame in whole]
    assert found.consumed == len(b"".join(whole))
    assert found.damaged == []
    assert not is_damage(segment[found.consumed : cut])


@pytest.mark.deep
@given(st.lists(rows, min_size=1, max_size=5), st.data())
def test_one_changed_byte_costs_only_its_own_row_and_never_yields_a_wrong_one(many, data):
    frames = [encode_row(row) for row in many]
    segment = bytearray(b"".join(frames))
    place = data.draw(st.integers(0, len(segment) - 1))
    segment[place] ^= data.draw(st.integers(1, 255))

    found = read_frames(bytes(segment))

    hit = next(index for index in range(len(frames)) if place < len(b"".join(frames[: index + 1])))
    assert payloads_of(found) == [frame[FRAME_BYTES:] for index, frame in enumerate(frames) if index != hit]
    last_is_hit = hit == len(frames) - 1
    assert len(found.damaged) == (0 if last_is_hit else 1)
    assert is_damage(bytes(segment[found.consumed :])) is last_is_hit


@given(st.binary(max_size=400), st.integers(0, 400))
def test_arbitrary_bytes_are_never_a_row_and_never_raise(noise, offset):
    found = read_frames(noise, FIELDS, min(offset, len(noise)))

    assert found.lines == []


def test_reading_stops_after_as_many_rows_as_were_asked_for():
    frame = encode_row(a_row())

    found = read_frames(frame * 5, FIELDS, len(frame), max_rows=2)

    assert payloads_of(found) == [frame[FRAME_BYTES:]] * 2
    assert found.ends == [2 * len(frame), 3 * len(frame)]
    assert found.consumed == 3 * len(frame)


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
    assert header == (2, ("a", "b"), FIELDS)
    assert read_frames(segment, FIELDS, end).lines == [encode_line(a_row())]


@pytest.mark.parametrize("fields", [[["second", "O"]], [["second"]], [["second", "<i8"], ["second", "<i8"]], 7, "V8"])
def test_a_header_whose_record_has_no_fields_that_can_be_read_is_none(fields):
    payload = orjson.dumps({"format": 2, "columns": ["a"], "record": fields}) + b"\n"

    assert read_header(pack("<II", len(payload), crc32(payload, len(payload))) + payload) is None


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


@pytest.mark.deep
@given(st.lists(rows, max_size=5), st.integers(0, 10_000))
def test_the_starts_of_rows_follow_from_where_the_last_one_ends(many, start):
    frames = [encode_row(row) for row in many]
    end = start + len(b"".join(frames))

    starts = row_starts([encode_line(row) for row in many], FIELDS, end)

    assert starts == [start + len(b"".join(frames[:index])) for index in range(len(frames))]


def test_rows_follow_the_committed_place_or_begin_a_later_segment():
    assert follows((3, 100), (3, 100))
    assert follows((3, 100), (4, 0))
    assert follows((0, 0), (1, 0))
    assert not follows((3, 100), (3, 0))
    assert not follows((3, 100), (3, 200))
    assert not follows((3, 100), (4, 10))
    assert not follows((3, 100), (2, 0))
