"""The last two records cut, zeroed or corrupted at each byte: the rows before them stay, and nothing is invented."""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from traffic.spooled_rows import a_row

from understudy.adapters.disk.files import DiskFiles
from understudy.adapters.disk.segment_reader import SegmentReader
from understudy.adapters.disk.spool import Spool
from understudy.adapters.disk.spool_folder import adopt
from understudy.core.prediction_log.row_encoding import encode_line, encode_rows
from understudy.core.prediction_log.row_record import FIELDS, RowRecords
from understudy.core.prediction_log.spool_format import encode_header, encode_row
from understudy.ports.prediction_log.prediction_log import SpooledBatch

FRAMES = [encode_row(a_row(number)) for number in range(6)]
HEADER = encode_header()
ROWS = [encode_line(a_row(number)) for number in range(6)]
RECORDS = dict(zip(ROWS, encode_rows(map(a_row, range(6)))[0], strict=True))
WHOLE = HEADER + b"".join(FRAMES)
LAST_TWO = len(WHOLE) - len(FRAMES[-1]) - len(FRAMES[-2])
PLACES = range(LAST_TWO, len(WHOLE))
LARGE = 1_048_576


def batches_of(segment: Path, start: int = 0) -> Iterator[SpooledBatch]:
    """Read a final segment from a place on to its end."""
    file, reader = os.open(segment, os.O_RDONLY), SegmentReader("spool")
    try:
        while (batch := reader.read(1, file, start, 100, LARGE, final=True)) is not None:
            assert batch.end > start
            yield batch
            start = batch.end
    finally:
        os.close(file)


def rows_of(batches: Iterator[SpooledBatch]) -> list[bytes]:
    """Return the rows that are no damage, each of which has its own record beside it."""
    found = [batch for batch in batches if not batch.damage]
    for batch in found:
        assert batch.records == RowRecords(FIELDS, b"".join(RECORDS[row] for row in batch.rows))
    return [row for batch in found for row in batch.rows]


def cut(place: int) -> bytes:
    return WHOLE[:place]


def zeroed(place: int) -> bytes:
    return WHOLE[:place] + bytes(len(WHOLE) - place)


def zeroed_one(place: int) -> bytes:
    """Lose the sector in which the byte is, of a write of which a later sector was kept."""
    return WHOLE[:place] + bytes(min(32, len(WHOLE) - place)) + WHOLE[place + 32 :]


def flipped(place: int) -> bytes:
    return WHOLE[:place] + bytes([WHOLE[place] ^ 0x01]) + WHOLE[place + 1 :]


def inverted(place: int) -> bytes:
    return WHOLE[:place] + bytes([WHOLE[place] ^ 0xFF]) + WHOLE[place + 1 :]


def line_feed(place: int) -> bytes:
    """Write what ends a record where none ends."""
    return WHOLE[:place] + b"\n" + WHOLE[place + 1 :]


@pytest.mark.parametrize("damage", [cut, zeroed, zeroed_one, flipped, inverted, line_feed])
def test_whatever_happens_to_the_last_two_records_the_others_are_read_and_no_other_row_is(
    tmp_path: Path, damage: Callable[[int], bytes]
):
    segment = tmp_path / "000000000001.log"

    for place in PLACES:
        segment.write_bytes(damage(place))
        rows = rows_of(batches_of(segment))

        assert rows[:4] == ROWS[:4], place
        assert rows[4:] in ([], [ROWS[4]], [ROWS[5]], ROWS[4:]), place
        if place >= LAST_TWO + len(FRAMES[4]):
            assert rows[4:5] == [ROWS[4]], place


def test_whichever_byte_of_a_header_is_corrupted_no_row_is_read_by_other_columns(tmp_path):
    segment = tmp_path / "000000000001.log"

    for place in range(len(HEADER)):
        for damage in (flipped, inverted):
            segment.write_bytes(damage(place))
            (only,) = batches_of(segment)

            assert only.damage, place
            assert only.rows == [damage(place)], place


def test_from_a_place_at_which_no_record_begins_only_whole_records_are_read(tmp_path):
    segment = tmp_path / "000000000001.log"
    segment.write_bytes(WHOLE)
    begins = {LAST_TWO: ROWS[4:], LAST_TWO + len(FRAMES[4]): ROWS[5:]}

    for place in PLACES:
        rows = rows_of(batches_of(segment, place))

        assert rows == begins.get(place, ROWS[5:] if place < LAST_TWO + len(FRAMES[4]) else []), place


@pytest.mark.parametrize("damage", [cut, flipped])
def test_a_worker_that_adopts_a_damaged_spool_gives_on_its_good_rows_and_takes_new_ones(tmp_path, damage):
    folder = tmp_path / "spool" / "5f0c0c3e-7f8f-4d0e-9c3b-1c9d6f3c2ae1"
    folder.mkdir(parents=True)

    for place in PLACES[:: len(PLACES) // 20]:
        for old in folder.glob("*.log"):
            old.unlink()
        (folder / "000000000001.log").write_bytes(damage(place))
        spool = Spool(tmp_path / "spool", limit_bytes=LARGE, segment_bytes=LARGE, sync_seconds=60)
        try:
            spool.append(a_row(99))
            batches = list(follow(spool))
        finally:
            spool.close()

        rows = [row for batch in batches if not batch.damage for row in batch.rows]
        assert rows[:4] == ROWS[:4]
        assert rows[-1] == encode_line(a_row(99))


def follow(spool: Spool) -> Iterator[SpooledBatch]:
    place = (0, 0)
    while (batch := spool.own.read_from(*place, 100, LARGE)) is not None:
        yield batch
        place = (batch.segment, batch.end)


def test_a_reserve_or_a_lock_that_is_cut_or_filled_with_anything_keeps_no_row_from_being_adopted(tmp_path):
    folder = tmp_path / "5f0c0c3e-7f8f-4d0e-9c3b-1c9d6f3c2ae1"
    folder.mkdir()
    (folder / "000000000001.log").write_bytes(WHOLE)
    (folder / "reserve").write_bytes(b"\xff" * 100)
    (folder / "lock").write_bytes(b"anything")
    (folder / "000000000002.log.new").write_bytes(b"anything")
    (folder / "x.log").write_bytes(b"anything")

    spool = adopt(tmp_path, DiskFiles(), lambda _kind: None)

    assert spool is not None
    assert spool.segments() == [1]
    first = spool.read_from(0, 0, 100, LARGE)
    assert first is not None
    assert list(first.rows) == ROWS
    spool.release()


def test_the_frames_of_the_last_two_records_are_what_the_places_cover():
    ends = [LAST_TWO, LAST_TWO + len(FRAMES[4]), len(WHOLE)]

    assert [WHOLE[start:end] for start, end in pairwise(ends)] == FRAMES[4:]
