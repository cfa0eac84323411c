"""Our client of model servers over gRPC, for minutes: mixed sizes, late and cancelled calls, servers that end.

``make soak-unary MINUTES=30``; without a number of minutes it is a look of twenty seconds. ``SOAK_CLIENT=grpcio`` has
gRPC's library make the same calls, to hold its figures beside ours.
"""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple
from uuid import uuid4

import grpc.aio
import pytest
import uvloop
from loopback.certificates import Authority
from loopback.tagging_server import HANGS, METHOD, answer_of

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.model_servers.addresses import Tls, Wire
from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES, Channel, OpenChannel, open_grpcio
from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.adapters.model_servers.http2.connection import Http2Connection
from understudy.adapters.model_servers.http2.stream import Stream
from understudy.core.upstream.endpoint_rules import parse_target

TESTS = Path(__file__).parents[1]
SECONDS = float(os.environ.get("SOAK_MINUTES", "0.33")) * 60
SPELL_SECONDS = 2.0
"""A load goes on for so long; then it is looked what is left of it."""
SERVER_SECONDS = 5.0
AGAIN_SECONDS = 3.0
"""Once a server listens again, until it has surely been called: an attempt pauses for up to a second."""
LONG_SECONDS = 60.0
IN_FLIGHT = (1, 64, 8, 32)
SERVERS = ((1_000, 3.0), (100, 2.0), (1_000, 3_600.0), (48, 1.0))
"""The most streams at once, and the age in seconds at which a connection gets GOAWAY. With fewer streams, or older
connections, gRPC's server comes to refuse nearly all calls after some were cancelled, by whichever client. The
server of 48 comes last, so only runs of minutes meet it: in one of seconds it would be half of all servers (once 15 %
of all calls were refused)."""
REFUSED = "14 Received RST_STREAM with error code 7"
"""Twice, by a server of few streams after some calls were cancelled: by either client."""
MAX_REFUSED = 0.05
"""Of all calls; seen were 0.0 to 1.1 % by either client."""
LOST = "14"
"""A connection ended in the midst of a call, or was not made, while the server was there."""
MAX_LOST = 0.01
"""Of all calls: gRPC's library loses some, too."""
CLIENTS: dict[str, OpenChannel] = {"asyncio": open_http2, "grpcio": open_grpcio}
CLIENT = os.environ.get("SOAK_CLIENT", "asyncio")
ENDED = ("14", "1")
"""Of calls whose server ended: the connection was lost, or the server gave them up at the end of its grace."""
MIB = 1_048_576
SIZES = ((0, 2_000), (0, 100_000), (100_000, 1 * MIB), (MIB, 8 * MIB))
SIZE_WEIGHTS = (70, 24, 5, 1)
EDGES = (0, 1, 5, 16_379, 16_384, 65_530, 65_535, 65_536, MAX_ANSWER_BYTES, MAX_ANSWER_BYTES + 1)
MEMORY_GROWTH = 1.05
MEMORY_SLACK = 16 * MIB
MIN_SPELLS = 4 * len(IN_FLIGHT)
"""Fewer spells say nothing of memory: it is then that of the longest answers under way."""


class Planned(NamedTuple):
    """A call, and what is to become of it."""

    tag: str
    request: bytes
    answer_size: int
    code: int
    timeout: float
    cancel_after: float | None

    @property
    def expected(self) -> str:
        """What its answer is, in short."""
        if self.code > 0:
            return f"{self.code} {self.tag}"
        if self.answer_size > MAX_ANSWER_BYTES:
            return "8 longer"
        return answer_of(self.request, self.tag, self.answer_size).hex()


class Drawing:
    """Draws calls: most are short and good; some are long, refused, late or cancelled."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._filler = chance.randbytes(16 * MIB)

    def call(self) -> Planned:
        chance = self._chance
        begin = chance.randrange(8 * MIB)
        is_late = chance.random() < 0.05
        return Planned(
            tag=uuid4().hex,
            request=self._filler[begin : begin + self._size()],
            answer_size=self._size() // 2 if chance.random() < 0.97 else chance.choice(EDGES),
            code=HANGS if is_late and chance.random() < 0.5 else chance.choice([0] * 20 + list(range(1, 17))),
            timeout=chance.uniform(0.0005, 0.05) if is_late else LONG_SECONDS,
            cancel_after=chance.uniform(0, 0.03) if chance.random() < 0.05 else None,
        )

    def _size(self) -> int:
        if self._chance.random() < 0.03:
            return self._chance.choice(EDGES)
        return self._chance.randrange(*self._chance.choices(SIZES, SIZE_WEIGHTS)[0])


class Servers:
    """One server after the other at the same port; each ends in the midst of calls, with GOAWAY or by SIGKILL."""

    def __init__(self, port: int, certificate: list[str]) -> None:
        self._port = port
        self._certificate = certificate
        self.ends: list[tuple[float, float]] = []
        """From when to when there was none, in seconds of the monotonic clock."""

    async def run(self) -> None:
        waiting = deque([self._start(0)])
        try:
            for number in count():
                serving = waiting[0]
                assert serving.stdin is not None
                serving.stdin.write(b"serve\n")
                serving.stdin.close()
                waiting.append(self._start(number + 1))
                await self._until_it_listens()
                if self.ends:
                    self.ends[-1] = (self.ends[-1][0], time.monotonic() + AGAIN_SECONDS)
                await asyncio.sleep(SERVER_SECONDS)
                self.ends.append((time.monotonic(), float("inf")))
                serving.send_signal((signal.SIGTERM, signal.SIGKILL)[number // 2 % 2])
                await asyncio.to_thread(serving.wait, 30)
                waiting.popleft()
        finally:
            for process in waiting:
                process.kill()
                process.communicate()

    def is_without(self, began: float) -> bool:
        """Whether a call that began then, and has ended now, met an end."""
        now = time.monotonic()
        return any(began <= until and now >= since for since, until in self.ends)

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        """Start a server that waits to be told: what Python needs for its start is no outage."""
        asked = [str(self._port), *map(str, SERVERS[number % len(SERVERS)]), *self._certificate]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        return subprocess.Popen(
            [sys.executable, "-m", "loopback.tagging_server", *asked], env=environment, stdin=subprocess.PIPE
        )

    async def _until_it_listens(self) -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                return
            await asyncio.sleep(0.05)


class Soak:
    """Makes calls, and holds each outcome against what it was to be."""

    def __init__(self, channel: Channel, servers: Servers, drawing: Drawing) -> None:
        self._method = channel.method(METHOD)
        self._servers = servers
        self._drawing = drawing
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def spell(self, in_flight: int) -> None:
        """Keep so many calls under way for a while, and return when all have ended."""
        over = time.monotonic() + SPELL_SECONDS

        async def ask() -> None:
            while time.monotonic() < over:
                await self._ask(self._drawing.call())

        await asyncio.gather(*(ask() for _ in range(in_flight)))

    async def _ask(self, planned: Planned) -> None:
        began = time.monotonic()
        found = await self._outcome_of(planned)
        kind = "answered" if found == planned.expected else found.partition(" ")[0]
        if kind == LOST and not self._servers.is_without(began):
            kind = "refused" if found.startswith(REFUSED) else "lost"
        self.outcomes[kind] += 1
        may_be = (
            kind in ("answered", "lost", "refused")
            or (kind == "cancelled" and planned.cancel_after is not None)
            or (kind == "4" and planned.timeout < LONG_SECONDS)
            or (kind in ENDED and self._servers.is_without(began))
        )
        if not may_be:
            self.wrong.append(f"{planned._replace(request=b'')}, {len(planned.request)} bytes: {found[:200]}")
        if kind in ENDED:
            await asyncio.sleep(0.02)

    async def _outcome_of(self, planned: Planned) -> str:
        metadata = (("asked", f"{planned.answer_size} {planned.code}"), ("tag", planned.tag))
        call = self._method(planned.request, timeout=planned.timeout, metadata=metadata)
        if planned.cancel_after is not None:
            asyncio.get_running_loop().call_later(planned.cancel_after, call.cancel)
        try:
            return (await call).hex()
        except asyncio.CancelledError:
            return "cancelled"
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if details.startswith("CLIENT: Received message larger"):
                return "8 longer"
            return f"{error.code().value[0]} {details}"


class Left(NamedTuple):
    """What a process holds while no call is under way."""

    memory: int
    descriptors: int
    tasks: int
    kept: dict[str, int]
    """Calls, streams and connections that have not been forgotten."""


def left() -> Left:
    gc.collect()
    kept = Counter(type(one).__name__ for one in gc.get_objects() if type(one) in (UnaryCall, Stream, Http2Connection))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return Left(pages * os.sysconf("SC_PAGE_SIZE"), descriptors, len(asyncio.all_tasks()), dict(kept))


async def soak(port: int, tls: Tls | None, certificate: list[str]) -> tuple[Soak, list[Left]]:
    servers = Servers(port, certificate)
    serving = asyncio.create_task(servers.run())
    target = parse_target(f"127.0.0.1:{port}")
    assert target.literal is not None
    channel = CLIENTS[CLIENT](f"127.0.0.1:{port}", target, [target.literal], Wire(tls=tls))
    soaking = Soak(channel, servers, Drawing(Random("soak")))
    seen = []
    try:
        await channel.method(METHOD)(b"", timeout=30, metadata=(("asked", "0 0"), ("tag", "")), wait_for_ready=True)
        over, number = time.monotonic() + SECONDS / 2, 0
        while time.monotonic() < over:
            await soaking.spell(IN_FLIGHT[number % len(IN_FLIGHT)])
            await asyncio.sleep(1.2)  # connections that ended linger for a second
            seen.append(left())
            number += 1
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        await channel.close()
    return soaking, seen


@contextmanager
def told(name: str) -> Iterator[list[str]]:
    """Print what was seen, whatever follows."""
    lines: list[str] = []
    try:
        yield lines
    finally:
        print(f"\n{name}: " + "\n  ".join(lines))


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_no_call_gets_anothers_answer_and_nothing_is_left_of_calls_that_ended(tmp_path, is_secure):
    tls, certificate = None, []
    if is_secure:
        authority = Authority(tmp_path)
        signed = authority.sign("127.0.0.1")
        tls, certificate = Tls(authority.ca.read_bytes()), [str(signed.cert), str(signed.key)]

    soaking, seen = uvloop.run(soak(free_port(), tls, certificate))

    quarter = max(1, len(seen) // 4)
    memory = [one.memory for one in seen]
    early, late = median(memory[quarter : 2 * quarter] or memory[:1]), median(memory[-quarter:])
    with told("tls" if is_secure else "plain") as lines:
        lines.append(f"{sum(soaking.outcomes.values()):,} calls: {dict(soaking.outcomes.most_common())}")
        lines.append(f"memory {early / MIB:.0f} -> {late / MIB:.0f} MiB, most {max(memory) / MIB:.0f}")
        lines.append(f"descriptors {sorted({one.descriptors for one in seen})}, {len(seen)} spells")
        lines.append(f"tasks {sorted({one.tasks for one in seen})}, kept {seen[-1].kept}")
    assert soaking.wrong[:3] == []
    calls = sum(soaking.outcomes.values())
    assert soaking.outcomes["lost"] <= MAX_LOST * calls
    assert soaking.outcomes["refused"] <= MAX_REFUSED * calls
    if CLIENT != "asyncio":
        return  # it has threads of its own, and other ways to keep things
    if len(seen) >= MIN_SPELLS:
        assert late <= early * MEMORY_GROWTH + MEMORY_SLACK
    assert max(one.descriptors for one in seen) <= min(one.descriptors for one in seen) + 3
    assert max(one.tasks for one in seen) <= 3  # the load, the servers, and a connection that is being made
    assert all(one.kept.get("UnaryCall", 0) == one.kept.get("Stream", 0) == 0 for one in seen)
    assert all(one.kept.get("Http2Connection", 0) <= 2 for one in seen)
