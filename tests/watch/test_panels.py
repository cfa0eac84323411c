"""Every panel, against a real Prometheus that reads a running installation: one that shows nothing is a mistake."""

import asyncio
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from e2e.stack import a_stack
from watch.pager import a_pager
from watch.programs import DEPLOY, Prometheus, Series, a_prometheus, program
from watch.watched import CAUTIOUS, LONG, STORED, VISITS, Watched

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

EMPTY_HERE = {
    "platform: Background tasks that broke": "a defect of the product, of which none is known",
    "monitor: Since the last archive": "no month is old enough to be archived",
    "monitor: Notifications that wait": "there is no subscription",
    "monitor: Notifications by what became of them": "there is no subscription",
    "monitor: Questions to judges by what came of them": "no plan names a judge",
    "monitor: Servers without a wanted version": "no agent loads versions",
    "monitor: Placements that were deleted": "no agent loads versions",
    "monitor: Memory that model servers keep": "no agent loads versions",
    "monitor: Sources that are not followed": "no source is followed",
    "platform: Failed attempts to store files": "the log goes to no lake",
}
"""Panels that show nothing in this installation, with the reason. All others must."""

ROUTING_KEY = "a" * 32
SCRAPE_SECONDS = 1
OUTCOMES_SECONDS = 150.0
"""The job that joins outcomes looks once a minute; the first time there are none yet."""
VALUES = {"$__rate_interval": "12s", "$__range": "300s"}


class Shown(NamedTuple):
    where: str
    expr: str
    legend: str
    series: list[Series]


def targets() -> Iterator[tuple[str, str, str]]:
    """Yield where each query stands, the query, and what names its series."""
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"], target["legendFormat"]
        for annotation in document["annotations"]["list"]:
            yield f"{path.stem}: annotation {annotation['name']}", annotation["expr"], annotation["titleFormat"]


def looked_at(prometheus: Prometheus, expr: str, proxies: Sequence[str], start: float, end: float) -> list[Series]:
    """Return what a panel shows of either model: series with a point that is a number."""
    for name, value in {**VALUES, "$proxies": "|".join(proxies)}.items():
        expr = expr.replace(name, value)
    found = []
    for model in (VISITS, STORED) if "$model" in expr else ("",):
        found += prometheus.range(expr.replace("$model", model), start, end)
    return [one for one in found if any(not math.isnan(value) for _, value in one.points)]


def unnamed(shown: Shown) -> list[str]:
    """Return the labels of a legend that no series has."""
    labels = re.findall(r"{{(\w+)}}", shown.legend)
    return [label for label in labels if not any(one.labels.get(label) for one in shown.series)]


def line_of(shown: Shown) -> str:
    values = [value for one in shown.series for _, value in one.points if not math.isnan(value)]
    figures = f"{min(values):>12.5g} {max(values):>12.5g}" if values else f"{'-':>12} {'-':>12}"
    return f"{shown.where:<52} {len(shown.series):>4} {figures}   {shown.legend}"


async def until(prometheus: Prometheus, expr: str, seconds: float) -> None:
    """Wait until a query comes to something."""
    give_up = time.monotonic() + seconds
    while not await asyncio.to_thread(prometheus.query, expr):
        assert time.monotonic() < give_up, expr
        await asyncio.sleep(1)


async def test_every_panel_shows_something_and_nobody_is_paged_while_a_challenger_is_rolled_back(
    tmp_path, database_url, valkey_url
):
    program("prometheus")
    with a_pager(ROUTING_KEY) as pager, a_stack(tmp_path, database_url, valkey_url) as stack:
        watched = Watched(stack, database_url, f"{pager.url}/channel")
        try:
            await watched.start()
            jobs = {"understudy-proxy": watched.proxies, "understudy-monitor": [watched.monitor]}
            with a_prometheus(tmp_path / "prometheus", jobs, seconds=SCRAPE_SECONDS) as prometheus:
                began = time.time()
                shown, paged, phase = await live_through(watched, prometheus, began)
        finally:
            await watched.stop()

    print(*(line_of(one) for one in shown), sep="\n")
    empty = {one.where for one in shown if not one.series}
    assert phase == "FAILED"
    assert paged == []
    assert pager.channel
    assert empty == EMPTY_HERE.keys()
    assert {one.where: unnamed(one) for one in shown if one.series and unnamed(one)} == {}


async def live_through(
    watched: Watched, prometheus: Prometheus, began: float
) -> tuple[list[Shown], list[dict[str, Any]], str]:
    """Let everything happen; return what panels show, what was paged before the faults, and how the bad one ended."""
    await asyncio.sleep(5)
    await watched.roll_out(STORED, "2", LONG)
    bad = await watched.roll_out(VISITS, "3", CAUTIOUS)
    await asyncio.sleep(3)
    await asyncio.to_thread(watched.replace_model, "three", "visits:3,error_percent=60,latency_ms=30")
    phase = await watched.ended(bad.id, 150)
    await until(prometheus, "outcome_join_ratio > 0", OUTCOMES_SECONDS)
    await until(prometheus, "drift_score", 150)
    await until(prometheus, "prediction_tenths and on () feature_skew_ratio", 90)
    pages = 'max_over_time(ALERTS{alertstate="firing",severity="critical"}[20m])'
    paged = [dict(one.labels) for one in await asyncio.to_thread(prometheus.query, pages)]
    await asyncio.gather(watched.break_connections(), watched.lose_a_table(20))
    await until(prometheus, "sum(monitor_failures_total) > 0", 60)
    await until(prometheus, "sum(prediction_log_errors_total) > 0", 60)
    await asyncio.sleep(15)
    ended = time.time()
    shown = [
        Shown(where, expr, legend, await asyncio.to_thread(looked_at, prometheus, expr, watched.proxies, began, ended))
        for where, expr, legend in targets()
    ]
    return shown, paged, phase
