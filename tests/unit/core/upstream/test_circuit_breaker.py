"""When the circuit breaker opens, and how it closes again."""

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.upstream.circuit_breaker import CLOSED, FAILURES_TO_OPEN, OPEN_SECONDS, CircuitBreaker

times = st.floats(0, 1e6)


def after_failures(count: int, now: float) -> CircuitBreaker:
    breaker = CLOSED
    for _ in range(count):
        breaker = breaker.after_asking(now).after_failure(now)
    return breaker


@given(st.integers(0, FAILURES_TO_OPEN - 1), times)
def test_fewer_failures_than_the_bound_leave_it_closed(count, now):
    breaker = after_failures(count, now).after_asking(now)

    assert not breaker.is_open(now)


@given(st.integers(FAILURES_TO_OPEN, 50), times)
def test_failures_in_a_row_open_it_for_the_pause_and_no_longer(count, now):
    breaker = after_failures(count, now)

    assert breaker.is_open(now + OPEN_SECONDS * 0.99)
    assert not breaker.is_open(now + OPEN_SECONDS)


@given(times)
def test_a_success_between_failures_starts_the_count_anew(now):
    breaker = after_failures(FAILURES_TO_OPEN - 1, now).after_success()

    assert not breaker.after_failure(now).is_open(now)


@given(times)
def test_after_the_pause_it_is_half_open_one_call_goes_through_and_the_others_stay_away(now):
    later = now + OPEN_SECONDS

    breaker = after_failures(FAILURES_TO_OPEN, now).after_asking(later)

    assert breaker.is_open(later)
    assert not breaker.after_success().is_open(later)
    assert breaker.after_failure(later).is_open(later + OPEN_SECONDS * 0.99)


@given(times)
def test_a_call_through_the_half_open_breaker_that_never_ends_keeps_the_others_away_for_one_pause(now):
    later = now + OPEN_SECONDS

    breaker = after_failures(FAILURES_TO_OPEN, now).after_asking(later)

    assert not breaker.is_open(later + OPEN_SECONDS)


@given(times)
def test_an_answer_that_came_too_late_lets_the_next_caller_try_at_once_and_only_that_one(now):
    breaker = after_failures(FAILURES_TO_OPEN, now).after_late_answer(now)

    assert not breaker.is_open(now)
    assert breaker.after_asking(now).is_open(now)


@given(times)
def test_an_answer_that_came_too_late_does_not_open_a_breaker_nor_forget_its_failures(now):
    breaker = after_failures(FAILURES_TO_OPEN - 1, now).after_late_answer(now)

    assert not breaker.is_open(now)
    assert breaker.after_failure(now).is_open(now)
