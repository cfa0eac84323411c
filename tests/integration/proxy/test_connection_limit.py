"""A proxy whose process may open few files, and callers that hold more connections than that: real processes."""

import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from e2e.stack import Stack, a_stack, get
from loopback.certificates import Authority

IDLE = 300
PROBES = 20
RECEIVE_SECONDS = 1.0
HOST = b"host: localhost\r\nconnection: close\r\n"
PREDICT = b"POST /v1/models/visits/predict HTTP/1.1\r\n" + HOST + b"content-length: 2\r\n\r\n{}"
ENDLESS = PREDICT.replace(b"length: 2", b"length: 9")
ALIVE = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"

pytestmark = pytest.mark.timed


@contextmanager
def held(port: int, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Hold connections from 127.0.0.2; on each the same bytes are sent."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5, source_address=("127.0.0.2", 0))
            connections.append(stack.enter_context(connection))
            connection.sendall(sent)
        yield connections


def probe(port: int) -> int:
    """Ask /livez on a new connection; returns the status, 0 without an answer."""
    return get(f"http://127.0.0.1:{port}/livez")[0]


async def until_alive(stack: Stack, port: int) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(probe, port) != 200:
            assert stack.processes["proxy"].child.poll() is None, stack.processes["proxy"].log.read_text()
            await asyncio.sleep(0.1)


def limit_of(stack: Stack) -> int:
    """Return the soft limit of the proxy's descriptors."""
    limits = Path(f"/proc/{stack.processes['proxy'].pid}/limits").read_text()
    found = re.search(r"Max open files +(\d+)", limits)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(("ulimit", "limit"), [("-Sn 128", None), ("-n 128", 128)])
async def test_more_idle_connections_than_descriptors_keep_no_other_caller_out(ulimit, limit, database_url, tmp_path):
    with a_stack(tmp_path, database_url) as stack:
        port = stack.start_proxy(wait_ready=False, ulimit=ulimit)
        await until_alive(stack, port)

        with held(port, IDLE):
            seen = [await asyncio.to_thread(probe, port) for _ in range(PROBES)]

        assert seen == [200] * PROBES
        assert limit_of(stack) == limit if limit else limit_of(stack) > IDLE


@pytest.mark.parametrize("is_tls", [False, True])
async def test_at_the_limit_with_calls_on_all_connections_a_caller_is_told_so_and_liveness_is_answered(
    is_tls, database_url, tmp_path, authority
):
    made = authority.sign("localhost")
    tls = {"tls_cert": made.cert, "tls_key": made.key} if is_tls else {}
    with a_stack(tmp_path, database_url) as stack, ExitStack() as busy:
        port = stack.start_proxy(wait_ready=False, max_connections=3, max_connections_per_address=3, **tls)
        context = ssl.create_default_context(cafile=str(authority.ca)) if is_tls else None
        await until_answered(stack, port, context)

        for _ in range(3):
            busy.enter_context(connected(port, context)).sendall(ENDLESS)
        refused, alive = b"", b""
        async with asyncio.timeout(30):
            while not refused.startswith(b"HTTP/1.1 503 "):  # until all three are known to have calls
                refused = await asyncio.to_thread(asked, port, PREDICT, context)
        alive = await asyncio.to_thread(asked, port, ALIVE, context)

    head, _, body = refused.partition(b"\r\n\r\n")
    assert b"\r\nretry-after: 1\r\n" in head
    assert head.endswith(b"\r\nconnection: close")
    assert json.loads(body)["code"] == "E507"
    assert alive.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_tls_handshakes_that_never_begin_end_after_the_read_timeout(database_url, tmp_path, authority):
    made = authority.sign("localhost")
    with a_stack(tmp_path, database_url) as stack:
        port = stack.start_proxy(
            wait_ready=False, receive_seconds=RECEIVE_SECONDS, tls_cert=made.cert, tls_key=made.key
        )
        await until_tls(stack, port, authority)

        with held(port, 3) as connections:
            began = time.monotonic()
            ends = [await asyncio.to_thread(ended, connection) for connection in connections]
            seconds = time.monotonic() - began

        assert ends == [True] * 3
        assert 0.5 * RECEIVE_SECONDS < seconds < 5 * RECEIVE_SECONDS


async def test_more_handshakes_that_never_begin_than_descriptors_keep_no_other_caller_out(
    database_url, tmp_path, authority
):
    made = authority.sign("localhost")
    with a_stack(tmp_path, database_url) as stack:
        port = stack.start_proxy(wait_ready=False, ulimit="-n 128", tls_cert=made.cert, tls_key=made.key)
        await until_tls(stack, port, authority)

        with held(port, IDLE):
            await asyncio.sleep(1.5)  # a handshake that has not ended after a second gives way
            seen = [await asyncio.to_thread(probe_tls, port, authority) for _ in range(PROBES)]

        assert seen == [b"HTTP/1.1 200 OK"] * PROBES


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def ended(connection: socket.socket) -> bool:
    """Whether the other side ends the connection in time, without a byte."""
    connection.settimeout(10 * RECEIVE_SECONDS)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def connected(port: int, tls: ssl.SSLContext | None) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", port), timeout=10)
    return raw if tls is None else tls.wrap_socket(raw, server_hostname="localhost")


def asked(port: int, request: bytes, tls: ssl.SSLContext | None) -> bytes:
    """Send a request on a new connection; returns what comes, or the problem's name."""
    received = b""
    try:
        with connected(port, tls) as connection:
            connection.sendall(request)
            while part := connection.recv(10_000):
                received += part
    except OSError as problem:
        return received or repr(problem).encode()
    return received


def probe_tls(port: int, authority: Authority) -> bytes:
    """Ask /livez over TLS; returns the status line."""
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    return asked(port, ALIVE, trusting).split(b"\r\n", 1)[0]


async def until_answered(stack: Stack, port: int, tls: ssl.SSLContext | None) -> None:
    async with asyncio.timeout(60):
        while not (await asyncio.to_thread(asked, port, ALIVE, tls)).startswith(b"HTTP/1.1 200 OK"):
            assert stack.processes["proxy"].child.poll() is None, stack.processes["proxy"].log.read_text()
            await asyncio.sleep(0.1)


async def until_tls(stack: Stack, port: int, authority: Authority) -> None:
    await until_answered(stack, port, ssl.create_default_context(cafile=str(authority.ca)))
