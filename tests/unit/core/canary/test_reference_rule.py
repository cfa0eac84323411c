from dataclasses import replace

import pytest

from understudy.core.canary.decision import CheckState, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.limits import Stage
from understudy.core.canary.reference_rule import P99_LATENCY, evaluate_reference_rule
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import WINDOW_SECONDS, Window, WindowKey

STAGE = Stage("fraud", "42", 1, (0.0,), 5, 10.0, {1: 10.0})
NOW = 600.0


def a_window(role: Role, *, number: int = 0, calls: int = 100, errors: int = 0, latency_us: float = 10_000) -> Window:
    key = WindowKey("worker-1", 0, 1, role, 1, 1, number * WINDOW_SECONDS)
    latencies = Histogram.of([latency_us] * (calls - errors))
    return replace(Window(key), calls=calls, errors=errors, latencies=latencies)


def both(**challenger) -> list[Window]:
    return [a_window(Role.CHAMPION, errors=10), a_window(Role.CHALLENGER, **{"errors": 10} | challenger)]


@pytest.mark.parametrize(
    ("challenger", "verdict"),
    [
        ({}, Verdict.ADVANCE),
        ({"latency_us": 11_900}, Verdict.ADVANCE),
        ({"latency_us": 12_500}, Verdict.ROLL_BACK),
        ({"errors": 15}, Verdict.ADVANCE),
        ({"errors": 16}, Verdict.ROLL_BACK),
        ({"calls": 49, "errors": 5}, Verdict.HOLD),
        ({"calls": 50, "errors": 5}, Verdict.ADVANCE),
    ],
)
def test_the_seeds_limits_decide(challenger, verdict):
    assert evaluate_reference_rule(both(**challenger), STAGE, NOW).verdict is verdict


def test_a_rollback_names_what_was_exceeded():
    decision = evaluate_reference_rule(both(errors=40, latency_us=20_000), STAGE, NOW)

    assert "p99 latency 20 ms vs 9.98 ms = 2x; error rate 40 % vs 10 % = 4x (reference rule)" in decision.reason
    assert [row.state for row in decision.evidence] == [CheckState.FAIL] * 2
    assert [row.check for row in decision.evidence] == [P99_LATENCY, ERROR_RATE]


def test_below_fifty_requests_it_says_how_many_are_missing():
    decision = evaluate_reference_rule([a_window(Role.CHAMPION), a_window(Role.CHALLENGER, calls=20)], STAGE, NOW)

    assert (decision.reason, decision.missing_requests) == ("20 of 50 requests", 30)
    assert evaluate_reference_rule([], STAGE, NOW).missing_requests == 50


def test_a_challenger_that_answers_nothing_has_no_latency_and_too_many_errors():
    decision = evaluate_reference_rule(both(calls=60, errors=60), STAGE, NOW)

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.evidence[0].state is CheckState.TOO_EARLY


def test_requests_that_end_at_their_callers_deadlines_are_errors_of_a_challenger_that_hangs():
    hanging = replace(a_window(Role.CHALLENGER), latencies=Histogram(), expired_calls=100)

    decision = evaluate_reference_rule([a_window(Role.CHAMPION), hanging], STAGE, NOW)

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.evidence[1].challenger == 1.0


def test_only_the_last_thousand_requests_count():
    old = [a_window(role, number=n, errors=50 * (role is Role.CHALLENGER)) for n in range(5) for role in Role]
    new = [a_window(role, number=5 + n) for n in range(10) for role in Role]

    assert evaluate_reference_rule([*old, *new], STAGE, NOW).verdict is Verdict.ADVANCE
    assert evaluate_reference_rule([*new[3:], *old], STAGE, NOW).verdict is Verdict.ROLL_BACK


def test_windows_that_are_not_closed_or_of_another_rollout_do_not_count():
    worse = replace(a_window(Role.CHALLENGER, errors=90), key=a_window(Role.CHALLENGER, number=40).key)
    other = replace(a_window(Role.CHALLENGER, errors=90), key=worse.key._replace(rollout_id=2, start=0))

    assert evaluate_reference_rule([*both(), worse, other], STAGE, NOW).verdict is Verdict.ADVANCE
