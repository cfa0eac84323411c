"""Notifications under real monitors: killed while they send, and the next one goes on. Nothing lost, nothing twice."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import orjson
import pytest
from e2e.stack import Process
from loopback.receiver import HANG, KILL, ReceiverServer

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.monitoring.outbox import add_alert
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind

pytestmark = pytest.mark.timeout(300)
COMMAND = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
MODELS = 6
TOKEN = "T0K3N-of-the-channel"
WAITING = """
    SELECT (SELECT count(*) FROM Notification JOIN Subscription s ON s.id = subscription_id
            WHERE s.name = 'ops' AND delivered_at IS NULL)
         + (SELECT count(*) FROM AlertOutbox WHERE delivered_at IS NULL)
"""


class Receivers(NamedTuple):
    """One that takes events, one that hangs, and one that is paged."""

    hook: ReceiverServer
    dead: ReceiverServer
    pager: ReceiverServer


def start_monitor(name: str, database_url: str, folder: Path, receivers: Receivers) -> Process:
    hook, dead, pager = receivers
    environment = {
        "DATABASE_URL": database_url,
        "UNDERSTUDY_MONITOR_TICK_SECONDS": "0.5",
        "UNDERSTUDY_MONITOR_METRICS_PORT": str(free_port()),
        "UNDERSTUDY_RECEIVERS": f"hook={hook.url}/services/{TOKEN} dead={dead.url}",
        "UNDERSTUDY_ALERT_WEBHOOK_URL": pager.url,
    }
    return Process(name, COMMAND, folder, environment)


@pytest.fixture
async def receivers() -> AsyncIterator[Receivers]:
    async with ReceiverServer() as hook, ReceiverServer() as dead, ReceiverServer() as pager:
        dead.script = [HANG] * 1_000
        yield Receivers(hook, dead, pager)


async def tell(database: asyncpg.Connection, number: int) -> None:
    for model in range(MODELS):
        summary = f"model {model} moves {number}"
        event = AlertEvent(AlertAction.CHANGE, AlertKind.ROLLOUT_MOVED, "dev", f"m{model}", summary, time.time())
        await add_alert(database, event)


async def test_monitors_that_are_killed_while_they_send_lose_nothing_and_tell_nothing_twice_by_id(
    database, database_url, tmp_path, receivers
):
    hook, dead, pager = receivers
    await database.execute("INSERT INTO Subscription (name, receiver, kinds) VALUES ('ops', 'hook', '{rollout.moved}')")
    await tell(database, 0)
    hook.script = [(500, "", b""), (429, "retry-after: 2\r\n", b""), (302, "location: /x\r\n", b""), None, KILL]
    first = start_monitor("first", database_url, tmp_path, receivers)
    hook.victim = first.pid
    second = None
    try:
        await asyncio.to_thread(first.child.wait, 60)
        await database.execute(
            "INSERT INTO Subscription (name, receiver, kinds) VALUES ('off', 'dead', '{rollout.moved}')"
        )
        await tell(database, 1)
        second = start_monitor("second", database_url, tmp_path, receivers)
        deadline = time.monotonic() + 150
        while await database.fetchval(WAITING):
            assert time.monotonic() < deadline, second.log.read_text()[-2_000:]
            await asyncio.sleep(0.2)
    finally:
        for process in filter(None, (first, second)):
            process.stop()

    told = [orjson.loads(body) for _, body in hook.requests]
    summaries = {event["id"]: event["data"]["summary"] for event in told}
    assert sorted(summaries.values()) == sorted(f"model {m} moves {n}" for m in range(MODELS) for n in range(2))
    assert 2 * MODELS < len(hook.taken) <= 2 * MODELS + MODELS
    assert set(hook.taken) == set(summaries)
    assert dead.taken == []
    assert len(pager.requests) >= 2 * MODELS
    assert second is not None
    assert TOKEN not in first.log.read_text() + second.log.read_text()
