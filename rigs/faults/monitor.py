"""Rows MO: what may happen to the monitor."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from e2e.load import Load, run_load
from e2e.stack import VISITS, Process
from failing import writing_monitor
from failing.writing_monitor import TABLES

from rigs.faults.inputs import body_of
from rigs.faults.links import Link
from rigs.faults.row import Figures, Row, Span, at_least, at_most
from rigs.faults.world import Machine, World, database_url

SCRIPT = Path(writing_monitor.__file__)
TAKEOVER_SECONDS = 10.0
PATIENCE_SECONDS = 40.0
STOPPED_SECONDS, STOPPED_QUICK_SECONDS = 30.0, 14.0
METRICS_SECONDS = 200.0
_PAUSE = """
    SELECT extract(epoch FROM min(written_at) FILTER (WHERE epoch > $1) - max(written_at) FILTER (WHERE epoch <= $1))
           ::float8 AS seconds
    FROM Step
"""
# A row of an epoch that was written after a later epoch's first one.
_STALE = """
    SELECT count(*) AS n FROM Step AS old
    WHERE EXISTS (SELECT FROM Step AS new WHERE new.epoch > old.epoch AND new.written_at < old.written_at)
"""
_DOUBLE = "SELECT count(*) AS n FROM (SELECT epoch FROM Step GROUP BY epoch HAVING count(DISTINCT pid) > 1) AS shared"


@dataclass
class Pair:
    """Two monitors, each with its own way to Postgres."""

    world: World
    processes: dict[str, Process]
    links: dict[str, Link]

    async def leader(self) -> tuple[str, int]:
        """Return who wrote last, and in which epoch."""
        rows = await self.world.sql("SELECT pid, epoch FROM Step ORDER BY written_at DESC LIMIT 1")
        name = next(name for name, process in self.processes.items() if process.pid == rows[0]["pid"])
        return name, rows[0]["epoch"]

    async def followed(self, epoch: int) -> None:
        """Wait for a step of a later epoch."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not (await self.world.sql("SELECT FROM Step WHERE epoch > $1 LIMIT 1", epoch)):
            if time.monotonic() > give_up:
                raise TimeoutError("no monitor follows the leader")
            await asyncio.sleep(0.1)

    async def figures(self, epoch: int) -> dict[str, float]:
        """Return what the steps tell."""
        (pause,) = await self.world.sql(_PAUSE, epoch)
        (stale,) = await self.world.sql(_STALE)
        (double,) = await self.world.sql(_DOUBLE)
        (refused,) = await self.world.sql("SELECT count(*) AS n FROM Refused")
        return {
            "takeover_s": pause["seconds"],
            "stale_leader_writes": stale["n"],
            "double_actions": double["n"],
            "refused": refused["n"],
        }


@asynccontextmanager
async def two_monitors(machine: Machine) -> AsyncIterator[Pair]:
    """Start two monitors that write rows in their epoch's name, and wait for a leader."""
    async with machine.world() as world:
        for statement in TABLES.split(";"):
            if statement.strip():
                await world.sql(statement)
        processes, links = {}, {}
        for name in ("first", "second"):
            links[name] = machine.links.to(world.postgres.upstream_port)
            url = database_url(machine.postgres.url, world.name, links[name].port)
            processes[name] = world.start_monitor(name, (str(SCRIPT),), DATABASE_URL=url)
        pair = Pair(world, processes, links)
        await pair.followed(0)
        yield pair


async def leader_killed(machine: Machine, _span: Span) -> Figures:
    async with two_monitors(machine) as pair:
        leader, epoch = await pair.leader()
        pair.processes[leader].signal(signal.SIGKILL)
        await pair.followed(epoch)
        return await pair.figures(epoch)


async def leader_cut_off(machine: Machine, _span: Span) -> Figures:
    async with two_monitors(machine) as pair:
        leader, epoch = await pair.leader()
        with pair.links[leader].blackholed():
            await pair.followed(epoch)
        await asyncio.sleep(3)
        return await pair.figures(epoch)


async def leader_stopped(machine: Machine, span: Span) -> Figures:
    async with two_monitors(machine) as pair:
        leader, epoch = await pair.leader()
        pair.processes[leader].signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_QUICK_SECONDS if span.during < 10 else STOPPED_SECONDS)
        pair.processes[leader].signal(signal.SIGCONT)
        await asyncio.sleep(3)
        return await pair.figures(epoch)


async def killed_while_measuring(machine: Machine, _span: Span) -> Figures:
    """Kill the monitor at five moments and count the minutes that its metrics lack, or have twice."""
    async with machine.world() as world:
        await world.serve("a")
        load = Load()
        running = asyncio.create_task(
            run_load(world.port, VISITS, body_of, per_second=50, seconds=METRICS_SECONDS, load=load)
        )
        try:
            monitor = world.start_monitor("monitor")
            for pause in (3.0, 7.0, 11.0, 5.0, 9.0):
                await asyncio.sleep(pause)
                monitor.child.kill()
                await asyncio.to_thread(monitor.child.wait, 5)
                monitor = world.start_monitor("monitor")
            await asyncio.sleep(METRICS_SECONDS - 35 - 20)
        finally:
            load.is_over = True
            await running
        return await _windows(world)


async def _windows(world: World) -> dict[str, float]:
    """Compare the minutes for which there is a metric with those that the log has in full, up to the last metric."""
    found = await world.sql(
        "SELECT metric_name, computed_at FROM PredictionMetric WHERE metric_name = "
        "(SELECT metric_name FROM PredictionMetric GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1) ORDER BY computed_at"
    )
    stamps = [row["computed_at"].timestamp() for row in found]
    gaps = [later - earlier for earlier, later in pairwise(stamps)]
    return {
        "metric_rows": len(stamps),
        "missing_windows": sum(round(gap / 60) - 1 for gap in gaps if gap > 90),
        "duplicate_windows": sum(gap < 30 for gap in gaps),
    }


_LED = at_most(takeover_s=TAKEOVER_SECONDS, stale_leader_writes=0, double_actions=0)
ROWS = (
    Row(
        "MO-01",
        "killed five times while it measures",
        "no minute missing, none twice",
        (*at_most(missing_windows=0, duplicate_windows=0), *at_least(metric_rows=2)),
        killed_while_measuring,
    ),
    Row("MO-02", "two monitors, the leader killed", "one leader at a time", _LED, leader_killed),
    Row("MO-03", "the leader cut off from Postgres", "the lease ends, its epoch is fenced", _LED, leader_cut_off),
    Row(
        "MO-04",
        "the leader stopped for 30 s, then continued (quick: 14 s)",
        "its writes are refused",
        (*_LED, *at_least(refused=1)),
        leader_stopped,
    ),
)
