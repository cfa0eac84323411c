"""A port that takes webhooks of registries: each one whose sender knows the secret has the labels looked at, at once.

It answers one request a connection, and believes nothing that it reads: the look asks the registry itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from understudy.core.rollout.sources.source_webhook import WebhookSecret, is_proven

REQUEST_SECONDS = 5.0
MAX_BODY = 65_536
MAX_OPEN = 32
_MAX_HEAD = 16_384


@asynccontextmanager
async def webhook_port(
    host: str,
    port: int,
    secrets: Sequence[WebhookSecret],
    wake: Callable[[], None],
    *,
    request_seconds: float = REQUEST_SECONDS,
) -> AsyncIterator[int]:
    """Take webhooks while the context lasts; yields the bound port (``port`` may be 0 for a free one).

    Raises:
        OSError: The port cannot be bound.
    """
    open_connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if open_connections <= MAX_OPEN:
                    async with asyncio.timeout(request_seconds):
                        status = await _judged(reader, secrets)
                if status is HTTPStatus.NO_CONTENT:
                    wake()
                writer.write(f"HTTP/1.1 {status.value} {status.phrase}\r\n{_END}".encode())
                async with asyncio.timeout(request_seconds):
                    await writer.drain()
        finally:
            open_connections -= 1
            writer.close()

    server = await asyncio.start_server(answer, host, port, limit=_MAX_HEAD)
    async with server:
        yield server.sockets[0].getsockname()[1]


_END = "content-length: 0\r\nconnection: close\r\n\r\n"


async def _judged(reader: asyncio.StreamReader, secrets: Sequence[WebhookSecret]) -> HTTPStatus:
    """Read a request; return what it is answered."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if not head[0].startswith("POST "):
        return HTTPStatus.METHOD_NOT_ALLOWED
    headers: dict[str, str] = {}
    for line in filter(None, head[1:]):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit() or len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if length else HTTPStatus.LENGTH_REQUIRED
    body = await reader.readexactly(int(length))
    is_good = any(is_proven(secret, headers, body, time.time()) for secret in secrets)
    return HTTPStatus.NO_CONTENT if is_good else HTTPStatus.UNAUTHORIZED
