"""``make bench-unary``: what a unary call costs by our own client, by gRPC's library, and by the least that makes one.

*Least HTTP/2* is an experiment, ``least_unary``, and no client: it shows the most that one could gain (ADR 27, 126).
Calls are lone, which come at random times, 200 a second, or so many are under way all the time.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import uvloop
from e2e.stack import Stack, a_stack

from loadtests.least_unary import METHOD, LeastUnary, infer_request
from loadtests.machine import LOAD_CORE, SERVER_CORE, on_core
from loadtests.scene import start_stub
from understudy.adapters.http2.frames import DEFAULT_FRAME_BYTES
from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.channels import Channel, OpenChannel, open_grpcio
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.core.upstream.endpoint_rules import parse_target

CLIENTS: Mapping[str, OpenChannel] = {"grpcio": open_grpcio, "asyncio": open_http2}
LEAST = "least HTTP/2"
LONE_PER_SECOND = 200
LONG_ROWS = 1_900
"""Some 100 KB."""
SECONDS = 30.0
Call = Callable[[bytes], Awaitable[bytes]]


async def _cpu_us(call: Call, request: bytes, in_flight: int, calls: int) -> float:
    """Return this process's processor time for a call, in microseconds, with so many under way all the time."""
    left = calls

    async def ask() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call(request)

    began = time.process_time()
    await asyncio.gather(*(ask() for _ in range(in_flight)))
    return (time.process_time() - began) / calls * 1e6


async def _lone(call: Call, request: bytes, calls: int, chance: Random) -> tuple[float, float]:
    """Return the median time of calls that come at random times, in ms, and the processor time of one, in µs."""
    took = []
    began = time.process_time()
    for _ in range(calls):
        await asyncio.sleep(chance.expovariate(LONE_PER_SECOND))
        sent_at = time.perf_counter()
        await call(request)
        took.append(time.perf_counter() - sent_at)
    return median(took) * 1e3, (time.process_time() - began) / calls * 1e6


def _by(client: OpenChannel, port: int) -> tuple[Channel, Call]:
    target = parse_target(f"127.0.0.1:{port}")
    assert target.literal is not None
    channel = client(f"127.0.0.1:{port}", target, [target.literal], PLAIN_WIRE)
    method = channel.method(METHOD)

    async def call(request: bytes) -> bytes:
        return await method(request, timeout=SECONDS, metadata=())

    return channel, call


async def _measure(port: int, rounds: int, calls: int) -> list[dict[str, Any]]:
    _, least = await asyncio.get_running_loop().create_connection(LeastUnary, "127.0.0.1", port)
    opened = {name: _by(client, port) for name, client in CLIENTS.items()}
    by: dict[str, Call] = {name: call for name, (_, call) in opened.items()} | {LEAST: least.call}
    chance = Random("lone calls")
    found: list[dict[str, Any]] = []
    for rows in (1, 16, LONG_ROWS):
        request = infer_request(rows)
        if len(request) > DEFAULT_FRAME_BYTES:
            del by[LEAST]  # it has no flow control
        answers = {await call(request) for call in by.values()}
        assert len(answers) == 1
        times: dict[int, dict[str, list[float]]] = {}
        waits: dict[str, list[float]] = {name: [] for name in by}
        for name, call in list(by.items()) * rounds:
            wait, lone = await _lone(call, request, calls // 50, chance)
            waits[name].append(wait)
            times.setdefault(0, {}).setdefault(name, []).append(lone)
            for in_flight in (1, 16, 64):
                taken = times.setdefault(in_flight, {}).setdefault(name, [])
                taken.append(await _cpu_us(call, request, in_flight, calls))
        found.extend(
            {"in_flight": in_flight, "bytes": len(request), **{name: median(taken) for name, taken in by_name.items()}}
            for in_flight, by_name in times.items()
        )
        found.append({"p50_ms": True, "bytes": len(request), **{name: median(wait) for name, wait in waits.items()}})
    for channel, _ in opened.values():
        await channel.close()
    return found


def _line(one: Mapping[str, Any]) -> str:
    busy = f"{one['in_flight']} in flight" if one.get("in_flight") else "lone"
    what = "lone, p50 in ms" if "p50_ms" in one else busy
    figures = [one.get(name) for name in (*CLIENTS, LEAST)]
    shown = "".join(f"{'-' if figure is None else format(figure, '.2f'):>14}" for figure in figures)
    return f"{what:>16}{one['bytes']:>10}{shown}{one['asyncio'] / one['grpcio']:>8.2f}"


def main() -> int:
    """Measure, print a table, and return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="us-unary-")))
        opened.enter_context(on_core(LOAD_CORE))
        stack: Stack = opened.enter_context(a_stack(folder, "", None))
        port = start_stub(stack, "stub", [])
        with on_core(SERVER_CORE), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_measure(port, asked.rounds, asked.calls))
    if asked.json:
        print(json.dumps(found))
        return 0
    names = "".join(f"{name:>14}" for name in (*CLIENTS, LEAST))
    print(f"{'µs CPU a call':>16}{'bytes':>10}{names}{'ratio':>8}")
    for one in found:
        print(_line(one))
    return 0


if __name__ == "__main__":
    sys.exit(main())
