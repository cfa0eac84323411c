"""``make bench-unary``: what a unary call costs with grpc.aio, and with the least HTTP/2 that could make it (ADR 27).

An experiment: ``least_unary`` is no client. A real one would cost more; this shows the most that one could gain.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import grpc
import grpc.aio
import uvloop
from e2e.stack import Stack, a_stack

from loadtests.least_unary import METHOD, LeastUnary, infer_request
from loadtests.machine import LOAD_CORE, SERVER_CORE, on_core
from loadtests.scene import start_stub

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


async def _measure(port: int, rounds: int, calls: int) -> list[dict[str, float]]:
    _, least = await asyncio.get_running_loop().create_connection(LeastUnary, "127.0.0.1", port)
    found = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)

        async def by_grpc(request: bytes) -> bytes:
            return await method(request, timeout=0.5)

        for in_flight in (1, 2, 64):
            for rows in (1, 16):
                request = infer_request(rows)
                assert await by_grpc(request) == await least.call(request)
                ours, theirs = [], []
                for _ in range(rounds):
                    theirs.append(await _cpu_us(by_grpc, request, in_flight, calls))
                    ours.append(await _cpu_us(least.call, request, in_flight, calls))
                found.append({"in_flight": in_flight, "rows": rows, "grpc_aio": median(theirs), "least": median(ours)})
    return found


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
    print(
        f"{'calls in flight':>16}{'rows a call':>13}{'grpc.aio':>12}{'least HTTP/2':>15}{'ratio':>8}   (µs CPU a call)"
    )
    for one in found:
        ratio = one["grpc_aio"] / one["least"]
        print(f"{one['in_flight']:>16}{one['rows']:>13}{one['grpc_aio']:>12.1f}{one['least']:>15.1f}{ratio:>8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
