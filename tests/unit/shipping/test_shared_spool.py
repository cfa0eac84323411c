"""Two shippers of one spool."""

import pytest
from traffic.spooled_rows import a_row

from understudy.adapters.memory.prediction_log import MemorySpool
from understudy.shipping.shared_spool import SharedSpool


@pytest.fixture
def spool():
    spool = MemorySpool(segment_bytes=600)
    for number in range(9):
        spool.append(a_row(number))
    return spool


def test_room_is_given_back_up_to_the_slower_shipper(spool):
    shared = SharedSpool(spool, 2)
    fast, slow = shared.shelf_of(0).own, shared.shelf_of(1).own
    whole = spool.unshipped_bytes

    fast.forget(3, 50)
    assert spool.unshipped_bytes == whole, "of the other one nothing is known"
    slow.forget(2, 70)
    assert spool.forgotten == (2, 70)
    slow.forget(4, 10)

    assert spool.forgotten == (3, 50)
    assert (fast.forgotten, slow.forgotten) == ((3, 50), (4, 10))
    assert fast.unshipped_bytes > slow.unshipped_bytes


def test_a_new_id_of_a_spool_leaves_every_shipper_where_it_was(spool):
    shared = SharedSpool(spool, 2)
    one, other = shared.shelf_of(0).own, shared.shelf_of(1).own
    one.forget(3, 50)
    other.forget(2, 70)

    one.rename("another")

    assert (one.spool_id, other.spool_id) == ("another", "another")
    assert (one.forgotten, other.forgotten) == ((3, 50), (2, 70))


def test_one_shipper_at_a_time_goes_through_spools_of_dead_workers(spool):
    dead = MemorySpool()
    dead.append(a_row())
    shared = SharedSpool(MemorySpool(orphans=[dead]), 2)
    first, second = shared.shelf_of(0).orphans(), shared.shelf_of(1)
    found = next(first)

    assert list(second.orphans()) == []
    found.forget(2, 0)
    first.close()
    [again] = second.orphans()

    assert (again.spool_id, again.forgotten) == (dead.spool_id, (1, 0))
