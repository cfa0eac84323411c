"""The heat maps of scores, read from a real Prometheus as Grafana's own code reads them, of a model that says euros.

There is no Grafana here. What its data source (``result_transformer.ts``) and its panel (``heatmap/fields.ts``) make of
series is a few lines, and they are below: rows are sorted by the number in their name; of the format ``heatmap`` each
has the one below taken away, place by place; other series are joined by their times.
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import asyncpg
import numpy as np
import pytest
from traffic.logged import LoggedTraffic, StoreAsOf, lead, register, scored_rows
from watch.programs import DEPLOY, Prometheus, Series, a_prometheus

from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.drift.baseline import FloatArray
from understudy.core.drift.hours import HOUR_SECONDS, prediction_hour
from understudy.core.drift.subject_window import PREDICTION
from understudy.core.routing.policy import Role
from understudy.monitoring.metrics_job import MetricsJob
from understudy.monitoring.score_tenths import RENEWED_SECONDS, ScoreTenths

pytestmark = pytest.mark.timeout(180)
EUROS = np.random.default_rng(3).lognormal(8, 1, 900)
SHARES = {Role.CHAMPION: 1.0, Role.CHALLENGER: 0.1}
"""Of the calls, that a version answers."""
CALLS = "calls of the champion"
COUNTED = 'sum(increase(prediction_score_count{model="$model",role="champion"}[$__rate_interval]))'
INTERVAL = "8s"
"""In the place of Grafana's ``$__rate_interval``, with a scrape a second."""


class Panel(NamedTuple):
    title: str
    expr: str
    legend: str
    format: str
    layout: str


def heatmaps() -> list[Panel]:
    """Return the heat maps of the committed dashboards."""
    found = []
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            if panel["type"] == "heatmap":
                (target,) = panel["targets"]
                assert not panel["options"]["calculate"]
                layout = panel["options"]["rowsFrame"]["layout"]
                found.append(Panel(panel["title"], target["expr"], target["legendFormat"], target["format"], layout))
    return found


def rows_of(panel: Panel, series: Sequence[Series]) -> list[tuple[float, dict[float, float]]]:
    """Return a panel's rows as Grafana makes them: where each ends, and how many scores it has by time."""
    label = panel.legend.strip("{}")
    rows = sorted((float(one.labels[label]), dict(one.points)) for one in series)
    assert len({end for end, _ in rows}) == len(rows)
    if panel.format != "heatmap" or not rows:
        return rows
    # Place by place and not by time: series that are not there at the same times would be taken from others.
    assert len({tuple(points) for _, points in rows}) == 1
    below = [*({} for _ in rows[:1]), *(points for _, points in rows[:-1])]
    return [
        (end, {at: count - less.get(at, 0.0) for at, count in points.items()})
        for (end, points), less in zip(rows, below, strict=True)
    ]


def columns_of(rows: Sequence[tuple[float, Mapping[float, float]]]) -> dict[float, dict[float, float]]:
    """Return the same by time: each column of the heat map."""
    columns: dict[float, dict[float, float]] = {}
    for end, points in rows:
        for at, count in points.items():
            columns.setdefault(at, {})[end] = count
    return dict(sorted(columns.items()))


@contextmanager
def exposed(telemetry: PrometheusTelemetry) -> Iterator[str]:
    """Serve what a process would, and yield its ``host:port``."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = telemetry.exposition()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


class World:
    """A champion that says euros, a challenger that says half as much again, and what both are measured by."""

    def __init__(self, store: StoreAsOf, traffic: LoggedTraffic, database_url: str, epoch: int) -> None:
        self.store, self.traffic, self.epoch = store, traffic, epoch
        self.windows = PostgresWindowLog(database_url, timeout_seconds=10)
        self.proxy, self.monitor = PrometheusTelemetry(), PrometheusTelemetry()
        self.monitor.set("monitor_leader", 1)
        self.job = MetricsJob(store, self.windows, tenths=ScoreTenths(store, self.monitor))
        self.versions: dict[Role, int] = {}

    async def serve(self, minute: float, euros: FloatArray) -> None:
        """Log a minute's answers, let proxies and the monitor count them, and sum their hour up."""
        self.store.now = minute + 75
        for role, share in SHARES.items():
            scores = euros[: round(share * len(euros))] * (1.5 if role is Role.CHALLENGER else 1.0)
            await self.traffic.ship(scored_rows(scores, minute, self.versions[role], role))
            for score in scores.tolist():
                self.proxy.observe("prediction_score", score, "churn", str(self.versions[role]), role.value)
        own = await self.windows.of_versions([self.versions[Role.CHAMPION]], minute, minute + 60)
        hour = prediction_hour(minute // HOUR_SECONDS * HOUR_SECONDS, own)
        await self.store.add_hours(self.versions[Role.CHAMPION], {PREDICTION: hour}, epoch=self.epoch)
        for _ in range(7):  # of an hour without a monitor ten minutes are measured at a time
            await self.job.tick(self.epoch)


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[World]:
    store, traffic = StoreAsOf(database_url, timeout_seconds=10), LoggedTraffic(database_url)
    store.now = await database.fetchval("SELECT extract(epoch FROM now())::float8")
    found = World(store, traffic, database_url, await lead(database_url))
    for role, version in ((Role.CHAMPION, "6"), (Role.CHALLENGER, "7")):
        found.versions[role] = await register(database, "churn", version)
        # Counters that first appear with 900 have not increased, for Prometheus.
        found.proxy.observe("prediction_score", 0.0, "churn", str(found.versions[role]), role.value)
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight)"
        " VALUES ('churn', $1, $2, 10)",
        *found.versions.values(),
    )
    yield found
    await traffic.close()


async def until(prometheus: Prometheus, expr: str) -> None:
    """Wait until a query comes to something."""
    give_up = time.monotonic() + 60
    while not await asyncio.to_thread(prometheus.query, expr):
        assert time.monotonic() < give_up, expr
        await asyncio.sleep(0.2)


async def lived_through(world: World, prometheus: Prometheus) -> dict[str, list[Series]]:
    """Let a minute be served, and one after the tenths were made anew; return what each heat map reads of both."""
    began = time.time()
    await until(prometheus, 'prediction_score_count{role="challenger"} == 1')
    minute = world.store.now // 60 * 60 - 10 * HOUR_SECONDS
    await world.serve(minute, EUROS)
    await until(prometheus, 'count(prediction_tenths{role="challenger"}) == 10')
    await until(prometheus, 'sum(increase(prediction_score_count{role="challenger"}[3s])) == 0')
    await world.serve(minute + RENEWED_SECONDS + 60, 3 * EUROS[:600])
    # For three seconds, so that a step of the range below falls into them.
    await until(prometheus, 'count_over_time((sum(prediction_tenths{role="champion"}) == 600)[3s:1s]) == 3')
    await until(prometheus, 'prediction_score_count{role="champion"} == 1501')
    ended, found = time.time(), {}
    for title, asked in {CALLS: COUNTED, **{panel.title: panel.expr for panel in heatmaps()}}.items():
        expr = asked.replace("$__rate_interval", INTERVAL).replace("$model", "churn")
        found[title] = await asyncio.to_thread(prometheus.range, expr, began, ended)
    return found


async def test_each_heat_map_has_ordered_bands_that_come_to_all_calls_before_and_after_the_edges_are_made_anew(
    world: World, tmp_path
):
    with exposed(world.proxy) as proxy, exposed(world.monitor) as monitor:
        jobs = {"understudy-proxy": [proxy], "understudy-monitor": [monitor]}
        with a_prometheus(tmp_path / "prometheus", jobs, seconds=1) as prometheus:
            shown = await lived_through(world, prometheus)

    (calls,) = shown.pop(CALLS)
    panels = {panel.title: panel for panel in heatmaps()}
    columns = {title: columns_of(rows_of(panels[title], series)) for title, series in shown.items()}
    print(*(f"{title}: {len(of)} columns" for title, of in columns.items()), sep="\n")
    for title, of in columns.items():
        assert panels[title].layout == "le"
        for at, column in of.items():
            assert list(column) == sorted(column), title
            assert max(column) == math.inf, title
            assert min(column.values()) >= 0, (title, at)
    for role, share in SHARES.items():
        of = columns[f"Scores in the champion's tenths: {role}"]
        sums = [sum(column.values()) for column in of.values()]
        assert set(sums) - {0} == {900 * share, 600 * share}
        edges = [tuple(column) for column in of.values()]
        assert len(set(edges)) == 2  # the times of either are in their own columns
        assert all(min(EUROS) < end < 4.5 * max(EUROS) for ends in edges for end in ends if end < math.inf)
    champion = [column.values() for column in columns["Scores in the champion's tenths: champion"].values()]
    assert [column for column in champion if sum(column) == 900 and max(column) > 0.15 * 900] == []
    whole = {at: sum(column.values()) for at, column in columns["Scores: champion"].items()}
    assert whole == pytest.approx(dict(calls.points))
    assert max(whole.values()) >= 900
    assert columns["Scores: shadow"] == {}


def test_the_format_of_each_heat_map_is_that_of_its_series():
    formats = {panel.title: (panel.format, "_bucket" in panel.expr) for panel in heatmaps()}

    assert len(formats) == 5
    assert all(is_cumulative == (kind == "heatmap") for kind, is_cumulative in formats.values())
