"""A real Prometheus with the committed rules, and an agent whose model server leaks at each load: the alert fires."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
from e2e.lifecycle import Lifecycle, until
from e2e.stack import a_stack
from watch.programs import Prometheus, a_prometheus, program

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.core.loading.memory import MEBIBYTE
from understudy.ports.registry.registry import Actor

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

CAPACITY_BYTES = 1_024 * MEBIBYTE
LEAK_BYTES = 64 * MEBIBYTE
LOADS = 6
ROUND_SECONDS = 6.0
FIRING = 'ALERTS{alertname="ModelServerLeaking",alertstate="firing"}'
KNOWN = 'ALERTS{alertname="ModelServerLeaking"}'
RESIDUE = 'model_server_memory_bytes{what="residue"}'
STATE = "SELECT coalesce(max(state), '') FROM LoadedVersion"


async def load_again(database_url: str, times: int) -> None:
    """Have the version unloaded and loaded again so often."""
    loading = PostgresLoadingRegistry(database_url, timeout_seconds=5.0)
    actor = Actor("test", "cli", "it is loaded again")
    for _ in range(times):
        await loading.unload("visits", "1", actor)
        await until(database_url, STATE, "END")
        await loading.load("visits", "1", actor, group_name=None, seconds=None)
        await until(database_url, STATE, "AVAILABLE")


def residue(prometheus: Prometheus) -> float:
    return max((one.last for one in prometheus.query(RESIDUE)), default=-1.0)


class Watched(NamedTuple):
    """What was seen of a server after its version was loaded several times more."""

    before: float
    residue: float
    firing: list[str]
    agent: str
    """Which instance the alert is to name."""


async def watched(folder: Path, database_url: str, leak_bytes: int) -> Watched:
    program("prometheus")
    metrics = f"127.0.0.1:{free_port()}"
    with a_stack(folder, database_url) as stack:
        lifecycle = Lifecycle(stack)
        lifecycle.start_server("--leak-bytes", str(leak_bytes), module="failing.leaking_server")
        pid_file = folder / "pid"
        pid_file.write_text(str(stack.processes[lifecycle.server].pid))
        lifecycle.start_monitor()
        lifecycle.start_agent(
            {
                "UNDERSTUDY_AGENT_METRICS_PORT": metrics.rpartition(":")[2],
                "UNDERSTUDY_SERVER_MEMORY_BYTES": str(CAPACITY_BYTES),
                "UNDERSTUDY_SERVER_PID_FILE": str(pid_file),
            }
        )
        await asyncio.sleep(ROUND_SECONDS)  # until it has looked at the server by itself
        await lifecycle.register("1")
        await until(database_url, STATE, "AVAILABLE")
        targets = {"understudy-proxy": [], "understudy-monitor": [metrics]}
        with a_prometheus(folder / "prometheus", targets, seconds=1, holds_seconds=5) as prometheus:
            await asyncio.sleep(ROUND_SECONDS)
            before = residue(prometheus)
            assert prometheus.query(KNOWN) == []
            await load_again(database_url, LOADS)
            await asyncio.sleep(ROUND_SECONDS)
            firing = [one.labels["instance"] for one in prometheus.query(FIRING)]
            return Watched(before, residue(prometheus), firing, metrics)


async def test_a_server_that_leaks_at_each_load_fires_the_alert(tmp_path: Path, database_url: str):
    seen = await watched(tmp_path, database_url, LEAK_BYTES)

    assert seen.before < LEAK_BYTES
    assert seen.residue > 0.2 * CAPACITY_BYTES
    assert seen.firing == [seen.agent]


async def test_a_server_that_only_loads_again_fires_none(tmp_path: Path, database_url: str):
    seen = await watched(tmp_path, database_url, 0)

    assert 0 <= seen.residue < LEAK_BYTES
    assert seen.firing == []
