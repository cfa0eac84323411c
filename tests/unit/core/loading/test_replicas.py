from itertools import pairwise
from math import pi, sin
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.replicas import (
    EVERY_SERVER,
    FALL_SECONDS,
    SPAN_SECONDS,
    LoadSeen,
    Replicas,
    SpanLoad,
    parse_replicas,
    replicas_needed,
)

ONE_SERVER = 0.6 * 8 / 0.02
"""Calls a second that one server bears, of 20 ms each, eight at once."""
SPANS = FALL_SECONDS // SPAN_SECONDS
LIMITS = Replicas(1, 10)


def a_load(lately: float, before: float | None = None) -> LoadSeen:
    """Return what so many servers' calls amount to."""
    now = SpanLoad(lately * ONE_SERVER, 0.02)
    return LoadSeen(now, [now] * (SPANS - 1) + [SpanLoad((lately if before is None else before) * ONE_SERVER, 0.02)])


def needed(number: int, load: LoadSeen | None, *, may_fall: bool = True) -> int:
    return replicas_needed(LIMITS, number, load, concurrency=8, may_fall=may_fall)


@pytest.mark.parametrize(
    ("text", "replicas"),
    [("2", (2, 2)), ("1..4", (1, 4)), ("64", (64, 64)), ("3..3", (3, 3)), ("all", EVERY_SERVER)],
)
def test_a_number_a_range_and_all_are_read_as_they_are_written(text, replicas):
    found = parse_replicas(text)

    assert found == replicas
    assert parse_replicas(str(found)) == found


@pytest.mark.parametrize("text", ["", "0", "65", "4..1", "0..2", "1..", "-1", "1...4", "two", "1..100", "٢"])
def test_what_is_no_number_of_servers_is_refused_with_what_may_be_said(text):
    with pytest.raises(ValueError, match=r"is no number of servers: say 2, 1\.\.4, or all; from 1 to 64"):
        parse_replicas(text)


@given(st.integers(0, 99), st.floats(0, 100))
def test_the_number_is_never_beyond_its_bounds(number, load):
    assert LIMITS.least <= needed(number, a_load(load)) <= LIMITS.most


def test_more_come_at_once_as_many_as_the_calls_need():
    assert needed(1, a_load(4.5, before=0.1)) == 5


def test_one_fewer_is_enough_only_after_a_quarter_of_an_hour_of_fewer_calls():
    assert needed(5, a_load(2.0, before=4.0)) == 5
    assert needed(5, a_load(2.0)) == 4


def test_none_goes_during_a_rollout_or_soon_after_another_one_and_none_where_nothing_is_known():
    assert needed(5, a_load(0.1), may_fall=False) == 5
    assert needed(5, None) == 5
    assert needed(0, None) == 1


@given(st.floats(0.2, 9.4), st.lists(st.floats(0.99, 1.01), min_size=40, max_size=40))
def test_calls_that_waver_by_a_hundredth_change_nothing(load, factors):
    number = first = needed(1, a_load(load))

    for lately, before in pairwise(factors):
        number = needed(number, a_load(load * lately, before=load * before))

    assert number == first


def test_six_hours_of_waves_turn_once_at_each_crest_and_once_at_each_trough():
    chance, spans, number, fell, changes = Random(1), [SpanLoad(0.0, 0.02)] * SPANS, 4, 10**6, list[int]()

    for minute in range(6 * 60):
        load = SpanLoad(ONE_SERVER * (3 + 2 * sin(2 * pi * minute / 90)) * chance.uniform(0.97, 1.03), 0.02)
        spans = [*spans[1:], load]
        after = needed(number, LoadSeen(load, spans), may_fall=fell * SPAN_SECONDS >= FALL_SECONDS)
        fell = 0 if after < number else fell + 1
        changes += [after - number] if after != number else []
        number = after

    turns = sum((one > 0) != (other > 0) for one, other in pairwise(changes))
    assert 4 <= turns <= 8
