from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.replica_count import DOWN_SECONDS, ReplicaCount, VersionLoad, next_replica_count

ONE_COPY = 0.6 * 8 / 0.02
"""Calls a second that one copy bears, of 20 ms each, eight at once."""


def counted(before: ReplicaCount, load: float, now: float = 0.0, *, may_fall: bool = True) -> ReplicaCount:
    return next_replica_count(
        before, VersionLoad(load * ONE_COPY, 0.02), now, concurrency=8, limits=(1, 10), may_fall=may_fall
    )


@given(st.integers(1, 10), st.floats(0, 100))
def test_the_number_is_never_beyond_its_bounds(before, load):
    assert 1 <= counted(ReplicaCount(before), load).replicas <= 10


def test_more_copies_come_at_once():
    assert counted(ReplicaCount(1), 4.5).replicas == 5


def test_fewer_copies_come_after_a_quarter_of_an_hour_of_fewer_calls():
    held = counted(ReplicaCount(5), 2.0)
    almost = counted(held, 2.0, DOWN_SECONDS - 1)

    assert (held.replicas, almost.replicas) == (5, 5)
    assert counted(almost, 2.0, DOWN_SECONDS).replicas == 3


def test_calls_that_come_back_meanwhile_begin_the_quarter_of_an_hour_anew():
    held = counted(ReplicaCount(5), 2.0)
    back = counted(held, 4.9, DOWN_SECONDS - 1)

    assert counted(counted(back, 2.0, DOWN_SECONDS), 2.0, DOWN_SECONDS + 1).replicas == 5


def test_copies_are_kept_while_the_version_has_a_part_in_a_rollout():
    held = counted(ReplicaCount(5), 0.1, may_fall=False)

    assert counted(held, 0.1, 2 * DOWN_SECONDS, may_fall=False).replicas == 5


@given(st.floats(0.2, 9.4), st.lists(st.floats(0.99, 1.01), min_size=40, max_size=40))
def test_calls_that_waver_by_a_hundredth_change_nothing(load, factors):
    count = first = counted(ReplicaCount(1), load)

    for minute, factor in enumerate(factors):
        count = counted(count, load * factor, 60.0 * minute)

    assert count.replicas == first.replicas
