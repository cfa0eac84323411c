"""How a connection is made: judged addresses in a race, TLS with ALPN, and the server's settings."""

import asyncio
import ssl
from collections.abc import Sequence

from understudy.adapters.model_servers.addresses import Tls
from understudy.adapters.model_servers.http2.connection import Http2Connection, Owner
from understudy.adapters.model_servers.tls_context import client_context
from understudy.core.upstream.endpoint_rules import Address, Target

ALPN = "h2"
STAGGER_SECONDS = 0.25
"""Between the first attempts at two addresses (RFC 8305): one that is silent holds the next up so long."""
MAX_CONNECT_SECONDS = 20.0
"""Of an attempt at all addresses, until one has greeted."""
ADDRESS_SECONDS = 5.0
"""Until an address has taken the connection, and TLS stands. Behind it the kernel's own attempts come ever more rarely:
one that is back after ten seconds would be found after another five."""
MAX_LOST_AGAIN = 3
"""How often a connection that ended before it was of use is made again at once. A server drains connections by their
age: a busy process may read its GOAWAY together with its greeting, and the calls that wait have not been sent."""


class EndedEarly(ConnectionError):
    """The server has greeted, and takes no calls on the connection any more."""


class Dialler:
    """Makes the connections to one replica."""

    def __init__(self, target: Target, addresses: Sequence[Address], tls: Tls | None) -> None:
        self._target = target
        self._addresses = list(map(str, addresses))
        self._context = None if tls is None else client_context(tls, ALPN)

    @property
    def is_secure(self) -> bool:
        """Whether connections are over TLS."""
        return self._context is not None

    async def dial(self, owner: Owner) -> Http2Connection:
        """Open a connection to the first address that takes one and speaks HTTP/2; it goes first next time.

        The next address is tried as soon as one has failed, or is slow: both may go on until one is there.

        Raises:
            OSError: None does; it is the last one's.
        """
        attempts: dict[asyncio.Task[Http2Connection], str] = {}
        try:
            async with asyncio.timeout(MAX_CONNECT_SECONDS):
                connection, address = await self._race(owner, attempts)
        finally:
            for attempt in attempts:
                attempt.cancel()
                attempt.add_done_callback(_end_unused)
        self._addresses.sort(key=lambda one: one != address)
        return connection

    async def _race(
        self, owner: Owner, attempts: dict[asyncio.Task[Http2Connection], str]
    ) -> tuple[Http2Connection, str]:
        """Return the first connection and its address; in ``attempts`` is left what goes on, or has lost."""
        problem: OSError = ConnectionError("no address")
        untried, made_again = self._addresses[::-1], 0
        while untried or attempts:
            if untried:
                address = untried.pop()
                attempts[asyncio.create_task(self._dial(address, owner))] = address
            seconds = STAGGER_SECONDS if untried else None
            ended, _ = await asyncio.wait(attempts, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for attempt in ended:
                address = attempts.pop(attempt)
                try:
                    return _usable(attempt), address
                except OSError as error:
                    problem = error
                if isinstance(problem, EndedEarly) and made_again < MAX_LOST_AGAIN:
                    made_again += 1
                    untried.append(address)
        raise problem

    async def _dial(self, address: str, owner: Owner) -> Http2Connection:
        # The certificate must be for what the endpoint says, not for the address that it has today.
        name = self._target.host if self._context is not None else None
        async with asyncio.timeout(ADDRESS_SECONDS):
            transport, connection = await asyncio.get_running_loop().create_connection(
                lambda: Http2Connection(owner), address, self._target.port, ssl=self._context, server_hostname=name
            )
        try:
            await self._greet(transport, connection)
        except BaseException:
            connection.end("the connection was not used")
            raise
        return connection

    async def _greet(self, transport: asyncio.BaseTransport, connection: Http2Connection) -> None:
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() != ALPN:
            raise ssl.SSLError("the server does not agree on HTTP/2 (ALPN)")
        await connection.hello


def why_not_connected(error: OSError) -> str:
    """Return the details of calls that find no connection."""
    if isinstance(error, ConnectionRefusedError):
        why = "connection refused"
    elif isinstance(error, TimeoutError):
        why = "no connection in time"
    else:
        why = str(error)
    return f"failed to connect to all addresses; last error: {why}"


def _usable(attempt: asyncio.Task[Http2Connection]) -> Http2Connection:
    """Return the connection that an attempt has made; raises ``OSError``."""
    connection = attempt.result()
    if connection.why_retired is not None:  # meanwhile: the server's settings may come together with its GOAWAY
        raise EndedEarly(connection.why_retired)
    return connection


def _end_unused(attempt: asyncio.Task[Http2Connection]) -> None:
    """End the connection of an attempt that another one has overtaken."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().end("the connection was not used")
