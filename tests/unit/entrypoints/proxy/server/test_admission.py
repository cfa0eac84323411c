"""New connections in virtual time: who is admitted, who gives way, who is refused and how."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from structlog.testing import capture_logs
from uvicorn.server import ServerState
from virtual_time import in_virtual_time

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.entrypoints.proxy.overload.descriptors import ConnectionLimits
from understudy.entrypoints.proxy.overload.overload import CALM_SECONDS, OVERLOAD, OverloadManager, counted_address
from understudy.entrypoints.proxy.overload.pressure import LAG_TICKS, Pressure
from understudy.entrypoints.proxy.server.admission import LATE_SECONDS, TLS, Admission
from understudy.entrypoints.proxy.server.refusal import LINGER_SECONDS, MAX_READ

KEEP_ALIVE_SECONDS = 1_000
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


class FakeTransport(asyncio.Transport):
    """A connection from an address; one that is lost has no ``socket``, also before its protocol is told."""

    socket: Any

    def __init__(self, host: str, sockets: tuple[socket.socket, socket.socket]) -> None:
        super().__init__()
        self.host, self.socket = host, sockets[0]
        self.protocol: Any = None
        self.written, self.is_open, self.unsent_bytes = b"", True, 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self.host, 4_711), "socket": self.socket}.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return not self.is_open

    def write(self, data: Any) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.written += b"<end>"

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


class Door:
    """A server's door, with an overload manager behind it."""

    def __init__(self, sockets: Any, *, connections: int = 4, per_address: int = 3, refused: int = 2) -> None:
        self.telemetry, self.memory_bytes, self.shrinkings, self._sockets = MemoryTelemetry(), 0, 0, sockets
        self.manager = OverloadManager(
            ConnectionLimits(connections, per_address, refused),
            Pressure(max_lag_seconds=0.5, max_memory_bytes=1_000, resident_bytes=lambda: self.memory_bytes),
            self.telemetry,
            asyncio.get_running_loop().time,
            self._note_shrinking,
        )
        self._config = uvicorn.Config(
            answer, log_config=None, lifespan="off", ws="none", timeout_keep_alive=KEEP_ALIVE_SECONDS
        )
        self._server = ServerState()

    def connect(self, host: str = "10.0.0.1", sent: bytes = b"") -> FakeTransport:
        transport = FakeTransport(host, self._sockets)
        self.meet(transport)
        if sent:
            transport.protocol.data_received(sent)
        return transport

    def meet(self, transport: FakeTransport, **state: Any) -> None:
        """Take a connection in; what is in the server's ``state`` beside the overload manager is told."""
        Admission(
            receive_seconds=100.0,
            config=self._config,
            server_state=self._server,
            app_state={OVERLOAD: self.manager, **state},
            _loop=None,
        ).connection_made(transport)

    def _note_shrinking(self) -> None:
        self.shrinkings += 1

    def count(self, name: str) -> dict[str, float]:
        """Return what was counted, by trigger."""
        return {labels[0]: value for (found, *labels), value in self.telemetry.counts.items() if found == name}


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@in_virtual_time
async def test_a_new_connection_at_the_limit_takes_the_place_of_the_one_idle_for_longest(sockets):
    door = Door(sockets, per_address=9)
    first, *others = [door.connect() for _ in range(4) if await asyncio.sleep(1, result=True)]

    late = door.connect()
    await asyncio.sleep(0)

    assert not first.is_open
    assert all(one.is_open for one in (*others, late))
    assert len(door.manager.process.held) == 4
    assert door.count("idle_connections_closed_total")["connections"] == 1


@in_virtual_time
async def test_one_without_a_request_gives_way_before_one_that_had_requests_however_old_that_is(sockets):
    door = Door(sockets, connections=2, per_address=2)
    kept = door.connect(sent=REQUEST)
    await asyncio.sleep(10)
    unused = door.connect()

    door.connect()
    await asyncio.sleep(0)

    assert kept.is_open
    assert not unused.is_open


@in_virtual_time
async def test_a_connection_that_was_used_a_moment_ago_is_kept_and_the_new_one_refused(sockets):
    door = Door(sockets, connections=1, per_address=1)
    kept = door.connect(sent=REQUEST)
    await asyncio.sleep(LATE_SECONDS / 2)

    refused = door.connect(host="10.0.0.2", sent=REQUEST)
    await asyncio.sleep(LATE_SECONDS)
    admitted = door.connect(host="10.0.0.2", sent=REQUEST)
    await asyncio.sleep(0)

    assert refused.written.startswith(b"HTTP/1.1 503 ")
    assert not kept.is_open
    assert admitted.is_open


@in_virtual_time
async def test_a_head_that_is_late_gives_way_before_any_idle_connection(sockets):
    door = Door(sockets, connections=2, per_address=2)
    idle = door.connect()
    slow = door.connect(sent=b"GET / HT")
    await asyncio.sleep(LATE_SECONDS)

    door.connect()
    await asyncio.sleep(0)

    assert idle.is_open
    assert not slow.is_open


@in_virtual_time
async def test_a_connection_whose_request_has_come_or_whose_answer_is_unsent_never_gives_way(sockets):
    door = Door(sockets, connections=1, per_address=1)
    kept = door.connect(sent=REQUEST)
    await asyncio.sleep(10)
    sockets[1].send(REQUEST)
    on_its_way = door.connect(sent=REQUEST)
    sockets[0].recv(1_000)
    await asyncio.sleep(1)
    kept.unsent_bytes = 1
    unsent = door.connect(sent=REQUEST)

    assert kept.is_open
    assert on_its_way.written.startswith(b"HTTP/1.1 503 ")
    assert unsent.written.startswith(b"HTTP/1.1 503 ")


@in_virtual_time
async def test_a_connection_that_is_lost_and_was_not_told_so_yet_gives_way(sockets):
    door = Door(sockets, connections=1, per_address=1)
    lost = door.connect()
    lost.socket = None

    admitted = door.connect(sent=REQUEST)
    await asyncio.sleep(0)

    assert not lost.is_open
    assert admitted.is_open
    assert len(door.manager.process.held) == 1


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@in_virtual_time
async def test_a_connection_that_is_lost_before_its_handshake_leaves_its_place_and_no_descriptor(sockets, tmp_path):
    door = Door(sockets)
    with (tmp_path / "no socket").open("wb") as file:  # it can be copied, and then is found to be no socket
        before = open_descriptors()
        for gone in (file, None):
            transport = FakeTransport("10.0.0.1", sockets)
            transport.socket = gone
            transport.protocol = asyncio.Protocol()
            door.meet(transport, **{TLS: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)})
            assert not transport.is_open
        after = open_descriptors()

    assert after == before
    assert not door.manager.process.held


@in_virtual_time
async def test_one_address_has_a_limit_of_its_own_and_closes_only_its_own_connections(sockets):
    door = Door(sockets, connections=4, per_address=2)
    other = door.connect(host="10.0.0.2")
    await asyncio.sleep(1)
    mine = [door.connect() for _ in range(3)]
    await asyncio.sleep(0)

    assert other.is_open
    assert [one.is_open for one in mine] == [False, True, True]
    assert door.count("idle_connections_closed_total")["address"] == 1


@in_virtual_time
async def test_what_is_lost_leaves_its_place_and_nothing_of_its_address(sockets):
    door = Door(sockets)
    for _ in range(20):
        transport = door.connect()
        transport.close()
        await asyncio.sleep(0)

    assert not door.manager.process.held
    assert not door.manager.addresses
    assert door.count("connections_refused_total") == dict.fromkeys(
        ("connections", "address", "memory", "lag", "bodies"), 0
    )


INVALID_REQUESTS = {
    "not_http": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "head_too_long": b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000,
    "head_timeout": b"GET / HTTP/1.1\r\nx: a",
}


@pytest.mark.parametrize("reason", INVALID_REQUESTS)
@in_virtual_time
async def test_a_request_that_its_connection_refuses_is_counted_by_the_reason(reason, sockets):
    door = Door(sockets)
    before = door.count("http_requests_invalid_total")

    transport = door.connect(sent=INVALID_REQUESTS[reason])
    await asyncio.sleep(101)  # the read timeout is 100 s

    assert before == dict.fromkeys(INVALID_REQUESTS, 0)
    assert door.count("http_requests_invalid_total") == {**before, reason: 1}
    assert not transport.is_open


def lagging(door: Door) -> None:
    for _ in range(LAG_TICKS):
        door.manager.tick(1.0)


@in_virtual_time
async def test_a_refused_caller_is_told_why_and_when_to_try_again_and_its_connection_closed(sockets):
    door = Door(sockets)
    lagging(door)

    refused = door.connect(sent=b"POST /v1/models/visits/predict HTTP/1.1\r\nhost: x\r\n\r\n")
    refused.protocol.data_received(b"more of it")
    head, _, body = refused.written.removesuffix(b"<end>").partition(b"\r\n\r\n")
    await asyncio.sleep(LINGER_SECONDS)

    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nretry-after: 1\r\n" in head
    assert b"\r\nconnection: close" in head
    assert b"\r\ncontent-type: application/problem+json\r\n" in head
    assert f"content-length: {len(body)}".encode() in head
    problem = json.loads(body)
    assert (problem["code"], problem["status"]) == ("E507", 503)
    assert "event loop lags" in problem["detail"]
    assert refused.written.endswith(b"<end>")
    assert not refused.is_open
    assert door.count("connections_refused_total")["lag"] == 1


@pytest.mark.parametrize("asked", [b"GET /livez HTTP/1.1\r\n\r\n", b"GET /startupz HTTP/1.1\r\n\r\n"])
@in_virtual_time
async def test_liveness_is_answered_under_overload_too(asked, sockets):
    door = Door(sockets)
    lagging(door)

    assert door.connect(sent=asked).written.startswith(b"HTTP/1.1 200 OK\r\n")


@in_virtual_time
async def test_of_the_refused_only_so_many_linger_and_each_for_a_moment(sockets):
    door = Door(sockets, refused=2)
    lagging(door)

    silent = [door.connect() for _ in range(5)]
    at_once = [one.is_open for one in silent]
    await asyncio.sleep(LINGER_SECONDS)

    assert at_once == [False, False, False, True, True]
    assert not any(one.is_open for one in silent)
    assert all(one.written.startswith(b"HTTP/1.1 503 ") for one in silent)
    assert not len(door.manager.lingering)


@in_virtual_time
async def test_a_refused_caller_that_sends_on_is_cut_off(sockets):
    door = Door(sockets)
    lagging(door)
    refused = door.connect(sent=REQUEST)

    refused.protocol.data_received(b"x" * MAX_READ)

    assert not refused.is_open


@in_virtual_time
async def test_memory_pressure_refuses_new_connections_and_closes_idle_ones_a_few_at_a_time(sockets):
    door = Door(sockets, connections=40, per_address=40)
    idle = [door.connect() for _ in range(20)]
    busy = door.connect(sent=REQUEST)
    busy.unsent_bytes = 1
    door.memory_bytes = 1_001

    door.manager.tick(0.0)
    await asyncio.sleep(0)
    after_a_tick = sum(one.is_open for one in idle)
    refused = door.connect(sent=REQUEST)
    for _ in range(60):
        await asyncio.sleep(0.25)
        door.manager.tick(0.0)
    await asyncio.sleep(0)

    assert after_a_tick == 18
    assert b"short of memory" in refused.written
    assert not any(one.is_open for one in idle)
    assert busy.is_open


@in_virtual_time
async def test_the_heap_is_shrunk_while_there_is_memory_pressure_and_at_no_other_time(sockets):
    door = Door(sockets)
    seen = []
    for memory_bytes in (1, 1_000, 999, 1):
        door.memory_bytes = memory_bytes
        door.manager.tick(0.0)
        seen.append(door.shrinkings)

    lagging(door)

    assert seen == [0, 1, 2, 2]
    assert door.shrinkings == 2


@in_virtual_time
async def test_an_overload_is_one_event_when_it_begins_and_one_when_it_is_over(sockets):
    door = Door(sockets, connections=1, per_address=1)
    with capture_logs() as lines:
        for _ in range(4):
            door.connect()
            await asyncio.sleep(1)
        during = door.telemetry.gauges["overload_active", "address"]
        await asyncio.sleep(CALM_SECONDS)
        door.manager.tick(0.0)

    began, ended = lines
    assert (began["event"], began["trigger"], began["address"], began["limit"]) == (
        "overload.began", "address", "10.0.0.1", 1,
    )  # fmt: skip
    assert "UNDERSTUDY_MAX_CONNECTIONS_PER_ADDRESS" in began["next"]
    assert (ended["event"], ended["trigger"], ended["closed"], ended["refused"]) == ("overload.ended", "address", 3, 0)
    assert (during, door.telemetry.gauges["overload_active", "address"]) == (1, 0)
    assert door.telemetry.gauges["connections_open",] == 1


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_caller_is_its_address_or_of_ipv6_its_network(host, address):
    assert counted_address((host, 1, 0, 0)) == address


def test_a_connection_without_an_address_has_an_empty_one():
    assert counted_address(None) == ""
