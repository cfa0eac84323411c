"""The demo's processes: none outlives it, and one that dies says why."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress

import pytest

from understudy.adapters.embedded.child_process import is_alive
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.entrypoints.demo import watchdog
from understudy.entrypoints.demo.keep_alive import KeepAliveClient
from understudy.entrypoints.demo.processes import Watchdog, start_child, until_answers
from understudy.entrypoints.demo.refusal import DemoRefused
from understudy.entrypoints.demo.running import read_running
from understudy.entrypoints.demo.state import StateFolder

SLEEP = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def said(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


async def gone(pid: int, seconds: float = 60.0) -> bool:
    give_up = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < give_up:  # noqa: ASYNC110 - another process's end has no event here
        await asyncio.sleep(0.02)
    return not is_alive(pid)


async def others_end() -> None:
    """Let the other ends of connections close: a loop that ends before leaves them open."""
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - tasks of others have no event
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.01)  # a transport is closed in the turns that follow


async def test_a_process_is_ended_when_the_demo_was_killed(tmp_path):
    guard = await Watchdog.start()
    child = await start_child("sleeper", ["-c", SLEEP], tmp_path, guard)

    await guard.stop()  # closes its input, as the kernel does for a killed demo

    assert await gone(child.pid)
    assert await gone(guard.pid)


def test_a_process_that_ignores_the_signal_is_made_to_end():
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as stubborn:
        said(stubborn)
        watched = watchdog.watch([f"{stubborn.pid} {int(signal.SIGTERM)}\n"])

        watchdog.end_all(watched, grace_seconds=0.3)

        assert stubborn.wait(60) == -signal.SIGKILL


def test_a_process_that_took_over_a_pid_is_left_alone():
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as other:
        before = watchdog.Watched(other.pid, signal.SIGTERM, started="1")

        watchdog.end_all([before], grace_seconds=0.1)

        alive = other.poll() is None
        other.kill()
    assert alive


async def test_a_process_that_dies_early_is_reported_with_the_end_of_its_log(tmp_path):
    guard = await Watchdog.start()
    program = "import sys; print('no such model', file=sys.stderr); sys.exit(3)"
    child = await start_child("champion-a", ["-c", program], tmp_path, guard, reads_line=True)

    with pytest.raises(DemoRefused) as refused:
        await child.first_line()

    await guard.stop()
    assert "champion-a ended with status 3" in refused.value.detail
    assert "no such model" in refused.value.detail


async def test_a_variable_of_our_own_can_be_kept_from_a_child(tmp_path):
    guard = await Watchdog.start()
    program = "import os; print(os.environ.get('PATH'), os.environ['OWN'])"

    child = await start_child("printer", ["-c", program], tmp_path, guard, {"PATH": None, "OWN": "1"}, reads_line=True)
    line = await child.first_line()
    await child.ended()

    await guard.stop()
    assert os.environ["PATH"]
    assert line == "None 1\n"


async def test_a_process_that_ends_before_it_answers_is_reported_with_the_end_of_its_log(tmp_path):
    guard = await Watchdog.start()
    program = "import sys; print('the port is taken', file=sys.stderr); sys.exit(1)"
    child = await start_child("monitor", ["-c", program], tmp_path, guard)

    with pytest.raises(DemoRefused) as refused:
        await until_answers(child, free_port(), "/metrics")

    await guard.stop()
    assert "monitor ended with status 1" in refused.value.detail
    assert "the port is taken" in refused.value.detail


async def test_stopping_a_child_waits_for_its_end(tmp_path):
    guard = await Watchdog.start()
    child = await start_child("sleeper", ["-c", SLEEP], tmp_path, guard)

    await child.stop()

    assert child.status == -signal.SIGTERM
    await guard.stop()


def test_a_folder_is_held_by_one_demo_at_a_time(tmp_path):
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.hold()
    first.announce({"proxy": "http://127.0.0.1:8080", "pids": {"demo": os.getpid()}})

    with pytest.raises(DemoRefused, match=r"running in .* already at http://127.0.0.1:8080"):
        second.hold()

    assert (read_running(tmp_path) or {})["proxy"] == "http://127.0.0.1:8080"
    first.release()
    second.hold()
    second.release()


def test_a_demo_that_was_killed_is_not_taken_for_a_running_one(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from understudy.entrypoints.demo.state import StateFolder; "
        "folder = StateFolder(Path(sys.argv[1])); folder.hold(); folder.announce({'proxy': 'http://127.0.0.1:8080'}); "
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as demo:
        said(demo)
        during = read_running(tmp_path)
        demo.kill()
        demo.wait(5)

    assert during == {"proxy": "http://127.0.0.1:8080"}
    assert read_running(tmp_path) is None


def test_clearing_a_folder_leaves_what_is_not_the_demos(tmp_path):
    (tmp_path / "proxy").mkdir()
    (tmp_path / "thesis.txt").write_text("years of work")

    StateFolder(tmp_path).clear()

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


async def test_calls_share_a_connection_and_survive_its_loss():
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with closing(writer), suppress(asyncio.IncompleteReadError):
            for _ in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0")
                body = await reader.readexactly(size)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        client = KeepAliveClient("127.0.0.1", server.sockets[0].getsockname()[1])
        answers = [await client.post("/x", body, 2.0) for body in (b"one", b"two")]
        with pytest.raises(OSError, match=r"cannot be read|reset"):
            await client.post("/x", b"three", 2.0)
        answers.append(await client.post("/x", b"four", 2.0))
        await client.close()
        await others_end()

    assert [answer.body for answer in answers] == [b"one", b"two", b"four"]
    assert connections == 2


async def test_an_answer_that_does_not_come_is_given_up():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        client = KeepAliveClient("127.0.0.1", server.sockets[0].getsockname()[1])

        with pytest.raises(TimeoutError):
            await client.get("/", 0.1)

        await others_end()
