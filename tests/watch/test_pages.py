"""A real fault, a real Prometheus and Alertmanager with the committed intervals, and a receiver like PagerDuty's."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from e2e.load import Load, run_load
from e2e.stack import VISITS, Process, Stack, a_stack, register, sql
from watch.pager import Pager, a_pager
from watch.programs import a_prometheus, an_alertmanager, program

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(600)]

ROUTING_KEY = "0123456789abcdef" * 2
PAGED_SECONDS = 60.0
"""docs/how-to/watch.md promises it: probe 5 s, scrape 10, evaluation 10, for 15 (two evaluations), group_wait 10."""
RESOLVED_SECONDS = 150.0
"""Probe 5 s, scrape 10, evaluation 10, keep_firing_for 60 (and an evaluation), group_interval 30."""
QUIET_SECONDS = 45.0
ROWS = example_rows()


def body_of(number: int) -> bytes:
    return orjson.dumps(
        {"entity_id": f"person-{number % 500}", "inputs": {**ROWS[number % 500].inputs, "log_incentive": number / 1e6}}
    )


async def until(found: Callable[[], Any], seconds: float) -> float:
    """Wait for something; return how long that took."""
    began = time.monotonic()
    while not found():
        assert time.monotonic() - began < seconds
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def an_installation(stack: Stack, database_url: str) -> dict[str, list[str]]:
    """Start a champion, a proxy and a monitor; return what Prometheus reads."""
    port = stack.start_model("visits:1", name="champion")
    version = await register(database_url, 1, [port], timeout_ms=1_000)
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    metrics_port, monitor_port = free_port(), free_port()
    await asyncio.to_thread(lambda: stack.start_proxy(metrics_port=metrics_port))
    environment = {
        "DATABASE_URL": database_url,
        "UNDERSTUDY_MONITOR_METRICS_PORT": str(monitor_port),
    }
    arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
    stack.processes["monitor"] = Process("monitor", arguments, stack.folder, environment)
    return {
        "understudy-proxy": [f"127.0.0.1:{metrics_port}"],
        "understudy-monitor": [f"127.0.0.1:{monitor_port}"],
    }


async def test_a_dead_champion_pages_once_within_a_minute_and_its_return_resolves_that(
    tmp_path: Path, database_url: str
) -> None:
    program("prometheus")
    program("alertmanager", "prometheus-alertmanager")
    load = Load()
    with a_pager(ROUTING_KEY) as pager, a_stack(tmp_path, database_url) as stack:
        targets = await an_installation(stack, database_url)
        calls = run_load(stack.proxy_port, VISITS, body_of, per_second=15, seconds=900, load=load)
        calling = asyncio.create_task(calls)
        with (
            an_alertmanager(tmp_path / "alertmanager", pager.url, ROUTING_KEY) as alertmanager,
            a_prometheus(tmp_path / "prometheus", targets, alertmanager=alertmanager),
        ):
            await asyncio.sleep(25)
            assert pager.events == []
            paged, resolved = await die_and_return(stack, pager)
            await asyncio.sleep(QUIET_SECONDS)
        load.is_over = True
        await calling

    print(f"a dead champion paged after {paged:.1f} s and was resolved {resolved:.1f} s after its return")
    assert pager.refused == []
    assert [told.alert for told in pager.opened()] == ["ModelUnavailable"]
    assert paged <= PAGED_SECONDS
    assert resolved <= RESOLVED_SECONDS
    payload = pager.opened()[0].event["payload"]
    assert payload["summary"] == "visits: no model server of the champion is ready"
    assert (payload["severity"], payload["component"]) == ("critical", "visits")
    links = [link["href"] for link in pager.opened()[0].event["links"]]
    assert links[0].endswith("/runbooks/ModelUnavailable.md")
    assert links[1].endswith("/d/understudy-model?var-model=visits")


async def die_and_return(stack: Stack, pager: Pager) -> tuple[float, float]:
    """Kill the champion's only model server and start it again; return when somebody was paged, and told of the end."""
    champion = stack.processes["champion"]
    port = int(champion.log.stem.removeprefix("model-"))
    champion.child.kill()
    champion.child.wait()
    paged = await until(pager.opened, 2 * PAGED_SECONDS)
    await asyncio.to_thread(lambda: stack.start_model("visits:1", name="champion", port=port))
    key = pager.opened()[0].key
    resolved = await until(lambda: pager.resolved(key), 2 * RESOLVED_SECONDS)
    return paged, resolved
