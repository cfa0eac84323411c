"""The percentile that a hedge waits for, and the budget that it comes from."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.upstream.hedging import (
    HEDGE_BURST,
    HEDGE_RESERVE,
    MIN_CALLS,
    MIN_P95_SECONDS,
    WINDOW_CALLS,
    HedgeBudget,
    RecentTimes,
)
from understudy.core.upstream.replicas import (
    HEALTHY,
    OVERTAKEN_TO_EJECT,
    CallResult,
    Health,
    health_after_probe,
    healths_after,
)

durations = st.lists(st.floats(0.001, 10), max_size=3 * WINDOW_CALLS)
ratios = st.floats(0.001, 0.5)


def times_of(seconds: list[float]) -> RecentTimes:
    times = RecentTimes()
    for one in seconds:
        times.add(one)
    return times


@given(durations)
def test_the_delay_of_a_hedge_is_the_95th_percentile_of_the_latest_calls_and_nothing_of_a_few(seconds):
    p95 = times_of(seconds).p95_seconds

    latest = sorted(seconds[-WINDOW_CALLS:])
    assert p95 == (latest[ceil(0.95 * len(latest)) - 1] if len(latest) >= MIN_CALLS else None)


@given(st.lists(st.floats(0.001, 0.01), min_size=WINDOW_CALLS, max_size=WINDOW_CALLS), st.integers(0, 4))
def test_a_few_outliers_do_not_move_the_delay_beyond_the_usual(seconds, outliers):
    p95 = times_of([*seconds, *[60.0] * outliers]).p95_seconds

    assert p95 is not None
    assert p95 <= max(seconds)


def test_the_delay_of_a_hedge_is_no_shorter_than_a_timer_can_be():
    assert times_of([0.0001] * WINDOW_CALLS).p95_seconds == MIN_P95_SECONDS


@given(ratios, st.lists(st.sampled_from([None, False, True]), max_size=2_000))
def test_hedges_never_exceed_their_share_of_the_calls_however_many_are_wanted(ratio, wishes):
    budget = HedgeBudget(ratio)
    hedges = 0

    for calls, urgent in enumerate(wishes, start=1):
        budget = budget.after_call()
        if urgent is not None and budget.allows(urgent=urgent):
            budget = budget.after_hedge()
            hedges += 1
        assert hedges <= ratio * calls + 1e-6

    assert 0 <= budget.tokens <= HEDGE_BURST


@given(ratios, st.integers(0, 5_000), st.integers(0, 200))
def test_after_any_quiet_time_no_more_hedges_than_the_burst_leave_at_once(ratio, quiet_calls, wanted):
    budget = HedgeBudget(ratio)
    for _ in range(quiet_calls):
        budget = budget.after_call()

    hedges = 0
    while hedges < wanted and budget.allows(urgent=True):
        budget = budget.after_hedge()
        hedges += 1

    assert hedges <= HEDGE_BURST
    assert hedges == min(wanted, HEDGE_BURST) or ratio * quiet_calls < HEDGE_BURST


@given(ratios, st.integers(0, 5_000))
def test_calls_that_are_merely_late_leave_the_reserve_to_those_that_wait_on(ratio, calls):
    budget = HedgeBudget(ratio)
    for _ in range(calls):
        budget = budget.after_call()
    before = budget.tokens

    while budget.allows(urgent=False):
        budget = budget.after_hedge()

    assert budget.tokens >= min(before, HEDGE_RESERVE)


def overtaken(times: int, start: Health = HEALTHY) -> list[Health]:
    known = [start, HEALTHY]
    for _ in range(times):
        known = healths_after(known, 0, CallResult.OVERTAKEN, 5.0)
    return known


def test_a_replica_that_is_overtaken_again_and_again_is_ejected():
    assert not overtaken(OVERTAKEN_TO_EJECT - 1)[0].ejected
    assert overtaken(OVERTAKEN_TO_EJECT)[0].ejected


def test_an_answer_or_a_refusal_between_shows_that_an_overtaken_replica_lives():
    nearly = overtaken(OVERTAKEN_TO_EJECT - 1)

    for sign in (CallResult.ANSWERED, CallResult.REFUSED):
        lives = healths_after(nearly, 0, sign, 5.0)
        assert not healths_after(lives, 0, CallResult.OVERTAKEN, 5.0)[0].ejected


def test_a_replica_that_is_still_overtaken_after_a_good_probe_is_ejected_at_once():
    back = health_after_probe(overtaken(OVERTAKEN_TO_EJECT)[0], ready=True, now=6.0)

    assert not back.ejected
    assert overtaken(1, back)[0].ejected
