"""Clients of Redis or Valkey that fail fast: the vendor's own retries turn a refused connection into seconds."""

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

CONNECT_SECONDS = 1.0
LOST = (RedisError, OSError, TimeoutError, RuntimeError)
"""What a read or write raises when the server is unavailable; uvloop raises ``RuntimeError`` when a connection is
written to that has just broken."""


def redis_client(url: str, *, connections: int, turn_seconds: float, answer_seconds: float) -> Redis:
    """Return a client that opens connections as they are needed and repeats nothing.

    Args:
        url: ``redis://`` or ``rediss://``.
        connections: Most that are open at once.
        turn_seconds: Longest wait for a free one.
        answer_seconds: Longest wait for an answer, those of the handshake included.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=turn_seconds,
        socket_timeout=answer_seconds,
        socket_connect_timeout=CONNECT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis(connection_pool=pool)
