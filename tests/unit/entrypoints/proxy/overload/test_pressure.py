"""When memory or the event loop's lag counts as pressure."""

import pytest

from understudy.entrypoints.proxy.overload.pressure import CALM_RATIO, LAG_TICKS, Pressure


def a_pressure(memory: list[int] | None = None, *, lag: float = 0.5, limit: int = 1_000) -> Pressure:
    steps = iter(memory or [])
    return Pressure(max_lag_seconds=lag, max_memory_bytes=limit, resident_bytes=lambda: next(steps, 0))


def test_a_loop_that_is_late_each_time_lags_and_one_that_was_late_once_does_not():
    once, each_time = a_pressure(), a_pressure()

    for _ in range(LAG_TICKS - 1):
        once.observe(60.0)
        each_time.observe(0.5)
    assert (once.reason, each_time.reason) == (None, None)
    once.observe(0.0)
    each_time.observe(0.5)

    assert (once.reason, each_time.reason) == (None, "lag")
    each_time.observe(0.1)
    assert each_time.reason is None


def test_memory_is_short_from_its_limit_on_and_until_some_of_it_is_free():
    pressure = a_pressure([999, 1_000, 999, int(1_000 * CALM_RATIO) - 1])

    seen = []
    for _ in range(4):
        pressure.observe(0.0)
        seen.append(pressure.reason)

    assert seen == [None, "memory", "memory", None]


@pytest.mark.parametrize("limits", [{"lag": 0.0, "limit": 0}])
def test_without_limits_there_is_no_pressure(limits):
    pressure = a_pressure([10**12] * 10, **limits)

    for _ in range(10):
        pressure.observe(3_600.0)

    assert pressure.reason is None
