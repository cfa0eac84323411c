"""Which connection gives way to a new one, and what finding it costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.overload.quota import PAUSE_SECONDS, SCAN_RATIO, ConnectionQuota, Waiting


class Kept:
    """A connection of which only is known what it waits for."""

    def __init__(self, quota: ConnectionQuota, waits: Waiting | None, *, closes: bool = True) -> None:
        self.waits, self.closes, self.quota, self.asked = waits, closes, quota, 0
        quota.held[self] = None

    def waiting(self, _now: float) -> Waiting | None:
        self.asked += 1
        return self.waits

    def evict(self) -> bool:
        if self.closes:
            del self.quota.held[self]
        return self.closes


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), min_size=1, max_size=60))
def test_the_first_rank_gives_way_first_and_in_it_the_one_that_waited_longest(waits):
    quota = ConnectionQuota(len(waits))
    kept = [Kept(quota, Waiting(rank, float(since))) for rank, since in waits]

    order: list[Kept] = []
    while quota.close_one(100.0):
        order += [one for one in kept if one not in quota.held and one not in order]

    assert [one.waits for one in order] == sorted(Waiting(rank, float(since)) for rank, since in waits)
    assert not quota.held


def test_a_connection_with_a_request_never_gives_way():
    quota = ConnectionQuota(2)
    busy, other = Kept(quota, None), Kept(quota, Waiting(2, 1.0), closes=False)

    assert quota.is_full
    assert not quota.close_one(10.0)
    assert set(quota.held) == {busy, other}


def test_a_connection_that_was_found_waiting_and_has_a_request_since_is_left_alone():
    quota = ConnectionQuota(3)
    first, second, third = (Kept(quota, Waiting(1, float(since))) for since in range(3))

    assert quota.close_one(10.0)
    second.waits = None
    assert quota.close_one(10.0)

    assert first not in quota.held
    assert set(quota.held) == {second}
    assert third not in quota.held


@pytest.mark.parametrize("waits", [Waiting(1, 0.0), None])
def test_a_flood_costs_each_connection_a_part_of_a_scan(waits):
    count = 3_200
    quota = ConnectionQuota(count)
    kept = [Kept(quota, waits) for _ in range(count)]

    for _ in range(count // 4):
        quota.close_one(10.0)

    assert sum(one.asked for one in kept) < count * (2 + SCAN_RATIO / 4)  # a scan for each sixteenth


def test_after_a_scan_in_vain_the_next_one_waits():
    quota = ConnectionQuota(1)
    busy = Kept(quota, None)

    for now in (10.0, 10.0 + PAUSE_SECONDS / 2, 10.0 + PAUSE_SECONDS * 2):
        quota.close_one(now)

    assert busy.asked == 2
