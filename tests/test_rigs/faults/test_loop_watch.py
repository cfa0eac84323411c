"""The watch over a proxy's event loop: what blocks the loop is told from a machine that gives it no core, or stops."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rigs.faults.loop_watch import LoopWatch, Probe, watched

BLOCK_SECONDS = 0.4
SERVER = """
import asyncio, contextlib, os, sys, time

def block(how):
    if how == b"compute":
        until = time.thread_time() + float(sys.argv[1])
        while time.thread_time() < until:
            pass
    elif how == b"wait":
        time.sleep(float(sys.argv[1]))

async def answer(reader, writer):
    with contextlib.suppress(asyncio.IncompleteReadError):
        while await reader.readuntil(b"\\r\\n\\r\\n"):
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, lambda: block(os.read(0, 100).strip()))
    await server.serve_forever()

asyncio.run(main())
"""


def a_probe(seconds: float, **waited: float) -> Probe:
    nothing = {"loop_waited": 0.0, "other_waited": 0.0, "watch_stalled": 0.0, "computed": 0.0}
    return Probe(10.0, seconds, **{**nothing, **waited})


@contextmanager
def a_server() -> Iterator[subprocess.Popen[bytes]]:
    """A server whose loop blocks when it is told so."""
    arguments = [sys.executable, "-c", SERVER, str(BLOCK_SECONDS)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        yield server
        with suppress(ProcessLookupError):
            server.kill()


def watched_while(happens: Callable[[subprocess.Popen[bytes]], None]) -> LoopWatch:
    with a_server() as server:
        assert server.stdout is not None
        with watched(int(server.stdout.readline()), server.pid) as watch:
            time.sleep(0.5)  # it starts, and asks a few times
            happens(server)
            time.sleep(2 * BLOCK_SECONDS)
    return watch


@pytest.mark.parametrize(
    ("probe", "blocked"),
    [
        (a_probe(0.06), 0.06),
        (a_probe(0.06, loop_waited=0.04), 0.02),
        (a_probe(0.06, loop_waited=0.02, other_waited=0.02), 0.02),
        (a_probe(0.06, watch_stalled=0.05), 0.01),
        (a_probe(0.06, loop_waited=0.03, watch_stalled=0.03), 0.03),
        (a_probe(0.06, loop_waited=0.06, computed=0.04), 0.04),
        (a_probe(0.06, computed=0.09), 0.06),
    ],
    ids=[
        "blocked",
        "no core for the loop",
        "nor for who has the GIL",
        "a standstill",
        "both at once",
        "computed",
        "on two cores",
    ],
)
def test_what_the_machine_took_is_no_block_and_what_the_proxy_computed_is_one(probe, blocked):
    assert probe.blocked_seconds == pytest.approx(blocked)


def test_the_longest_block_is_that_of_probes_sent_in_the_time_asked_for():
    early, late = a_probe(0.5)._replace(sent=1.0), a_probe(0.02, loop_waited=0.01)._replace(sent=2.5)

    figures = LoopWatch([early, late]).figures(2.0, 3.0)

    assert figures == pytest.approx(
        {"loop_block_ms_max": 10, "loop_computed_ms_max": 0, "loop_probe_ms_max": 20, "loop_probes": 1}
    )


@pytest.mark.timed
@pytest.mark.parametrize("how", [b"compute", b"wait"])
def test_a_loop_that_computes_or_waits_is_seen_as_blocked(how):
    def block(server: subprocess.Popen[bytes]) -> None:
        assert server.stdin is not None
        server.stdin.write(how)
        server.stdin.flush()

    watch = watched_while(block)

    assert max(probe.blocked_seconds for probe in watch.probes) >= BLOCK_SECONDS - 0.05


@pytest.mark.timed
def test_a_loop_that_gets_no_core_is_not_blocked():
    def leave_no_core(server: subprocess.Popen[bytes]) -> None:
        core = max(os.sched_getaffinity(0))
        os.sched_setaffinity(server.pid, {core})
        os.sched_setscheduler(server.pid, os.SCHED_IDLE, os.sched_param(0))
        burner = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
        with subprocess.Popen(burner) as burning:
            time.sleep(1.5)
            burning.kill()

    watch = watched_while(leave_no_core)

    worst = max(watch.probes, key=lambda probe: probe.seconds)
    assert worst.loop_waited >= 0.8 * worst.seconds - 0.02
    assert worst.blocked_seconds <= 0.25 * worst.seconds + 0.02


@pytest.mark.timed
def test_a_machine_that_stands_still_is_not_a_blocked_loop():
    def stand_still(server: subprocess.Popen[bytes]) -> None:
        (watch_pid,) = children_of(os.getpid()) - {server.pid}
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(0.05)  # in which the watch asks, and waits
        os.kill(watch_pid, signal.SIGSTOP)
        time.sleep(BLOCK_SECONDS)
        os.kill(watch_pid, signal.SIGCONT)
        os.kill(server.pid, signal.SIGCONT)

    watch = watched_while(stand_still)

    worst = max(watch.probes, key=lambda probe: probe.seconds)
    assert worst.seconds >= BLOCK_SECONDS / 2
    assert worst.watch_stalled >= BLOCK_SECONDS / 2
    assert worst.blocked_seconds <= worst.seconds / 2


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
