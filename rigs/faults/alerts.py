"""Rows AL: what a receiver of alerts may do."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from threading import Lock, Thread
from typing import Any, NamedTuple

import asyncpg

from rigs.faults.drift_hours import hourly_monitor
from rigs.faults.links import Link
from rigs.faults.row import Figures, Row, Span, at_least, at_most
from rigs.faults.world import Machine, World
from understudy.adapters.postgres.monitoring.outbox import add_alert
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind

RETRY_AFTER_SECONDS = 3
PATIENCE_SECONDS = 60.0
QUIET_SECONDS = 12.0
DOWN_SECONDS = 60.0
QUIET_HOURS, FLAPS, WELL_HOURS = 4, 6, 12
"""Hours within the limit, then flaps of two hours each, then hours enough for the drift to be over: it is after 8."""
OVER = 1.0
"""Deviations that the scores are off in an hour over the limit, which is 0.1."""
_PENDING = "SELECT count(*) AS n FROM AlertOutbox WHERE delivered_at IS NULL AND next_attempt_at < 'infinity'"

_GIVEN_UP = "SELECT count(*) AS n FROM AlertOutbox WHERE next_attempt_at = 'infinity' AND delivered_at IS NULL"


class Attempt(NamedTuple):
    """One event as it came."""

    at: float
    status: int
    event: dict[str, Any]

    @property
    def alert(self) -> dict[str, Any]:
        """The alert in the event."""
        found: dict[str, Any] = self.event["alert"]
        return found


@dataclass
class Receiver:
    """A receiver whose answers are chosen: ``answers`` gets the number of attempts so far."""

    answers: Callable[[int], tuple[int, dict[str, str]]] = lambda _: (204, {})
    attempts: list[Attempt] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def handle(self, body: bytes) -> tuple[int, dict[str, str]]:
        with self.lock:
            status, headers = self.answers(len(self.attempts))
            self.attempts.append(Attempt(time.monotonic(), status, json.loads(body)))
        return status, headers

    def taken(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.status < 300]


@asynccontextmanager
async def told(machine: Machine, receiver: Receiver) -> AsyncIterator[tuple[World, Link]]:
    """Lend a world with a monitor that tells this receiver."""
    async with listening(machine, receiver) as (world, link):
        world.start_monitor("monitor", UNDERSTUDY_ALERT_WEBHOOK_URL=f"http://127.0.0.1:{link.port}/hook")
        yield world, link


@asynccontextmanager
async def listening(machine: Machine, receiver: Receiver) -> AsyncIterator[tuple[World, Link]]:
    """Lend a world, and a link to this receiver."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, headers = receiver.handle(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(status)
            for name, value in {**headers, "content-length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        link = machine.links.to(server.server_port)
        try:
            async with machine.world() as world:
                yield world, link
        finally:
            server.shutdown()


async def _tell(world: World, count: int, action: AlertAction = AlertAction.TRIGGER) -> None:
    connection = await asyncpg.connect(world.url)
    for _ in range(count):
        await add_alert(
            connection, AlertEvent(action, AlertKind.DRIFT, "faults", "visits", "the scores moved", time.time())
        )
    await connection.close()


async def _nothing_waits(world: World) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while (await world.sql(_PENDING))[0]["n"]:
        if time.monotonic() > give_up:
            return
        await asyncio.sleep(0.2)


def _keys(attempts: list[Attempt]) -> int:
    return len({attempt.alert["dedup_key"] for attempt in attempts})


async def _first_attempt(receiver: Receiver) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not receiver.attempts and time.monotonic() < give_up:
        await asyncio.sleep(0.1)


async def down(machine: Machine, span: Span) -> Figures:
    receiver = Receiver()
    sent = 3
    async with told(machine, receiver) as (world, link):
        with link.refusing():
            await _tell(world, sent)
            await asyncio.sleep(max(span.during, min(DOWN_SECONDS, 2 * span.during)))
        mended = time.monotonic()
        await _nothing_waits(world)
        (row,) = await world.sql("SELECT count(*) AS n FROM AlertOutbox WHERE delivered_at IS NOT NULL")
        return {
            "alerts_lost": sent - row["n"],
            "incidents_opened": _keys(receiver.taken()),
            "delivered_after_clear_s": time.monotonic() - mended,
        }


async def throttled(machine: Machine, _span: Span) -> Figures:
    def answers(attempt: int) -> tuple[int, dict[str, str]]:
        if attempt == 0:
            return 429, {"retry-after": str(RETRY_AFTER_SECONDS)}
        return (500, {}) if attempt <= 3 else (204, {})

    receiver = Receiver(answers)
    async with told(machine, receiver) as (world, _link):
        await _tell(world, 1)
        await _first_attempt(receiver)
        await _nothing_waits(world)
        times = [attempt.at for attempt in receiver.attempts]
        return {
            "alerts_lost": 1 - len(receiver.taken()),
            "attempts_per_min": max(sum(start <= at < start + 60 for at in times) for start in times),
            "waited_after_429_s": times[1] - times[0] if len(times) > 1 else 0.0,
        }


async def refuses(machine: Machine, _span: Span) -> Figures:
    receiver = Receiver(lambda _: (400, {}))
    async with told(machine, receiver) as (world, _link):
        await _tell(world, 1)
        await _first_attempt(receiver)
        await asyncio.sleep(QUIET_SECONDS)
        (row,) = await world.sql(
            "SELECT count(*) AS n FROM AlertOutbox WHERE next_attempt_at = 'infinity' AND delivered_at IS NULL"
        )
        return {"retries": len(receiver.attempts) - 1, "given_up": row["n"]}


async def flaps(machine: Machine, _span: Span) -> Figures:
    """Let the scores lie over the limit in every second hour, then be well again for longer than a drift lasts."""
    receiver = Receiver()
    async with listening(machine, receiver) as (world, link):
        async with hourly_monitor(world, f"http://127.0.0.1:{link.port}/hook") as monitor:
            for shift in (*[0.0] * QUIET_HOURS, *[OVER, 0.0] * FLAPS, *[0.0] * WELL_HOURS):
                await monitor.hour(shift)
            await _nothing_waits(world)
        actions = [attempt.alert["action"] for attempt in receiver.taken()]
    opened = sum(now == "trigger" != before for before, now in pairwise(["", *actions]))
    return {"incidents_opened": opened, "resolved": actions.count("resolve"), "hours": FLAPS * 2}


ROWS = (
    Row(
        "AL-01",
        "the receiver refuses connections",
        "kept, sent again with the same key",
        at_most(alerts_lost=0, incidents_opened=1, delivered_after_clear_s=30),
        down,
    ),
    Row(
        "AL-02",
        "429 with Retry-After, then 500 three times",
        "kept to; not hammered",
        (*at_most(alerts_lost=0, attempts_per_min=10), *at_least(waited_after_429_s=RETRY_AFTER_SECONDS)),
        throttled,
    ),
    Row("AL-03", "400: the event is bad", "given up, no loop", (*at_most(retries=0), *at_least(given_up=1)), refuses),
    Row(
        "AL-04",
        "scores that lie over the limit in every second hour, hours passing as fast as they are judged",
        "one incident, resolved once",
        (*at_most(incidents_opened=1, resolved=1), *at_least(incidents_opened=1, resolved=1)),
        flaps,
    ),
)
