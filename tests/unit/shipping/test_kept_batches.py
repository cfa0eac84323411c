"""Rows of a spool are read once for two shippers, and each gets all of them."""

import random

import pytest
from traffic.spooled_rows import a_prediction_id, a_row, ids_in

from understudy.adapters.disk.spool import Spool
from understudy.ports.prediction_log.prediction_log import SpooledBatch
from understudy.shipping.kept_batches import KeptBatches
from understudy.shipping.shared_spool import SharedSpool

BYTES = 1 << 20
MOST_AT_ONCE = 9


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path, limit_bytes=1 << 26, segment_bytes=3_000, sync_seconds=60.0)
    yield spool
    spool.close()


class Shipper:
    """Reads on from where it is, as shippers do."""

    def __init__(self, shared: SharedSpool, number: int) -> None:
        self._reader = shared.shelf_of(number).own
        self._place = (0, 0)
        self.ids = list[str]()

    def look(self, rows: int) -> SpooledBatch | None:
        return self._reader.read_from(*self._place, rows, BYTES)

    def read(self, rows: int) -> SpooledBatch | None:
        batch = self.look(rows)
        if batch is not None:
            self.ids += ids_in(batch.rows)
            self._place = (batch.segment, batch.end)
            self._reader.forget(*self._place)
            assert len(batch.records.array()) == len(batch.rows) < rows + MOST_AT_ONCE
        return batch


@pytest.mark.parametrize("seed", range(20))
def test_whatever_shippers_read_and_when_each_gets_every_row_once(spool, seed):
    dice = random.Random(seed)
    shared = SharedSpool(spool, 2)
    shippers = [Shipper(shared, number) for number in range(2)]
    written = 0
    for _ in range(200):
        shipper = dice.choices(shippers, (5, 2))[0]
        match dice.randrange(4):
            case 0:
                more = dice.randrange(1, MOST_AT_ONCE)
                spool.append_all([a_row(number) for number in range(written, written + more)])
                written += more
            case 1:  # read, and left for the next turn
                shipper.look(dice.randrange(1, 30))
            case _:
                shipper.read(dice.choice([1, 3, 7, 20]))
    for shipper in shippers:
        while shipper.read(dice.choice([2, 50])) is not None:
            pass

    for shipper in shippers:
        assert shipper.ids == [a_prediction_id(number) for number in range(written)]
    assert spool.own.unshipped_bytes == 0


def test_what_one_shipper_read_is_not_read_from_the_disk_for_the_other(spool):
    shared = SharedSpool(spool, 2)
    first, second = Shipper(shared, 0), Shipper(shared, 1)
    for start in range(0, 21, 3):
        spool.append_all([a_row(number) for number in range(start, start + 3)])
    read = []
    while (batch := first.read(6)) is not None:
        read.append(batch)

    again = [second.read(6) for _ in read]

    assert len(read) > 3
    assert all(mine is theirs for mine, theirs in zip(again, read, strict=True))
    assert second.read(6) is None


def test_rows_read_under_an_earlier_id_of_the_spool_are_read_anew(spool):
    shared = SharedSpool(spool, 2)
    first, second = Shipper(shared, 0), Shipper(shared, 1)
    spool.append_all([a_row(1)])
    first.read(5)

    shared.shelf_of(0).own.rename("0199a1b2-0000-7000-8000-0000000000ff")
    batch = second.read(5)

    assert batch is not None
    assert batch.spool_id == "0199a1b2-0000-7000-8000-0000000000ff"


def test_no_more_is_kept_than_there_is_room_for(spool):
    for two in ((0, 1), (2, 3)):
        spool.append_all(list(map(a_row, two)))
    first = spool.own.read_from(0, 0, 2, BYTES)
    assert first is not None
    place = (first.segment, first.end)
    second = spool.own.read_from(*place, 2, BYTES)
    assert second is not None
    kept = KeptBatches(first.end - first.start)

    kept.keep(0, (0, 0), first)
    kept.keep(0, place, second)

    assert kept.take(1, (0, 0), 9) is first
    assert kept.take(1, place, 9) is None
    kept.keep(0, place, second)
    assert kept.take(1, place, 9) is second
