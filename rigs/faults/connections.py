"""Rows PR: callers that hold more connections than a process may have files open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

from e2e.load import Connection
from e2e.stack import VISITS

from rigs.faults.callers import idle
from rigs.faults.inputs import body_of
from rigs.faults.measure import standard
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_most
from rigs.faults.world import Machine, World

IDLE = 1_200
DESCRIPTORS = 1_024
"""The usual soft limit of a process."""
PROBE_SECONDS = 0.1
_FIRST = 30_000_000
"""Inputs of the probes; no other caller has them."""


class Probes:
    """Callers with a connection of their own for one call, ten a second."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed = 0

    @asynccontextmanager
    async def beside(self, world: World) -> AsyncIterator[None]:
        """Ask from when as many idle connections are held as there will be, until they go."""
        holding = idle(world.port, IDLE)
        await asyncio.to_thread(holding.__enter__)
        try:
            probing = asyncio.create_task(self._ask(world.port))
            yield
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
        finally:
            await asyncio.to_thread(holding.__exit__, None, None, None)

    async def _ask(self, port: int) -> None:
        number = _FIRST
        while True:
            number += 1
            connection = Connection("127.0.0.1", port)
            answer = await connection.post(VISITS, body_of(number))
            connection.close()
            self.seconds.append(answer.seconds)
            self.failed += answer.status != HTTPStatus.OK
            await asyncio.sleep(max(0.0, PROBE_SECONDS - answer.seconds))


async def many_idle(ulimit: str, machine: Machine, span: Span) -> Figures:
    """Hold idle connections under a limit of descriptors, and ask on kept connections and on new ones."""
    async with machine.world() as world:
        await world.champion("a")
        await world.start_proxy(ulimit=ulimit)
        probes = Probes()
        figures = await standard(world, probes.beside(world), span)
        return {
            **figures,
            "probes": len(probes.seconds),
            "probes_failed": probes.failed,
            "probe_max_ms": max(probes.seconds, default=float("nan")) * 1000,
            "closed_idle": world.metric("idle_connections_closed_total{"),
            "refused": world.metric("connections_refused_total{"),
        }


_BOUNDS = (*NOTHING_LOST, *at_most(probes_failed=0, probe_max_ms=500, p99_ms=250))
ROWS = (
    Row(
        "PR-10",
        f"{IDLE:,} idle connections, soft limit of {DESCRIPTORS:,} descriptors",
        "the limit is raised; others are served",
        _BOUNDS,
        partial(many_idle, f"-Sn {DESCRIPTORS}"),
    ),
    Row(
        "PR-11",
        f"{IDLE:,} idle connections, hard limit of {DESCRIPTORS:,} descriptors",
        "the idle ones are closed, the oldest first; others are served",
        _BOUNDS,
        partial(many_idle, f"-n {DESCRIPTORS}"),
    ),
)
