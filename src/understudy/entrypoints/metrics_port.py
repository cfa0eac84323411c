"""``/metrics`` on its own port, with ``/livez`` for processes that have no other port.

All workers of a proxy bind the port (SO_REUSEPORT), the kernel picks one for each scrape, and each exposes the metrics
of all of them, so that scrapes survive any one worker. A process that exposes only its own metrics binds it alone.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

REQUEST_SECONDS = 5.0
"""For a request to come, and as long again for its answer to go. Making a page of 10,000 models takes two seconds, and
longer on a machine that is busy: the scraper has a time-out of its own."""
MAX_OPEN = 32
"""Connections at a time. A further one takes the place of the oldest that has sent no request yet, or is closed."""
_MAX_LINE = 8_192


@asynccontextmanager
async def metrics_port(
    host: str,
    port: int,
    exposition: Callable[[], tuple[bytes, str]],
    *,
    is_shared: bool = True,
    request_seconds: float = REQUEST_SECONDS,
) -> AsyncIterator[int]:
    """Serve the metrics while the context lasts; yields the bound port (``port`` may be 0 for a free one).

    Raises:
        OSError: The port cannot be bound; without ``is_shared`` also because another process has it.
    """
    waiting: dict[asyncio.StreamWriter, None] = {}
    open_connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        waiting[writer] = None
        if open_connections > MAX_OPEN:
            oldest = next(iter(waiting))
            del waiting[oldest]
            oldest.transport.abort()
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(request_seconds):
                    request = await reader.readuntil(b"\r\n\r\n")
                waiting.pop(writer, None)
                writer.write(await _page(request, exposition))
                async with asyncio.timeout(request_seconds):
                    await writer.drain()
        finally:
            open_connections -= 1
            waiting.pop(writer, None)
            writer.close()

    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
        server = await asyncio.start_server(answer, sock=bound, limit=_MAX_LINE)
    except OSError:
        bound.close()
        raise
    async with server:
        yield bound.getsockname()[1]


async def _page(request: bytes, exposition: Callable[[], tuple[bytes, str]]) -> bytes:
    line = request.split(b"\r\n", 1)[0].split(b" ")
    path = line[1].partition(b"?")[0] if len(line) == 3 and line[0] == b"GET" else b""  # noqa: PLR2004 - verb path version
    if path == b"/livez":
        return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    if path != b"/metrics":
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    # In a thread: rendering many series would block the event loop for longer than a predict call may wait.
    page, content_type = await asyncio.to_thread(exposition)
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(page)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + page
