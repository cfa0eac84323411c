"""The connections to one replica over HTTP: kept between calls, bounded in number, opened to judged addresses only."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from understudy.adapters.model_servers.addresses import Tls
from understudy.adapters.model_servers.http.connection import HttpConnection
from understudy.adapters.model_servers.http_failures import crowded, not_connected
from understudy.adapters.model_servers.status import why_no_handshake
from understudy.adapters.model_servers.tls_context import client_context
from understudy.core.upstream.endpoint_rules import Address, Target

MAX_CONNECTIONS = 128
"""To one replica, of one process. Calls beyond wait for one; rows of a version with batches share a few calls."""
MAX_WAITING = 4_096
"""Calls that wait for one of them."""
MAX_IDLE_SECONDS = 60.0
"""How long a connection is kept that no call uses: some load balancers forget one after minutes, and tell neither side,
so that a call on it would wait for ever."""
CONNECT_SECONDS = 1.0
"""Longest wait for one of several addresses: one that drops packets must leave time for the next one."""


class ConnectionPool:
    """Connections to one replica: a call takes one that was kept, or a place in which it opens one."""

    def __init__(
        self, target: Target, addresses: Sequence[Address], tls: Tls | None, now: Callable[[], float] = monotonic
    ) -> None:
        self._target = target
        self._now = now
        self._addresses = list(map(str, addresses))
        self._context = None if tls is None else client_context(tls)
        self._idle: list[tuple[HttpConnection, float]] = []
        """With the time until which each is kept."""
        self._taken = 0
        """Places taken: connections that are open, and those that are being opened."""
        self._waiting: deque[asyncio.Future[HttpConnection | None]] = deque(maxlen=MAX_WAITING)
        self._is_closed = False
        self.was_reached = False
        """Whether the last attempt to connect succeeded."""

    def kept(self) -> HttpConnection | None:
        """Return a connection that is open and idle, the one that was used last, or ``None``."""
        while self._idle:
            connection, until = self._idle.pop()
            if connection.is_usable and self._now() < until:
                return connection
            connection.abort()
            self.release(connection)
        return None

    def place(self, *, beyond: bool = False) -> "asyncio.Future[HttpConnection | None]":
        """Return a place for a connection (``None``), or a connection that another call has done with; maybe later.

        A place ``beyond`` the others is for a probe, of which there are few: one that waited behind calls that hang
        would say that a replica does not serve.

        Raises:
            HttpCallFailed: Too many calls wait for one.
        """
        waiting: asyncio.Future[HttpConnection | None] = asyncio.get_running_loop().create_future()
        idle = self.kept() if self._taken >= MAX_CONNECTIONS else None
        if idle is not None:
            waiting.set_result(idle)
        elif beyond or self._taken < MAX_CONNECTIONS:
            self._taken += 1
            waiting.set_result(None)
        else:
            self._wait(waiting)
        return waiting

    def _wait(self, waiting: "asyncio.Future[HttpConnection | None]") -> None:
        if len(self._waiting) == MAX_WAITING:
            self._waiting = deque((one for one in self._waiting if not one.done()), maxlen=MAX_WAITING)
        if len(self._waiting) == MAX_WAITING:
            raise crowded()
        self._waiting.append(waiting)

    def release(self, connection: HttpConnection | None) -> None:
        """Give back a connection, to be kept if it may be used again, or a place in which none was opened."""
        usable = connection if connection is not None and connection.is_usable and not self._is_closed else None
        if usable is None and connection is not None:
            connection.abort()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(usable)
                return
        if usable is not None:
            self._idle.append((usable, self._now() + MAX_IDLE_SECONDS))
        else:
            self._taken -= 1

    async def dial(self) -> HttpConnection:
        """Open a connection to the first address that takes one; it goes first next time.

        Raises:
            HttpCallFailed: None does.
        """
        problem = "no address"
        # Others dial meanwhile, and what they find out changes the order: each address is tried once all the same.
        for address in tuple(self._addresses):
            try:
                connection = await self._dial(address)
            except OSError as error:  # a time-out is one
                problem = _why(error)
            else:
                self._addresses.sort(key=lambda one: one != address)
                self.was_reached = True
                return connection
        self.was_reached = False
        raise not_connected(problem)

    def close(self) -> None:
        """Close the idle connections; those in use are closed as they are released."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            self.release(connection)

    async def _dial(self, address: str) -> HttpConnection:
        seconds = CONNECT_SECONDS if len(self._addresses) > 1 else None
        # The certificate must be for what the endpoint says, not for the address that it has today.
        name = self._target.host if self._context is not None else None
        async with asyncio.timeout(seconds):
            _, connection = await asyncio.get_running_loop().create_connection(
                HttpConnection, address, self._target.port, ssl=self._context, server_hostname=name
            )
        return connection


def _why(error: OSError) -> str:
    """Return why a connection was not made, without anything that the server said."""
    if isinstance(error, ssl.SSLError):
        return why_no_handshake(str(error)) or "the TLS handshake failed"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return f"none within {CONNECT_SECONDS:g} s"
    return "it cannot be connected to"
