from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import Window, WindowKey
from understudy.ports.registry.registry import VersionRecord
from understudy.rollout.start.time_allowed import ENOUGH_CALLS, Allowed, champion_p95_us, deadline_warnings


def a_version(number: int, timeout_ms: int = 500) -> VersionRecord:
    return VersionRecord(
        id=number, model_name="churn", version=f"v{number}", status="staging", artifact_path="", artifact_digest=None,
        base_model=None, family=None, framework="onnx", protocol="oip", endpoints=(), input_schema={},
        output_schema={}, metrics=None, backend={}, deterministic=True, cache_ttl_seconds=0, timeout_ms=timeout_ms,
        created_at=datetime(2026, 1, 1, tzinfo=UTC), deployed_at=None,
    )  # fmt: skip


CHAMPION, CHALLENGER = a_version(1), a_version(2)
ALLOWED = Allowed(CHAMPION, 0.4, 0.4)


def a_window(version_id: int, milliseconds: float, role: Role = Role.CHAMPION, **counts: Any) -> Window:
    latencies = Histogram.of([1_000 * milliseconds] * ENOUGH_CALLS)
    key = WindowKey("here", 0, version_id, role, 0, 1, 0)
    return Window(key, calls=ENOUGH_CALLS, volume=ENOUGH_CALLS, latencies=latencies, **counts)


def test_a_version_that_takes_less_than_its_share_is_not_mentioned():
    windows = [a_window(1, 150), a_window(2, 190, Role.SHADOW)]

    assert deadline_warnings(windows, CHAMPION, CHALLENGER, ALLOWED) == ()


def test_a_shadow_that_takes_longer_than_a_challengers_share_is_named_with_what_would_let_it_live():
    (words,) = deadline_warnings([a_window(1, 50), a_window(2, 310, Role.SHADOW)], CHAMPION, CHALLENGER, ALLOWED)

    assert words.startswith("v2 takes 31")
    assert "has 200 ms for a call: 40 % of the 500 ms of v1, which then has time to stand in" in words
    timeout_ms = int(words.partition("SET timeout_ms = ")[2].partition(" WHERE id = 1")[0])
    assert timeout_ms * 0.4 == pytest.approx(310, rel=0.02)
    assert "UNDERSTUDY_CHALLENGER_BUDGET_RATIO=0.6" in words


def test_of_a_version_that_never_answered_it_is_said_what_one_as_fast_as_the_champion_would_have():
    (words,) = deadline_warnings([a_window(1, 300)], CHAMPION, CHALLENGER, ALLOWED)

    assert words.startswith("a version as fast as v1 takes 30")


def test_without_a_champion_to_stand_in_its_own_time_out_is_what_a_version_has():
    own = a_version(2, timeout_ms=100)

    (words,) = deadline_warnings([a_window(2, 120, Role.SHADOW)], CHAMPION, own, Allowed(own, 1.0, 0.4))

    assert (
        "has 100 ms for a call, the timeout_ms of v2; it would fail. → UPDATE ModelVersion SET timeout_ms = 1" in words
    )
    assert words.endswith("WHERE id = 2")


def test_callers_whose_deadlines_are_too_short_to_judge_by_are_mentioned_before_the_start():
    # 3.75 times the p95 are 187.5 ms.
    deadlines = Histogram.of([100_000.0] * 80 + [180_000.0] * 20 + [200_000.0] * 40)

    (words,) = deadline_warnings([a_window(1, 50, deadlines=deadlines)], CHAMPION, CHALLENGER, ALLOWED)

    assert words.startswith("50 % of the last hour's calls had deadlines of their callers below 18")
    assert "3.75 times the p95 of v1: too short to judge a version by" in words


def test_deadlines_that_are_long_enough_or_rare_are_not_mentioned():
    longer = Histogram.of([200_000.0] * ENOUGH_CALLS)
    rare = Histogram.of([1_000.0] * (ENOUGH_CALLS // 20 - 1))

    for deadlines in (longer, rare):
        assert deadline_warnings([a_window(1, 50, deadlines=deadlines)], CHAMPION, CHALLENGER, ALLOWED) == ()


def test_a_threshold_is_known_where_every_caller_of_the_champion_is_hurried():
    key = WindowKey("here", 0, 1, Role.CHAMPION, 7, 1, 0)
    window = Window(key, hurried_calls=ENOUGH_CALLS, latencies=Histogram.of([50_000.0] * ENOUGH_CALLS))

    assert champion_p95_us([window], 1) == pytest.approx(50_000, rel=0.01)
    assert champion_p95_us([window], 2) is None
