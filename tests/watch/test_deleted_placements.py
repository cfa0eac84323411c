"""A real Prometheus with the committed rules, a monitor and an agent: a deleted placement fires the alert."""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, until
from e2e.stack import a_stack, sql
from watch.programs import Prometheus, a_prometheus, program

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.loading.sudden_unplacing import MANY_VERSIONS

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

FIRING = 'ALERTS{alertname="PlacementsDeleted",alertstate="firing"}'


async def shown(prometheus: Prometheus, expr: str, instances: set[str]) -> None:
    """Wait until an expression has a series for each of these processes."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while (found := {one.labels["instance"] for one in await asyncio.to_thread(prometheus.query, expr)}) != instances:
        assert time.monotonic() < give_up, f"{expr}: {found}, not {instances}"
        await asyncio.sleep(0.2)


async def test_an_emptied_table_fires_the_alert_for_the_leader_and_for_the_agent(tmp_path: Path, database_url: str):
    program("prometheus")
    of_agent, of_monitor = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with a_stack(tmp_path, database_url) as stack:
        lifecycle = Lifecycle(stack)
        lifecycle.start_server()
        lifecycle.start_monitor(metrics_port=int(of_monitor.rpartition(":")[2]))
        lifecycle.start_agent({"UNDERSTUDY_AGENT_METRICS_PORT": of_agent.rpartition(":")[2]})
        for number in range(MANY_VERSIONS):
            await lifecycle.register(str(number))
        available = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'"
        await until(database_url, available, MANY_VERSIONS)
        targets = {"understudy-proxy": [], "understudy-monitor": [of_monitor, of_agent]}
        with a_prometheus(tmp_path / "prometheus", targets, seconds=1) as prometheus:
            await shown(prometheus, "many_unplaced_total + placements_restored_total == 0", {of_monitor, of_agent})
            await shown(prometheus, FIRING, set())

            stack.processes["monitor"].signal(signal.SIGSTOP)
            await sql(database_url, "DELETE FROM Placement")
            await shown(prometheus, "many_unplaced_total == 1", {of_agent})
            stack.processes["monitor"].signal(signal.SIGCONT)

            await shown(prometheus, FIRING, {of_monitor, of_agent})
