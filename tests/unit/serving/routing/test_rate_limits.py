import pytest

from understudy.core.routing.policy import ApiKey
from understudy.core.routing.rate_limits import BURST_SECONDS, NO_LIMIT, Allowance
from understudy.errors import QuotaExceeded
from understudy.serving.routing.rate_limits import RateLimiter


def a_key(key_id: str, tenant: str | None = None, allowance: Allowance = NO_LIMIT) -> ApiKey:
    return ApiKey(key_id, b"", frozenset(), tenant, allowance)


def passed(rate_limiter: RateLimiter, key: ApiKey | None, calls: int, length: int | None = 0, now: float = 0.0) -> int:
    count = 0
    for _ in range(calls):
        try:
            rate_limiter.charge(key, length, now)
        except QuotaExceeded:
            continue
        count += 1
    return count


def test_one_keys_calls_leave_anothers_untouched():
    rate_limiter = RateLimiter(Allowance(calls_per_second=2))

    assert passed(rate_limiter, a_key("a"), 1_000) == 2 * BURST_SECONDS
    assert passed(rate_limiter, a_key("b"), 10) == 10
    assert passed(rate_limiter, a_key("a"), 10, now=1.0) == 2


def test_keys_of_one_tenant_share_and_a_key_named_like_a_tenant_does_not():
    rate_limiter = RateLimiter(Allowance(calls_per_second=1))

    assert passed(rate_limiter, a_key("a", "shop"), 6) + passed(rate_limiter, a_key("b", "shop"), 6) == BURST_SECONDS
    assert passed(rate_limiter, a_key("shop"), 6) == 6


def test_large_bodies_use_up_bytes_and_small_ones_of_others_go_on():
    rate_limiter = RateLimiter(Allowance(bytes_per_second=10_000))

    assert passed(rate_limiter, a_key("a"), 10, length=1_000_000) == 1
    assert passed(rate_limiter, a_key("b"), 10, length=100) == 10
    assert passed(rate_limiter, a_key("c"), 10, length=None) == 2


def test_the_refusal_says_when_to_come_again_and_that_is_true():
    rate_limiter, key = RateLimiter(NO_LIMIT), a_key("a", allowance=Allowance(bytes_per_second=1_000))
    rate_limiter.charge(key, 60_000, 0.0)

    with pytest.raises(QuotaExceeded) as refused:
        rate_limiter.charge(key, 10, 0.0)

    seconds = refused.value.retry_after_seconds
    assert seconds is not None
    assert 50 <= seconds <= 52
    rate_limiter.charge(key, 10, float(seconds))


def test_a_batch_pays_for_each_of_its_members_and_is_not_refused_for_its_own_debt():
    rate_limiter, key = RateLimiter(Allowance(calls_per_second=10, bytes_per_second=1_000)), a_key("a")

    rate_limiter.charge(key, 60_000, 0.0)
    rate_limiter.charge_members(key, 255, 0.0)

    with pytest.raises(QuotaExceeded) as refused:
        rate_limiter.charge(key, 0, 0.0)
    # 60,000 bytes of body and 256 rows of 512 came out of 10,000.
    assert refused.value.retry_after_seconds == pytest.approx((60_000 + 256 * 512 - 10_000) / 1_000, abs=2)
    with pytest.raises(QuotaExceeded):
        rate_limiter.charge(key, 0, 100.0)
    rate_limiter.charge(key, 0, 200.0)


def test_bytes_that_are_known_later_are_a_debt_of_the_next_calls():
    rate_limiter, key = RateLimiter(Allowance(bytes_per_second=1_000)), a_key("a")
    rate_limiter.charge(key, 100, 0.0)

    rate_limiter.charge_bytes(key, 60_000, 0.0)
    rate_limiter.charge_bytes(key, -50, 0.0)

    with pytest.raises(QuotaExceeded) as refused:
        rate_limiter.charge(key, 0, 0.0)
    assert refused.value.retry_after_seconds == pytest.approx((60_000 + 100 + 512 - 10_000) / 1_000, abs=2)


def test_batches_that_came_together_share_one_burst():
    rate_limiter, key = RateLimiter(Allowance(calls_per_second=1)), a_key("a")
    for _ in range(int(BURST_SECONDS)):
        rate_limiter.charge(key, 0, 0.0)

    rate_limiter.charge_members(key, 255, 0.0)

    for _ in range(int(BURST_SECONDS) - 1):
        with pytest.raises(QuotaExceeded) as refused:
            rate_limiter.charge_members(key, 255, 0.0)
        assert refused.value.retry_after_seconds == 255


def test_without_limits_nothing_is_remembered():
    rate_limiter = RateLimiter(NO_LIMIT)

    assert passed(rate_limiter, a_key("a"), 100) == passed(rate_limiter, None, 100) == 100
    assert len(rate_limiter) == 0


def test_memory_is_bounded_and_the_busy_are_not_forgotten():
    rate_limiter = RateLimiter(Allowance(1, 1_000_000), max_callers=100)
    busy = a_key("busy")
    passed(rate_limiter, busy, 100)
    for number in range(1_000):
        passed(rate_limiter, a_key(f"k{number}"), 1)
        assert passed(rate_limiter, busy, 1) == 0

    assert len(rate_limiter) <= 200


def test_each_worker_hands_out_its_part():
    rate_limiter = RateLimiter(Allowance(calls_per_second=4), workers=4)

    assert passed(rate_limiter, a_key("a"), 100) == BURST_SECONDS
    assert passed(rate_limiter, None, 100) == BURST_SECONDS
