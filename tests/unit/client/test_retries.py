"""When a call is made again: by the server's own hints, within its time."""

import pytest

from understudy.client.problems import ProxyAway
from understudy.client.retries import NO_RETRIES, Attempts, Retries
from understudy.errors import (
    BadAnswer,
    DeadlineExceeded,
    InputInvalid,
    Overloaded,
    QuotaExceeded,
    RequestTimedOut,
    UnderstudyError,
)


def refused(kind: type[UnderstudyError], seconds: int | None = None) -> UnderstudyError:
    problem = kind.__new__(kind)
    UnderstudyError.__init__(problem)
    problem.retry_after_seconds = seconds
    return problem


def attempts(retries: Retries | None = None, seconds: float = 10.0, drawn: float = 0.0) -> Attempts:
    return Attempts(retries or Retries(), seconds, 100.0, lambda: drawn)


def test_what_the_server_asks_for_is_waited_and_a_little_more_by_chance():
    assert attempts().wait_after(refused(Overloaded, 1), 100.0) == 1.0
    assert attempts(drawn=1.0).wait_after(refused(QuotaExceeded, 4), 100.0) == 5.0


def test_without_a_hint_the_wait_doubles():
    call = attempts(Retries(attempts=4))

    waits = [call.wait_after(ProxyAway("away"), 100.0) for _ in range(3)]

    assert waits == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("problem", [
    refused(InputInvalid), refused(BadAnswer), DeadlineExceeded("upstream", 1.0), ProxyAway("a page", is_passing=False),
])  # fmt: skip
def test_what_would_be_the_same_again_is_raised(problem):
    with pytest.raises(type(problem)) as raised:
        attempts().wait_after(problem, 100.0)

    assert raised.value is problem


def test_a_body_that_came_too_late_is_sent_again():
    assert attempts().wait_after(refused(RequestTimedOut), 100.0) == 0.1


def test_the_last_attempts_problem_is_raised():
    call = attempts(Retries(attempts=2))
    call.wait_after(refused(Overloaded, 1), 100.0)

    with pytest.raises(Overloaded):
        call.wait_after(refused(Overloaded, 1), 101.5)
    with pytest.raises(Overloaded):
        attempts(NO_RETRIES).wait_after(refused(Overloaded, 1), 100.0)


def test_no_wait_ends_after_the_calls_time():
    with pytest.raises(Overloaded):
        attempts(seconds=1.0).wait_after(refused(Overloaded, 1), 100.0)
    assert attempts(seconds=1.5).wait_after(refused(Overloaded, 1), 100.0) == 1.0


def test_a_server_that_asks_for_more_than_a_caller_waits_is_believed():
    with pytest.raises(QuotaExceeded):
        attempts(Retries(max_wait_seconds=2.0), seconds=60.0).wait_after(refused(QuotaExceeded, 3), 100.0)


def test_time_goes_on_and_never_below_a_moment():
    call = attempts(seconds=2.0)

    assert call.remaining(100.5) == 1.5
    assert 0 < call.remaining(103.0) < 0.01


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_wait_seconds": -1.0}, {"max_wait_seconds": -1.0}])
def test_retries_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="at least one attempt"):
        Retries(**wrong)
