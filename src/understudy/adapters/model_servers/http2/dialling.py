"""How a connection is made: judged addresses one after the other, TLS with ALPN, and the server's settings."""

import asyncio
import ssl
from collections.abc import Sequence

from understudy.adapters.model_servers.addresses import Tls
from understudy.adapters.model_servers.http2.connection import Http2Connection, Owner
from understudy.adapters.model_servers.tls_context import client_context
from understudy.core.upstream.endpoint_rules import Address, Target

ALPN = "h2"
CONNECT_SECONDS = 1.0
"""Longest wait for one of several addresses: one that drops packets must leave time for the next one."""
MAX_CONNECT_SECONDS = 20.0


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

        Raises:
            OSError: None does; it is the last one's.
        """
        problem: OSError = ConnectionError("no address")
        seconds = CONNECT_SECONDS if len(self._addresses) > 1 else MAX_CONNECT_SECONDS
        for address in tuple(self._addresses):
            try:
                async with asyncio.timeout(seconds):
                    connection = await self._dial(address, owner)
            except OSError as error:  # a time-out is one
                problem = error
            else:
                self._addresses.sort(key=lambda one: one != address)
                return connection
        raise problem

    async def _dial(self, address: str, owner: Owner) -> Http2Connection:
        # The certificate must be for what the endpoint says, not for the address that it has today.
        name = self._target.host if self._context is not None else None
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
        if connection.is_retired:
            raise ConnectionError("the server takes no calls on the connection")


def why_not_connected(error: OSError) -> str:
    """Return the details of calls that find no connection."""
    if isinstance(error, ConnectionRefusedError):
        why = "connection refused"
    elif isinstance(error, TimeoutError):
        why = "no connection in time"
    else:
        why = str(error)
    return f"failed to connect to all addresses; last error: {why}"
