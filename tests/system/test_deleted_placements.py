"""The table of placements, emptied by mistake: nothing is unloaded, and monitor and agent say that it was."""

import asyncio
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, until
from e2e.stack import Stack, a_stack, sql

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.loading.sudden_unplacing import MANY_VERSIONS

pytestmark = pytest.mark.timeout(240)
VERSIONS = MANY_VERSIONS + 1
PLACED = "SELECT count(*) FROM Placement"
AVAILABLE = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'"
SERVED = "SELECT model_version_id, target, xmin FROM ModelEndpoint ORDER BY 1"
STATES = "SELECT model_version_id, state, updated_at FROM LoadedVersion ORDER BY 1"


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def counted(port: int, name: str, expected: float) -> None:
    """Wait until a process has counted so much."""

    def value() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))

    give_up = time.monotonic() + GIVE_UP_SECONDS
    while (found := await asyncio.to_thread(value)) != expected:
        assert time.monotonic() < give_up, f"{name}: {found}, not {expected}"
        await asyncio.sleep(0.05)


async def test_an_emptied_table_is_counted_by_the_agent_and_by_the_leader_and_no_version_is_unloaded(
    stack: Stack, database_url: str
):
    lifecycle, of_agent, of_monitor = Lifecycle(stack), free_port(), free_port()
    lifecycle.start_server()
    lifecycle.start_monitor(metrics_port=of_monitor)
    lifecycle.start_agent({"UNDERSTUDY_AGENT_METRICS_PORT": str(of_agent)})
    for number in range(VERSIONS):
        await lifecycle.register(str(number))
    await until(database_url, AVAILABLE, VERSIONS)
    served, states = await sql(database_url, SERVED), await sql(database_url, STATES)
    await counted(of_agent, "many_unplaced_total", 0)
    await counted(of_monitor, "placements_restored_total", 0)

    # The leader stands still until the agent has seen it: it is written again within a second otherwise.
    stack.processes["monitor"].signal(signal.SIGSTOP)
    await sql(database_url, "DELETE FROM Placement")
    await counted(of_agent, "many_unplaced_total", 1)
    stack.processes["monitor"].signal(signal.SIGCONT)
    await until(database_url, PLACED, VERSIONS)
    await counted(of_monitor, "placements_restored_total", VERSIONS)

    # No trigger tells agents of this one: the leader notices it all the same.
    await sql(database_url, "TRUNCATE Placement")
    await until(database_url, PLACED, VERSIONS)
    await counted(of_monitor, "placements_restored_total", 2 * VERSIONS)

    for _ in range(2):  # a round reports as it begins, so the first one is over
        (now,) = (await sql(database_url, "SELECT clock_timestamp()"))[0]
        await until(database_url, f"SELECT count(*) FROM ModelServer WHERE seen_at > '{now}'", 1)
    assert await sql(database_url, SERVED) == served
    assert await sql(database_url, STATES) == states
