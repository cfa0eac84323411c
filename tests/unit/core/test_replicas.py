"""Choosing, ejecting and probing replicas, and the retry budget: laws over any sequence of outcomes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.replicas import (
    FAILURES_TO_EJECT,
    FIRST_EJECTION_SECONDS,
    HEALTHY,
    LONGEST_EJECTION_SECONDS,
    RETRY_BURST,
    RETRY_RATIO,
    Health,
    Outcome,
    RetryBudget,
    choose_replica,
    health_after,
    health_after_probe,
)

draws = st.floats(0, 1, exclude_max=True)
loads = st.lists(st.integers(0, 50), min_size=1, max_size=6)
failures = st.sampled_from([Outcome.UNAVAILABLE, Outcome.LATE])
steps = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(Outcome)), max_size=60)
EJECTED = Health(failures=FAILURES_TO_EJECT, ejections=1, ejected_until=1.0)


def after(healths: Sequence[Health], history: Sequence[tuple[int, Outcome]], now: float = 0.0) -> list[Health]:
    """Apply outcomes one after the other; an index beyond the replicas is taken around."""
    result = list(healths)
    for place, outcome in history:
        index = place % len(result)
        result[index] = health_after(result, index, outcome, now)
    return result


@given(loads, draws)
def test_with_replicas_in_rotation_one_of_them_is_chosen_and_never_the_busiest_of_several(in_flight, draw):
    healths = [HEALTHY] * len(in_flight)

    chosen = choose_replica(healths, in_flight, draw)

    assert chosen is not None
    if len(in_flight) > 1:
        assert in_flight[chosen] <= sorted(in_flight)[-2]


@given(st.integers(2, 6), draws)
def test_an_ejected_replica_and_the_one_that_just_failed_get_no_call(count, draw):
    healths = [EJECTED] + [HEALTHY] * (count - 1)

    chosen = choose_replica(healths, [0] * count, draw, avoid=1)

    assert chosen not in (0, 1)
    assert (chosen is None) == (count == 2)


def test_without_replicas_nothing_is_chosen():
    assert choose_replica([], [], 0.5) is None


@pytest.mark.parametrize("count", [2, 3, 5])
def test_equally_busy_replicas_are_chosen_equally_often(count):
    pairs = count * (count - 1)

    chosen = [choose_replica([HEALTHY] * count, [0] * count, (pair + 0.5) / pairs) for pair in range(pairs)]

    assert {chosen.count(index) for index in range(count)} == {count - 1}


@given(st.integers(1, 6), steps)
def test_at_most_half_of_the_replicas_are_ejected_and_the_only_one_never_is(count, history):
    healths = after([HEALTHY] * count, history)

    ejected = sum(health.ejected for health in healths)

    assert ejected <= count // 2
    assert choose_replica(healths, [0] * count, 0.0) is not None


@given(failures)
def test_three_failures_in_a_row_eject_and_two_do_not(outcome):
    twice = after([HEALTHY, HEALTHY], [(0, outcome)] * (FAILURES_TO_EJECT - 1), now=5.0)

    thrice = after(twice, [(0, outcome)], now=5.0)

    assert not twice[0].ejected
    assert thrice[0].ejected_until == 5.0 + FIRST_EJECTION_SECONDS


@given(st.lists(failures, max_size=FAILURES_TO_EJECT - 1), st.sampled_from([Outcome.ANSWERED, Outcome.REFUSED]))
def test_any_answer_forgets_failures_and_a_refusal_is_an_answer(bad, outcome):
    healths = after([HEALTHY, HEALTHY], [(0, failed) for failed in bad])

    healths = after(healths, [(0, outcome)])

    assert healths[0] == HEALTHY


@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=40))
def test_refused_calls_never_eject(count, places):
    healths = after([HEALTHY] * count, [(place, Outcome.REFUSED) for place in places])

    assert healths == [HEALTHY] * count


@given(failures)
def test_failures_of_calls_that_left_before_the_ejection_do_not_make_it_longer(outcome):
    healths = after([EJECTED, HEALTHY], [(0, outcome)] * 10, now=0.9)

    assert healths[0] == EJECTED


def test_each_failed_probe_doubles_the_ejection_up_to_the_bound():
    health = EJECTED
    seconds = []

    for _ in range(6):
        now = health.ejected_until or 0.0
        health = health_after_probe(health, ready=False, now=now)
        seconds.append((health.ejected_until or 0.0) - now)

    assert seconds == [2.0, 4.0, 8.0, *[LONGEST_EJECTION_SECONDS] * 3]


def test_a_probe_is_due_when_the_ejection_is_over_and_not_before():
    assert not HEALTHY.probe_due(100.0)
    assert not EJECTED.probe_due(0.999)
    assert EJECTED.probe_due(1.0)


@given(failures)
def test_after_a_good_probe_one_failure_ejects_again_for_twice_as_long(outcome):
    on_probation = health_after_probe(EJECTED, ready=True, now=1.0)

    again = after([on_probation, HEALTHY], [(0, outcome)], now=1.0)

    assert not on_probation.ejected
    assert again[0].ejected_until == 1.0 + 2 * FIRST_EJECTION_SECONDS


def test_after_a_good_probe_one_answer_forgets_everything():
    on_probation = health_after_probe(EJECTED, ready=True, now=1.0)

    assert after([on_probation, HEALTHY], [(0, Outcome.ANSWERED)])[0] == HEALTHY


def test_a_probe_that_ends_after_the_replica_answered_changes_nothing():
    assert health_after_probe(HEALTHY, ready=False, now=1.0) == HEALTHY


@given(st.lists(st.booleans(), max_size=2_000))
def test_retries_never_exceed_a_fifth_of_the_calls_and_the_burst(wishes):
    budget = RetryBudget()
    retries = 0

    for wants_retry in wishes:
        budget = budget.after_call()
        if wants_retry and budget.allows:
            budget = budget.after_retry()
            retries += 1

    assert 0 <= budget.tokens <= RETRY_BURST
    assert retries <= RETRY_BURST + RETRY_RATIO * len(wishes) + 1e-6
