"""A connection that hears notifications, and notices when its other end is dead but silent."""

import asyncio
from collections.abc import Callable

import asyncpg

from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.errors import RegistryUnavailable


async def listen_on(
    database_url: str,
    channel: str,
    on_payload: Callable[[str], None],
    on_subscribed: Callable[[], None],
    *,
    timeout_seconds: float,
    heartbeat_seconds: float,
) -> None:
    """Call ``on_payload`` for each notification until cancelled, and ``on_subscribed`` once the subscription stands.

    Raises:
        RegistryUnavailable: The connection cannot be opened, was closed, or missed a heartbeat.
    """
    connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name="understudy-listener")
    lost = asyncio.Event()
    try:
        connection.add_termination_listener(lambda _: lost.set())
        async with translated("LISTEN was refused", timeout_seconds):
            await connection.add_listener(channel, lambda *notified: on_payload(notified[3]))
        on_subscribed()
        while True:
            await _heartbeat(connection, lost, heartbeat_seconds)
    finally:
        # terminate, not close: close waits for a reply that a dead peer never sends (it hung for 8 seconds)
        connection.terminate()


async def _heartbeat(connection: asyncpg.Connection, lost: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await lost.wait()
    except TimeoutError:
        async with translated("the listening connection missed a heartbeat", seconds):
            await connection.execute("SELECT 1")
    else:
        raise RegistryUnavailable("the listening connection was closed by the other end")
