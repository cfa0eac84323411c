"""The figures of the demo's traffic."""

from collections import Counter

import orjson
import pytest

from understudy.adapters.dev_server.example_models import example_rows
from understudy.entrypoints.cli.demo.screen import traffic_line
from understudy.entrypoints.demo.traffic import Call, Traffic, body_of, summary_of


def test_the_latest_calls_are_counted_by_who_answered():
    calls = [Call(0.0, "champion", 0.001, failed=False)] * 9 + [Call(0.0, "status 503", 0.1, failed=True)]

    recent = summary_of(calls)

    assert (recent.calls, recent.failed) == (10, 1)
    assert recent.by_role == {"champion": 9, "status 503": 1}


def test_the_quantiles_are_of_the_calls_that_were_made():
    calls = [Call(0.0, "champion", milliseconds / 1_000, failed=False) for milliseconds in range(100, 0, -1)]

    recent = summary_of(calls)

    assert [recent.p50_ms, recent.p99_ms] == pytest.approx([51, 100])


def test_no_calls_have_figures_too():
    assert summary_of([]) == (0, 0, {}, 0.0, 0.0)


def test_the_line_shows_shares_of_the_latest_calls_and_all_failures_by_their_status():
    calls = [Call(0.0, "champion", 0.004, failed=False)] * 3 + [Call(0.0, "challenger", 0.004, failed=False)]

    line = traffic_line(summary_of(calls), 1_204, Counter({"status 503": 2})).plain

    assert line == "  10 s  champion 75 %  challenger 25 %  p50/p99 4.0/4.0 ms  2 of 1204 failed (2 status 503)"


def test_calls_older_than_ten_seconds_are_forgotten():
    clock = [100.0]
    traffic = Traffic(port=1, per_second=1, now=lambda: clock[0])
    traffic.note(Call(100.0, "champion", 0.001, failed=False))

    within = traffic.recent().calls
    clock[0] = 110.1
    after = traffic.recent().calls

    assert (within, after, traffic.total, traffic.failures) == (1, 0, 1, Counter())


def test_no_call_repeats_the_inputs_of_another_while_the_cache_would_remember_them():
    rows = example_rows("visits")

    inputs = {orjson.dumps(orjson.loads(body_of(rows, number))["inputs"]) for number in range(300 * 50)}

    assert len(inputs) == 300 * 50


def test_a_customer_calls_again_with_nearly_the_same_inputs():
    rows = example_rows("visits")

    first, again = (orjson.loads(body_of(rows, number)) for number in (7, 7 + 9 * len(rows)))

    assert first["entity_id"] == again["entity_id"]
    assert first["inputs"] == pytest.approx(again["inputs"], abs=0.02)
