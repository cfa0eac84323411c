"""What every spool does, on disk or in memory."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from traffic.spooled_rows import a_prediction_id, a_row, ids_in

from understudy.adapters.disk.spool import Spool
from understudy.adapters.memory.prediction_log import MemorySpool
from understudy.ports.prediction_log.prediction_log import SpooledBatch, SpoolReader

LARGE = 1_048_576
AnySpool = Spool | MemorySpool
MakeSpool = Callable[..., AnySpool]


@pytest.fixture(params=["twin", "disk"])
def make_spool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeSpool]:
    opened: list[Spool] = []

    def make(limit_bytes: int = LARGE, segment_bytes: int = LARGE) -> AnySpool:
        if request.param == "twin":
            return MemorySpool(limit_bytes=limit_bytes, segment_bytes=segment_bytes)
        opened.append(Spool(tmp_path, limit_bytes=limit_bytes, segment_bytes=segment_bytes, sync_seconds=0.01))
        return opened[-1]

    yield make
    for spool in opened:
        spool.close()


def read_all(reader: SpoolReader, max_rows: int = 3, max_bytes: int = LARGE) -> list[SpooledBatch]:
    batches: list[SpooledBatch] = []
    place = (0, 0)
    while (batch := reader.read_from(*place, max_rows, max_bytes)) is not None:
        batches.append(batch)
        place = (batch.segment, batch.end)
    return batches


def test_rows_are_read_in_order_over_all_segments(make_spool):
    spool = make_spool(segment_bytes=700)

    appended = [spool.append(a_row(number)) for number in range(20)]
    batches = read_all(spool.own)

    assert all(appended)
    assert ids_in(row for batch in batches for row in batch.rows) == list(map(a_prediction_id, range(20)))
    assert len({batch.segment for batch in batches}) > 5
    assert max(len(batch.rows) for batch in batches) <= 3


def test_each_batch_begins_where_the_last_one_ended_or_at_the_start_of_a_segment(make_spool):
    spool = make_spool(segment_bytes=1_500)
    for number in range(20):
        spool.append(a_row(number))

    batches = read_all(spool.own)

    for before, after in pairwise(batches):
        assert (after.segment, after.start) == (before.segment, before.end) or (
            after.segment > before.segment and after.start == 0
        )


def test_a_batch_has_a_row_even_when_none_fits(make_spool):
    spool = make_spool()
    spool.append(a_row(1))
    spool.append(a_row(2))

    batches = read_all(spool.own, max_rows=10, max_bytes=1)

    assert ids_in(row for batch in batches for row in batch.rows) == [a_prediction_id(1), a_prediction_id(2)]


def test_an_empty_spool_has_nothing_to_read(make_spool):
    assert make_spool().own.read_from(0, 0, 10, LARGE) is None


def test_over_the_limit_new_rows_are_dropped_and_shipping_makes_room(make_spool):
    spool = make_spool(limit_bytes=4_000, segment_bytes=1_000)

    kept = [spool.append(a_row(number)) for number in range(40)]
    batches = read_all(spool.own)
    spool.own.forget(batches[-1].segment, batches[-1].end)

    assert kept == sorted(kept, reverse=True), "the newest rows are the ones dropped"
    assert 5 < sum(kept) < 40
    assert sum(len(batch.rows) for batch in batches) == sum(kept)
    assert spool.append(a_row(99))


def test_what_is_forgotten_no_longer_counts_as_unshipped(make_spool):
    spool = make_spool(segment_bytes=1_000)
    for number in range(10):
        spool.append(a_row(number))
    full = spool.own.unshipped_bytes
    batches = read_all(spool.own)

    left = []
    for batch in batches:
        spool.own.forget(batch.segment, batch.end)
        left.append(spool.own.unshipped_bytes)

    assert full > left[0]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    spool.own.forget(batches[0].segment, batches[0].end)
    assert spool.own.unshipped_bytes == 0


def test_several_rows_are_written_in_their_order_like_one_after_another(make_spool):
    spool = make_spool(segment_bytes=1_000)

    for first in range(0, 20, 4):
        spool.append_all([a_row(number) for number in range(first, first + 4)])
    batches = read_all(spool.own)

    assert ids_in(row for batch in batches for row in batch.rows) == list(map(a_prediction_id, range(20)))
    assert len({batch.segment for batch in batches}) > 3


def test_of_several_rows_those_are_kept_that_fit(make_spool):
    spool = make_spool(limit_bytes=2_000)

    spool.append_all([a_row(number) for number in range(40)])
    spool.append_all([a_row(99)])
    batches = read_all(spool.own)

    kept = ids_in(row for batch in batches for row in batch.rows)
    assert 2 < len(kept) < 20
    assert kept == list(map(a_prediction_id, range(len(kept))))


def test_of_several_rows_of_which_one_cannot_be_encoded_none_is_written(make_spool):
    spool = make_spool()
    bad = a_row(2)._replace(predicted_at=float("nan"))

    with pytest.raises(ValueError, match="NaN"):
        spool.append_all([a_row(1), bad, a_row(3)])

    assert ids_in(row for batch in read_all(spool.own) for row in batch.rows) == []
