"""When a call is made again: by the server's own hints, within its time."""

from typing import Any

import numpy as np
import pytest

from understudy.client import AsyncClient, Client
from understudy.client.problems import ProxyAway
from understudy.client.retries import NO_RETRIES, Attempts, Retries, seconds_of, seconds_of_call
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


def test_an_address_without_a_proxy_says_how_often_it_was_called_and_for_how_long():
    call, problem = attempts(Retries(attempts=2)), ProxyAway("away")
    call.wait_after(problem, 100.1)

    with pytest.raises(ProxyAway) as raised:
        call.wait_after(problem, 100.5)

    assert raised.value.tried == "2 attempts in 0.5 s"


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


@pytest.mark.parametrize("given", [None, "5", True])
def test_a_time_out_that_is_no_number_is_refused_with_what_is_expected(given):
    with pytest.raises(TypeError, match=r"timeout_seconds=.*: expected a number of seconds, such as 2.5"):
        Client("http://proxy", timeout_seconds=given)
    assert seconds_of(np.float32(2)) == 2.0


@pytest.mark.parametrize("given", [0, -0.5, np.float32(-1)])
def test_the_time_of_a_call_that_is_over_before_it_is_a_deadline_that_passed(given):
    with pytest.raises(DeadlineExceeded, match=r"timeout_seconds=.*: the time was over before the call") as late:
        seconds_of_call(given, 10.0)

    assert late.value.budget_seconds == given
    assert "timeout_seconds" in late.value.next_step
    assert seconds_of_call(None, 10.0) == 10.0
    assert seconds_of_call(2.5, 10.0) == 2.5


@pytest.mark.parametrize("given", [float("nan"), float("inf"), float("-inf")])
def test_a_time_of_a_call_that_is_not_finite_is_refused(given):
    with pytest.raises(ValueError, match=r"timeout_seconds=.*: expected seconds above 0"):
        seconds_of_call(given, 10.0)


@pytest.mark.parametrize("given", [0, -1, float("nan"), float("inf")])
def test_a_time_in_which_no_answer_can_come_is_refused(given):
    with pytest.raises(ValueError, match=r"timeout_seconds=.*: expected seconds above 0"):
        AsyncClient("http://proxy", timeout_seconds=given)


def test_a_number_of_retries_is_refused_with_what_is_expected():
    given: Any = 3
    with pytest.raises(TypeError, match=r"retries=3: expected Retries\(attempts=3\), or NO_RETRIES"):
        Client("http://proxy", retries=given)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_wait_seconds": -1.0}, {"max_wait_seconds": -1.0}])
def test_retries_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="at least one attempt"):
        Retries(**wrong)
