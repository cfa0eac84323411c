"""Callers who misbehave: they hang up early, or never finish what they began to send."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from e2e.stack import VISITS

from rigs.faults.inputs import body_for

_FIRST = 20_000_000
"""Inputs of callers that hang up; no other caller sends them."""
REOPEN_SECONDS = 0.5
_HALF = b"POST /v1/models/visits/predict HTTP/1.1\r\nhost: localhost\r\nx-slow: "


async def hang_up_on(
    port: int, per_second: float, seconds: float, shortest: float = 0.0005, longest: float = 0.03
) -> int:
    """Send calls whose caller closes the connection before the answer, and return how many."""
    draw = random.Random(9)
    began = time.monotonic()
    count = int(per_second * seconds)
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(began + number / per_second - time.monotonic())
            group.create_task(_hang_up(port, _FIRST + number, draw.uniform(shortest, longest)))
    return count


async def _hang_up(port: int, distinct: int, after_seconds: float) -> None:
    body = body_for(distinct)
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {VISITS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await asyncio.sleep(after_seconds)
        writer.close()


@contextmanager
def half_open(port: int, count: int) -> Iterator[None]:
    """Hold connections whose request never gets to its end."""
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            connections.append(connection)
            with suppress(OSError):  # a proxy that holds as many as it may has closed it
                connection.sendall(_HALF)
        yield
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def idle(port: int, count: int) -> Iterator[None]:
    """Hold connections on which nothing is sent; one that the proxy closes is opened again."""
    connections = [_open(port) for _ in range(count)]
    is_over = threading.Event()

    def hold() -> None:
        while not is_over.wait(REOPEN_SECONDS):
            for place, connection in enumerate(connections):
                if _is_closed(connection):
                    connection.close()
                    connections[place] = _open(port)

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        yield
    finally:
        is_over.set()
        holding.join()
        for connection in connections:
            connection.close()


def _open(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.setblocking(False)
    return connection


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection on which it has nothing to say."""
    try:
        connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
