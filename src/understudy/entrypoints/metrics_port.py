"""``/metrics`` on its own port, with ``/livez`` and what else is asked of processes that have no other port.

All workers of a proxy bind the port (SO_REUSEPORT), the kernel picks one for each scrape, and each exposes the metrics
of all of them, so that scrapes survive any one worker. A process that exposes only its own metrics binds it alone.
"""

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

REQUEST_SECONDS = 5.0
"""For a request to come, and as long again for its answer to go. Making a page of 10,000 models takes two seconds, and
longer on a machine that is busy: the scraper has a time-out of its own."""
MAX_OPEN = 32
"""Connections at a time. A further one takes the place of the oldest that has sent no request yet, or is closed."""
MAX_ASKED = 8
"""Callers who wait for the answer to one question; a further one gets a no. Others are answered meanwhile."""
_MAX_LINE = 8_192
Questions = Mapping[str, Callable[[], Awaitable[bool]]]
"""What else the port is asked, by method and path (``GET /readyz``): yes is 200, no is 503. Each answers within a bound
of its own. ``POST`` is for callers on this machine alone; a sidecar's proxy is there, and what it passes on is not."""


_PASSED_ON = re.compile(
    rb"\r\n(?:forwarded|via|x-forwarded-[a-z]+|x-envoy-[a-z-]+|x-real-ip|origin)[ \t]*:", re.IGNORECASE
)
"""A header that a proxy adds, or the browser of a page from elsewhere."""


def is_this_machine(address: str, own: str) -> bool:
    """Whether a caller's address is one that only processes of this machine, or of this pod, have.

    Args:
        address: The caller's.
        own: The one that it called: who has that too is here.
    """
    parsed = ip_address(address)
    return address == own or (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


@asynccontextmanager
async def metrics_port(
    host: str,
    port: int,
    exposition: Callable[[], tuple[bytes, str]],
    *,
    is_shared: bool = True,
    questions: Questions | None = None,
    is_near: Callable[[str, str], bool] = is_this_machine,
    request_seconds: float = REQUEST_SECONDS,
) -> AsyncIterator[int]:
    """Serve the metrics while the context lasts; yields the bound port (``port`` may be 0 for a free one).

    Raises:
        OSError: The port cannot be bound; without ``is_shared`` also because another process has it.
    """
    waiting: dict[asyncio.StreamWriter, None] = {}
    open_connections = 0
    asking = Counter[str]()

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
                peer = writer.get_extra_info("peername")  # uvloop has none of a caller who has gone
                own = writer.get_extra_info("sockname")
                may_change = None not in (peer, own) and is_near(peer[0], own[0]) and not _PASSED_ON.search(request)
                writer.write(await _page(request, exposition, questions or {}, asking, may_change=may_change))
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


async def _page(
    request: bytes,
    exposition: Callable[[], tuple[bytes, str]],
    questions: Questions,
    asking: Counter[str],
    *,
    may_change: bool,
) -> bytes:
    line = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(line) != 3:  # noqa: PLR2004 - method, path, version
        return _empty("404 Not Found")
    asked = f"{line[0]} {line[1].partition('?')[0]}"
    if asked == "GET /livez":
        return _empty("200 OK")
    if asked in questions:
        if line[0] == "POST" and not may_change:
            return _empty("403 Forbidden")
        return _empty("200 OK" if await _answer_to(asked, questions, asking) else "503 Service Unavailable")
    if asked != "GET /metrics":
        return _empty("404 Not Found")
    # In a thread: rendering many series would block the event loop for longer than a predict call may wait.
    page, content_type = await asyncio.to_thread(exposition)
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(page)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + page


async def _answer_to(question: str, questions: Questions, asking: Counter[str]) -> bool:
    if asking[question] >= MAX_ASKED:
        return False
    asking[question] += 1
    try:
        return await questions[question]()
    finally:
        asking[question] -= 1


def _empty(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
