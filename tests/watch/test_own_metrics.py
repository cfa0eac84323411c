"""Metrics of plans against a real Prometheus: each of its answers has its problem, and a worse version is found."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from watch.programs import program, running

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.http.metric_sources import HttpMetricSources
from understudy.core.canary.decision import CheckState
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.metric_limits import MetricLimit, query_of
from understudy.core.canary.metric_samples import MetricPoint, ReadProblem, samples_of
from understudy.core.canary.metrics.metric_check import judge_metric
from understudy.core.windows.strata import stratify

MINUTES = 220
JUDGED_MINUTES = 40
WORSE = '7 "new"'
"""A label with quotes, as the version of a model may have them."""
TRICKY = "1.0|6 ß\\"
"""One that is a regular expression for another one as well."""
BASKET = MetricLimit("basket", 'avg(basket{version="$version"})', "shop", 0.1)


def series(end: int) -> str:
    """Return in OpenMetrics what versions had in each minute."""
    lines = ["# TYPE basket gauge"]
    for minute in range(MINUTES):
        at = end - 60 * (MINUTES - 1 - minute)
        values = {'6",pod="a': 30 + minute % 7, '6",pod="b': 33, "equal": 31 + minute % 5, "nan": "NaN"}
        values[WORSE.replace('"', '\\"')] = 20 + minute % 3
        values |= {TRICKY.replace("\\", "\\\\"): 50, "1x0": 60}
        lines += [f'basket{{version="{version}"}} {value} {at}' for version, value in values.items()]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def end() -> int:
    return int(time.time()) // 60 * 60


class Server(NamedTuple):
    url: str
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, end: int) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    text, config, data, port = folder / "series.txt", folder / "prometheus.yml", folder / "data", free_port()
    text.write_text(series(end))
    config.write_text("global: {}\n")
    made = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    arguments = [program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={data}"]
    arguments += [f"--web.listen-address=127.0.0.1:{port}", "--query.max-samples=2000"]
    with running(arguments, folder / "prometheus.log", f"http://127.0.0.1:{port}/-/ready") as process:
        yield Server(f"http://127.0.0.1:{port}", process)


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.mark.parametrize(
    ("version", "state"), [("equal", CheckState.OK), (WORSE, CheckState.FAIL), ("8", CheckState.TOO_EARLY)]
)
async def test_an_equal_version_passes_a_worse_one_fails_and_one_without_series_does_neither(url, end, version, state):
    sources = HttpMetricSources({"shop": url}, {}, timeout_seconds=10)
    since = end - 60 * JUDGED_MINUTES

    answers = [
        await sources.read("shop", query_of(BASKET, model="churn", version=label, role=role), first, end)
        for label, role, first in (("6", "champion", end - 60 * (MINUTES - 1)), (version, "challenger", since))
    ]
    await sources.close()

    points = [
        MetricPoint(0, at, value, is_challenger=side)
        for side, answer in zip((False, True), answers, strict=True)
        for at, value in answer.values.items()
    ]
    samples = samples_of(points, 0, since, end)._replace(asked_at=end)
    stage = Stage("churn", version, 1, (float(since),), 1, 25.0, {1: 25.0})
    inputs = CheckInput(stratify([], 1), CanaryPolicy(metrics=(BASKET,)), stage, (0,), 0, metrics=(samples,), now=end)
    assert judge_metric(0, inputs, 6.0).state is state
    assert len(samples.times) == (0 if version == "8" else JUDGED_MINUTES)


@pytest.mark.parametrize(
    "promql", ['basket{version="$version"}', 'basket{version=~"$version"}', "basket{version=~'(x|$version)'}"]
)
async def test_a_name_is_itself_alone_in_strings_and_in_regular_expressions(url, end, promql):
    sources = HttpMetricSources({"shop": url}, {}, timeout_seconds=20)
    query = query_of(MetricLimit("basket", promql, "shop"), model="churn", version=TRICKY, role="challenger")

    answer = await sources.read("shop", query, end, end)
    await sources.close()

    assert answer.values == {end: 50.0}


@pytest.mark.parametrize(
    ("promql", "problem"),
    [
        ('avg(basket{version="8"})', ReadProblem.NO_SERIES),
        ('basket{version="nan"}', ReadProblem.NO_NUMBER),
        ('basket{version=~"6.*|equal"}', ReadProblem.SEVERAL_SERIES),
        ("avg(basket", ReadProblem.WRONG_QUERY),
        ("basket[5m]", ReadProblem.WRONG_QUERY),
        ('sum(sum_over_time(basket{version="equal"}[3h:1s]))', ReadProblem.WRONG_QUERY),
    ],
)
async def test_a_query_that_a_real_prometheus_gives_no_values_for_has_its_problem(url, end, promql, problem):
    sources = HttpMetricSources({"shop": url}, {}, timeout_seconds=20)

    answer = await sources.read("shop", promql, end - 600, end)
    await sources.close()

    assert (answer.problem, answer.values) == (problem, {})


async def stopped(pid: int) -> None:
    """Wait until a process stands still: a signal to stop is sent sooner than it is obeyed."""
    give_up = time.monotonic() + 20
    while not _stands_still(pid):
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)


def _stands_still(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return all((one / "stat").read_text().rpartition(")")[2].split()[0] == "T" for one in threads)


async def test_a_prometheus_that_hangs_is_slow_and_answers_once_it_goes_on(server, end):
    sources = HttpMetricSources({"shop": server.url}, {}, timeout_seconds=1)
    patient = HttpMetricSources({"shop": server.url}, {}, timeout_seconds=20)
    query = 'avg(basket{version="6"})'

    server.process.send_signal(signal.SIGSTOP)
    try:
        await stopped(server.process.pid)
        hanging = await sources.read("shop", query, end, end)
    finally:
        server.process.send_signal(signal.SIGCONT)
    back = await patient.read("shop", query, end, end)
    for one in (sources, patient):
        await one.close()

    assert (hanging.problem, hanging.values) == (ReadProblem.SLOW, {})
    assert (back.problem, list(back.values)) == (ReadProblem.NONE, [end])


async def test_another_path_is_no_api_of_prometheus_and_a_port_without_one_is_down(url, end):
    sources = HttpMetricSources({"page": f"{url}/graph", "down": "http://127.0.0.1:1"}, {}, timeout_seconds=10)

    problems = [(await sources.read(name, "up", end, end)).problem for name in ("page", "down")]
    await sources.close()

    assert problems == [ReadProblem.UNREADABLE, ReadProblem.DOWN]
