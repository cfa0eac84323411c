"""The load under which things break, and the figures that most rows need."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from e2e.load import Answer, Caller, Connection, Load, run_load
from e2e.stack import VISITS

from rigs.faults.grpc_caller import GrpcConnection
from rigs.faults.inputs import body_of, wrong_answers
from rigs.faults.rest_callers import REST_DIALECTS, RestConnection
from rigs.faults.row import Span
from rigs.faults.world import World

SLOW_SECONDS = 2.0
"""What a caller waits; an answer after that is a failed request."""
PER_SECOND = 150.0
CONNECTIONS = 128
MAX_SECONDS = 900.0
"""Of a load; it ends when its fault and what follows are over."""
STALL_CHECK_SECONDS = 0.02
_SETTLE_SECONDS = 1.0

Port = int | Callable[[], int]
Breaking = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]


class Measured(NamedTuple):
    """A load and the moments of the fault in it, on the monotonic clock."""

    load: Load
    broken_at: float
    mended_at: float
    wrong: list[Answer]
    after_mending: float
    """What the work after the mending returned."""
    stalls: "Stalls"

    @property
    def failed(self) -> list[Answer]:
        """Answers that were none: not 200, later than a caller waits, or not true."""
        late = [answer for answer in self.load.answers if answer.status != 200 or answer.seconds > SLOW_SECONDS]
        return late + [answer for answer in self.wrong if answer.seconds <= SLOW_SECONDS]

    @property
    def before(self) -> list[Answer]:
        """Of requests that were sent before the fault."""
        return [answer for answer in self.load.answers if answer.sent + answer.seconds < self.broken_at]

    def during(self, skip_seconds: float = 0.0) -> list[Answer]:
        """Of requests that were sent in the fault, at least so long after its beginning."""
        first = self.broken_at + skip_seconds
        return [answer for answer in self.load.answers if first <= answer.sent < self.mended_at]

    @property
    def recover_s(self) -> float:
        """How long after the mending the last request was sent that failed."""
        return max((a.sent - self.mended_at for a in self.failed if a.sent > self.mended_at), default=0.0)

    @property
    def failed_statuses(self) -> list[int]:
        """Which statuses failed requests got; 0 is a broken connection, 200 a late or wrong answer."""
        return sorted({answer.status for answer in self.failed})

    def figures(self) -> dict[str, float]:
        """Return what every loaded row reports."""
        p99_before, p99_during = p99_ms(self.before), p99_ms(self.during())
        return {
            "requests": len(self.load.answers),
            "machine_stall_ms": self.stalls.longest_seconds * 1000,
            "failed": len(self.failed),
            **{f"failed_{code}": sum(a.status == code for a in self.failed) for code in self.failed_statuses},
            "p99_ms": p99_during,
            "p99_ms_delta": max(0.0, p99_during - p99_before) if self.before else 0.0,
        }


class Stalls:
    """How late the runner's own timers are: what the machine, and no fault, adds to every time that is measured."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            due = time.monotonic() + STALL_CHECK_SECONDS
            await asyncio.sleep(STALL_CHECK_SECONDS)
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - due)


def p99_ms(answers: list[Answer]) -> float:
    """Return the 99th percentile of the answers' times; 0 when there are none."""
    ordered = sorted(answer.seconds for answer in answers)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000 if ordered else 0.0


def max_ms(answers: list[Answer]) -> float:
    """Return the longest of the answers' times."""
    return max((answer.seconds for answer in answers), default=0.0) * 1000


def caller_of(world: World, port: Port | None = None) -> tuple[Port, Callable[[str, Port], Caller]]:
    """Return where calls go in the dialect that the machine has, and what makes their callers.

    A ``port`` of its own is one of HTTP: over gRPC such calls are native ones.
    """
    dialect = world.machine.dialect
    if dialect in REST_DIALECTS:
        return port or world.port, partial(RestConnection, REST_DIALECTS[dialect])
    if dialect == "grpc" and port is None:
        return world.grpc_port, GrpcConnection
    return port or world.port, Connection


async def measured(
    world: World,
    breaking: Breaking,
    span: Span,
    *,
    per_second: float = PER_SECOND,
    connections: int = CONNECTIONS,
    body: Callable[[int], bytes] = body_of,
    inputs: Callable[[int], dict[str, Any]] | None = None,
    path: str = VISITS,
    port: Callable[[], int] | None = None,
    on_mended: Callable[[], Awaitable[float]] | None = None,
) -> Measured:
    """Run the load with a fault in its middle: entering ``breaking`` makes it, leaving mends it.

    ``span.during`` is added to what entering and leaving take. ``on_mended`` works beside the load that follows the
    fault. The second before the first request that counts warms connections up. ``port`` says where new connections go,
    by default to where the proxy listened at first. Plain calls are asked in the dialect that the machine has.
    """
    listening, connect = caller_of(world, port) if path == VISITS else (port or world.port, Connection)
    settling = partial(run_load, listening, path, connect=connect)
    await settling(lambda n: body(10_000_000 + n), per_second=60, seconds=_SETTLE_SECONDS)
    load = Load()
    running = asyncio.create_task(
        run_load(
            listening,
            path,
            body,
            per_second=per_second,
            seconds=MAX_SECONDS,
            connections=connections,
            load=load,
            connect=connect,
        )
    )
    found = 0.0
    stalls = Stalls()
    watching = asyncio.create_task(stalls.watch())
    try:
        await asyncio.sleep(span.before)
        broken_at = time.monotonic()
        async with _either(breaking):
            await asyncio.sleep(span.during)
        mended_at = time.monotonic()
        if on_mended is not None:
            found = await on_mended()
        await asyncio.sleep(mended_at + span.after - time.monotonic())
    finally:
        load.is_over = True
        watching.cancel()
        await asyncio.gather(running, watching, return_exceptions=True)
    wrong = await asyncio.to_thread(wrong_answers, load.answers, inputs)
    return Measured(load, broken_at, mended_at, wrong, found, stalls)


@asynccontextmanager
async def _either(breaking: Breaking) -> AsyncIterator[None]:
    """Enter a context manager of either kind; one that is not asynchronous works in a thread, as it may block."""
    if isinstance(breaking, AbstractAsyncContextManager):
        async with breaking:
            yield
        return
    await asyncio.to_thread(breaking.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(breaking.__exit__, None, None, None)


NOTHING: Breaking = nullcontext()


async def standard(world: World, breaking: Breaking, span: Span, **how: Any) -> dict[str, float]:
    """Return the figures of a standard load with this fault, and what became of its rows."""
    seen = await measured(world, breaking, span, **how)
    return {**seen.figures(), **await world.lost_and_doubled(seen.load)}
