"""Clients of Redis or Valkey that fail fast, and read no answer that is longer than it may be.

The vendor's own retries turn a refused connection into seconds, and its parser takes whatever comes into memory.
"""

from functools import lru_cache
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

CONNECT_SECONDS = 1.0
LOST = (RedisError, OSError, TimeoutError, RuntimeError)
"""What a read or write raises when the server is unavailable; uvloop raises ``RuntimeError`` when a connection is
written to that has just broken."""


class ValueTooLong(ResponseError):
    """A value is longer than its reader takes; the connection on which it comes is closed, unread."""


def redis_client(
    url: str, *, connections: int, turn_seconds: float, answer_seconds: float, max_value_bytes: int
) -> Redis:
    """Return a client that opens connections as they are needed and repeats nothing.

    Args:
        url: ``redis://`` or ``rediss://``.
        connections: Most that are open at once.
        turn_seconds: Longest wait for a free one.
        answer_seconds: Longest wait for an answer, those of the handshake included.
        max_value_bytes: Longest value in an answer. A longer one is refused by the length that it announces, with
            ``ValueTooLong``: read first, a value of 400 MB took 900 MB of memory.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=turn_seconds,
        socket_timeout=answer_seconds,
        socket_connect_timeout=CONNECT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    connection_class: Any = pool.connection_class  # as the URL says: plain, TLS or a socket's
    pool.connection_class = _bounded_connection(connection_class, max_value_bytes)
    return Redis(connection_pool=pool)


@lru_cache(maxsize=16)
def _bounded_connection(connection_class: Any, max_value_bytes: int) -> Any:
    """Return the class of connections (plain, TLS, …) with parsers, of whichever protocol, that bound values."""

    class BoundedConnection(connection_class):  # type: ignore[misc]  # see redis_client
        def set_parser(self, parser_class: Any) -> None:
            super().set_parser(_bounded_parser(parser_class, max_value_bytes))

    return BoundedConnection


@lru_cache(maxsize=16)
def _bounded_parser(parser_class: Any, max_value_bytes: int) -> Any:
    class BoundedParser(parser_class):  # type: ignore[misc]  # RESP2 or RESP3: the handshake may replace it
        def _read(self, length: int) -> Any:
            """Read a value of so many bytes, as the vendor does; each value would pay for a coroutine of its own."""
            if length > max_value_bytes:
                raise ValueTooLong(f"a value of {length} bytes, where at most {max_value_bytes} are read")
            return super()._read(length)

    return BoundedParser
