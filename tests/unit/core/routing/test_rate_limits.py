import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing.rate_limits import BURST_SECONDS, NO_LIMIT, Allowance, TokenBucket, call_bytes, most_of

rates = st.floats(0.01, 1e6)
costs = st.floats(0.01, 1e6)


@given(rates, st.lists(st.tuples(costs, st.floats(0, 100)), max_size=50))
def test_what_is_let_through_is_the_burst_the_rate_and_one_call_at_most(rate, calls):
    bucket, now, used = TokenBucket(most_of(rate), 0.0), 0.0, 0.0
    for cost, pause in calls:
        now += pause
        bucket, wait = bucket.take(cost, rate, now)
        if wait == 0:
            used += cost

    largest = max((cost for cost, _ in calls), default=0) + 1e-6 * len(calls)
    assert used <= (most_of(rate) + rate * now + largest) * (1 + 1e-9)


@given(rates, costs)
def test_a_caller_that_waits_as_long_as_it_was_told_is_let_through(rate, cost):
    bucket, _ = TokenBucket(most_of(rate), 0.0).take(most_of(rate) + cost, rate, 0.0)
    bucket, wait = bucket.take(1, rate, 0.0)

    assert wait > 0
    assert bucket.take(1, rate, wait * (1 + 1e-9))[1] == 0


def test_what_is_left_to_pay_is_refused_only_to_a_caller_in_debt():
    bucket, _ = TokenBucket(1, 0.0).take(1, 0.1, 0.0)

    paid, wait = bucket.take(255, 0.1, 0.0, needed=0)
    again, later = paid.take(255, 0.1, 0.0, needed=0)

    assert (paid.tokens, wait) == (-255, 0)
    assert again.tokens == -255
    assert later == pytest.approx(2550)


def test_a_clock_that_goes_back_gives_nothing():
    bucket, _ = TokenBucket(1, 100.0).take(1, 1, 100.0)

    assert bucket.take(1, 1, 50.0)[1] > 0


def test_a_slow_rate_still_lets_one_call_through():
    assert most_of(0.001) == 1
    assert most_of(100) == 100 * BURST_SECONDS


def test_a_keys_own_rates_come_first_and_are_shared_by_workers():
    both = Allowance(4, None).or_else(Allowance(1, 1000))

    assert both == Allowance(4, 1000)
    assert both.shared_by(4) == Allowance(1, 250)
    assert NO_LIMIT.or_else(NO_LIMIT) == NO_LIMIT


@pytest.mark.parametrize(("length", "cost"), [(0, 512), (1_000_000, 1_000_512), (None, 66_048)])
def test_a_call_costs_its_body_and_its_row(length, cost):
    assert call_bytes(length) == cost
