from typing import Any

import pytest

from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.metrics import VersionCounts, metrics_of, version_counts
from understudy.core.windows.window import Window, WindowKey

LATENCIES_US = Histogram.of([10_000.0] * 98 + [50_000.0, 90_000.0])
SCORES = Histogram.of([0.1] * 50 + [0.4] * 40 + [0.9] * 10)
BUSY = VersionCounts(
    volume=140,
    calls=104,
    errors=4,
    latency_us=LATENCIES_US.quantile,
    score_calls=100,
    score=30_000_000,
    positives=10,
    score_quantile=SCORES.quantile,
)
KEY = WindowKey("shipper", 0, 1, Role.CHAMPION, 0, 1, 0)
IDLE = VersionCounts(0, 0, 0, Histogram().quantile, 0, 0, 0, Histogram().quantile)


def a_window(**counts: Any) -> Window:
    return Window(KEY, **counts)


def test_each_metric_has_its_value_under_the_seeds_name():
    found = metrics_of(BUSY)

    assert " ".join(found) == (
        "volume error_rate latency_p50_ms latency_p95_ms latency_p99_ms mean p50 p95 positive_rate"
    )
    assert (found["volume"], found["error_rate"]) == pytest.approx((140, 4 / 104))
    assert (found["mean"], found["positive_rate"]) == pytest.approx((0.3, 0.1))
    # A quantile of the histogram is right to 1 %.
    assert (found["p50"], found["p95"]) == pytest.approx((0.1, 0.9), rel=0.01)
    latencies = found["latency_p50_ms"], found["latency_p95_ms"], found["latency_p99_ms"]
    assert latencies == pytest.approx((10, 10, 50), rel=0.01)


def test_without_a_threshold_there_is_no_positive_rate():
    assert "positive_rate" not in metrics_of(BUSY._replace(positives=None))


def test_positives_are_the_scores_from_the_threshold_on():
    # 0.7 lies in the middle of its cell; the next one below is 1 % away at least.
    windows = [a_window(scores=Histogram.of([0.2, 0.65, 0.7]), positives=2), a_window(scores=Histogram.of([0.9]))]

    assert [version_counts(windows, threshold).positives for threshold in (None, 0.7, 0.5)] == [None, 2, 2]


def test_a_version_without_traffic_has_a_volume_and_nothing_else():
    assert metrics_of(IDLE) == {"volume": 0}


def test_a_version_that_only_fails_has_an_error_rate_and_no_distribution():
    found = metrics_of(IDLE._replace(volume=7, calls=7, errors=7))

    assert found == {"volume": 7, "error_rate": 1}
