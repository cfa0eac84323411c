import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import a_version
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from understudy.adapters.telemetry.prometheus import (
    COUNTERS,
    EDGES_SECONDS,
    HISTOGRAMS,
    SCORE_EDGES,
    PrometheusTelemetry,
)
from understudy.core.routing.policy import Role

IN_ONE_WORKER = """
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
telemetry = PrometheusTelemetry()
telemetry.set("policy_rejected", 1, "visits")
telemetry.forget("policy_rejected", "visits")
print(telemetry.exposition()[0].decode())
"""
A_WORKER_THAT_COUNTS = """
import os
import signal
from builders import a_version
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
telemetry = PrometheusTelemetry()
for _ in range(2):
    for seconds in (0.004, 0.1, 9.0):
        telemetry.predicted(a_version("6"), "champion", "ok", [seconds], [0.31])
    telemetry.count("cache_requests_total", "visits", "hit")
    telemetry.observe("monitor_tick_duration_seconds", 0.2, "drift")
    telemetry.share()
telemetry.count("cache_requests_total", "visits", "hit", by=1_000)
os.kill(os.getpid(), signal.SIGKILL)
"""
A_WORKER_THAT_IS_SCRAPED = """
from builders import a_version
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
telemetry = PrometheusTelemetry()
telemetry.predicted(a_version("6"), "champion", "ok", [0.003], [0.31])
print(telemetry.exposition()[0].decode())
"""
TESTS = Path(__file__).parents[3]


def test_a_forgotten_gauge_leaves_the_page_and_others_stay():
    telemetry = PrometheusTelemetry()
    telemetry.set("policy_rejected", 1, "visits")
    telemetry.set("policy_rejected", 1, "digits")

    telemetry.forget("policy_rejected", "visits")
    telemetry.forget("policy_rejected", "never seen")

    page = telemetry.exposition()[0].decode()
    assert 'policy_rejected{model="digits"} 1.0' in page
    assert 'model="visits"' not in page
    assert "never seen" not in page


def test_a_process_that_counts_no_partitions_does_not_say_that_there_are_none():
    telemetry = PrometheusTelemetry()
    before = telemetry.exposition()[0].decode()

    telemetry.set("partitions_ahead", 0)

    assert "\npartitions_ahead " not in before
    assert "monitor_leader 0.0" in before
    assert "\npartitions_ahead 0.0\n" in telemetry.exposition()[0].decode()


@pytest.mark.deep
def test_with_several_workers_a_forgotten_gauge_is_0(tmp_path: Path):
    page = a_worker(IN_ONE_WORKER, tmp_path)

    lines = [line for line in page.splitlines() if line.startswith("policy_rejected{")]
    assert len(lines) == 1
    assert 'model="visits"' in lines[0]
    assert lines[0].endswith(" 0.0")
    assert "partitions_ahead" not in page, "no worker has set it"


@pytest.mark.deep
def test_what_a_worker_shared_before_it_was_killed_is_on_the_others_pages(tmp_path: Path):
    for _ in range(2):
        a_worker(A_WORKER_THAT_COUNTS, tmp_path, status=-9)

    page = a_worker(A_WORKER_THAT_IS_SCRAPED, tmp_path)

    call = 'model="visits",role="champion",version="6"'
    assert 'predict_requests_total{model="visits",outcome="ok",role="champion",version="6"} 13.0' in page
    assert f'predict_duration_seconds_bucket{{le="0.005",{call}}} 5.0' in page
    assert f'predict_duration_seconds_bucket{{le="0.1",{call}}} 9.0' in page
    assert f"predict_duration_seconds_count{{{call}}} 13.0" in page
    assert f"prediction_score_count{{{call}}} 13.0" in page
    assert 'cache_requests_total{model="visits",result="hit"} 4.0' in page
    assert 'monitor_tick_duration_seconds_bucket{job="drift",le="0.25"} 4.0' in page


def a_worker(code: str, shared: Path, *, status: int = 0) -> str:
    """Run it in a process of several that share files; return what it printed."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(shared), "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == status, ended.stderr
    return ended.stdout


VERSIONS = {1: "6", 2: '7 "beta"', 3: "6"}
"""By their ids. The last one is the first one, deleted and registered again."""


class Call(NamedTuple):
    version_id: int
    role: Role
    outcome: str
    seconds: float
    score: float | None


class PlainTelemetry:
    """The same metrics with prometheus_client alone: every number goes into its children at once."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counters = {name: Counter(name, *rest, registry=self.registry) for name, rest in COUNTERS.items()}
        self.histograms = {
            name: Histogram(name, text, labels, registry=self.registry, buckets=edges)
            for name, (text, labels, edges) in HISTOGRAMS.items()
        }

    def predicted(self, call: Call) -> None:
        labels = ("visits", VERSIONS[call.version_id], call.role)
        self.counters["predict_requests_total"].labels(*labels, call.outcome).inc()
        self.histograms["predict_duration_seconds"].labels(*labels).observe(call.seconds)
        scores = self.histograms["prediction_score"].labels(*labels)
        if call.score is not None:
            scores.observe(call.score)


def numbers(page: bytes) -> list[str]:
    """Return the lines of counters and histograms, in order; of when they were created, only that they were."""
    names = {name.removesuffix("_total") for name in (*COUNTERS, *HISTOGRAMS)}
    series = "|".join(f"{name}(?:_bucket|_count|_sum|_total|_created)?" for name in names)
    lines = re.findall(rf"^(?:# (?:HELP|TYPE) )?(?:{series})[{{ ].*$", page.decode(), re.MULTILINE)
    return [re.sub(r"^(\w+_created(?:{.*})?) \S+$", r"\1", line) for line in lines]


durations = st.floats(0, 10) | st.sampled_from(EDGES_SECONDS) | st.sampled_from((float("inf"), float("nan")))
scores = st.none() | st.floats() | st.floats(0, 1) | st.sampled_from(SCORE_EDGES)
calls = st.builds(
    Call,
    version_id=st.sampled_from(tuple(VERSIONS)),
    role=st.sampled_from(Role),
    outcome=st.sampled_from(("ok", "timeout")),
    seconds=durations,
    score=scores,
)


@pytest.mark.deep
@given(st.lists(st.lists(calls, max_size=20), max_size=3))
@example([])
@example([[Call(1, Role.SHADOW, "timeout", 1e-3, None)]])
def test_a_page_says_what_the_library_alone_would_say(pages: Sequence[Sequence[Call]]):
    telemetry, plain = PrometheusTelemetry(), PlainTelemetry()
    for page in pages:
        for call in page:
            version = a_version(VERSIONS[call.version_id], id=call.version_id)
            scores = [] if call.score is None else [call.score]
            telemetry.predicted(version, call.role, call.outcome, [call.seconds], scores)
            plain.predicted(call)

        assert numbers(telemetry.exposition()[0]) == numbers(generate_latest(plain.registry))


@pytest.mark.deep
@given(st.lists(st.tuples(st.sampled_from(("hit", "miss")), st.integers(0, 2**40) | st.floats(0, 1e9)), max_size=20))
def test_counters_and_histograms_add_up_as_the_librarys(added: Sequence[tuple[str, float]]):
    telemetry, plain = PrometheusTelemetry(), PlainTelemetry()
    for result, by in added:
        telemetry.count("cache_requests_total", "visits", result, by=by)
        telemetry.count("cache_errors_total", by=by)
        telemetry.observe("rollback_duration_seconds", by, result)
        plain.counters["cache_requests_total"].labels("visits", result).inc(by)
        plain.counters["cache_errors_total"].inc(by)
        plain.histograms["rollback_duration_seconds"].labels(result).observe(by)

    assert numbers(telemetry.exposition()[0]) == numbers(generate_latest(plain.registry))


def test_a_page_of_many_series_is_made_with_pauses_for_whoever_else_computes():
    telemetry = PrometheusTelemetry()
    for number in range(2_000):
        telemetry.set("policy_generation", number, f"model-{number}")
    began, computed = time.monotonic(), time.thread_time()

    page, _ = telemetry.exposition()

    rested = time.monotonic() - began - (time.thread_time() - computed)
    assert page.count(b"policy_generation{") == 2_000
    assert rested >= (2_000 // 50 + 2_000 // 150) * 0.001  # while series are gathered, and while they are rendered


def test_a_counter_cannot_go_down():
    telemetry = PrometheusTelemetry()

    with pytest.raises(ValueError, match="cache_errors_total cannot go down"):
        telemetry.count("cache_errors_total", by=-1)


def test_wrong_labels_are_refused_and_leave_no_series():
    telemetry = PrometheusTelemetry()

    with pytest.raises(ValueError, match="label"):
        telemetry.count("cache_requests_total", "visits")

    assert "cache_requests_total{" not in telemetry.exposition()[0].decode()
