"""Callers who send long bodies and never end them: the process holds its budget of them, and goes on answering."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

import pytest

from understudy.entrypoints.proxy.overload.body_budget import LATE_SECONDS

STATM = Path("/proc/self/statm")
MEMORY_BYTES = 80_000_000
CONNECTIONS = 40
PIECE = b" " * 3_900_000
HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
SERVER = """
import asyncio, socket, uvicorn
from functools import partial
from uvicorn.server import ServerState
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.telemetry.process_usage import resident_bytes
from understudy.entrypoints.proxy.api.limits import body_budget, overload_manager
from understudy.entrypoints.proxy.api.predict_route import read_body, send_reply
from understudy.entrypoints.proxy.messages.problems import problem_body, problem_headers, status_of
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.entrypoints.proxy.processes.uvicorn_process import tune_runtime, uvicorn_options
from understudy.entrypoints.proxy.overload.body_budget import BODY_BUDGET
from understudy.entrypoints.proxy.overload.overload import OVERLOAD
from understudy.errors import UnderstudyError
from understudy.settings import Settings

settings = Settings(max_memory_bytes=%d, max_lag_seconds=0, auth=True)
telemetry = MemoryTelemetry()

async def app(scope, receive, send):
    if scope["path"] == "/state":
        held = scope["state"][BODY_BUDGET].held_bytes
        refused = telemetry.counts["connections_refused_total", "bodies"]
        await send_reply(send, Reply(200, [], b"%%d %%d %%d." %% (resident_bytes(), held, refused)))
        return
    try:
        body = await read_body(receive, settings.rank_body_limit_bytes, 60, scope)
        await send_reply(send, Reply(200, [], b"%%d" %% len(body)))
    except UnderstudyError as problem:
        await send_reply(send, Reply(status_of(problem), problem_headers(problem), problem_body(problem, "/")))

async def main():
    manager = overload_manager(settings, telemetry)
    tune_runtime()
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, **{**uvicorn_options(settings), "lifespan": "off"})
    config.load()
    http = partial(config.http_protocol_class, config=config, server_state=ServerState())
    loop = asyncio.get_running_loop()
    state = {OVERLOAD: manager, BODY_BUDGET: body_budget(settings, manager)}
    server = await loop.create_server(lambda: http(app_state=state, _loop=loop), sock=listening)
    print(listening.getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


async def state_of(port: int) -> tuple[int, int, int]:
    """Return the process's resident memory, the bytes of bodies that it holds, and how many it refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /state HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    resident, held, refused = (await reader.readuntil(b".")).rstrip(b".").split()
    writer.close()
    return int(resident), int(held), int(refused)


async def hold(port: int, address: str, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Begin a body of this size from an address of the loopback network, and let it trickle from then on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(HEAD % (size + 1_000) + b" " * size)
    await writer.drain()
    return reader, writer


async def trickle(writers: Sequence[asyncio.StreamWriter], seconds: float) -> None:
    for _ in range(int(seconds / 0.2)):
        for writer in writers:
            writer.write(b" ")
        await asyncio.sleep(0.2)


async def begin_body(port: int) -> tuple[bytes, asyncio.StreamWriter]:
    """Send a body but for its last bytes; return the answer's head, which is empty if none came in 2 s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD % (len(PIECE) + 9) + PIECE)
    try:
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2), writer
    except TimeoutError:
        return b"", writer


@pytest.mark.timed
@pytest.mark.skipif(not STATM.exists(), reason="the memory of a process is read from /proc")
async def test_bodies_that_never_end_hold_their_budget_and_the_others_are_refused():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER % MEMORY_BYTES, stdout=PIPE)
    try:
        assert child.stdout is not None
        port = int(await asyncio.wait_for(child.stdout.readline(), 60))
        before, *_ = await state_of(port)

        begun = await asyncio.gather(*(begin_body(port) for _ in range(CONNECTIONS)))
        during, held, refused = await state_of(port)
        heads = [head for head, _ in begun if head]
        for _, writer in begun:
            writer.close()
        async with asyncio.timeout(10):
            while (await state_of(port))[1]:  # noqa: ASYNC110 - the server is another process
                await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD % len(PIECE) + PIECE)
        whole = await asyncio.wait_for(reader.readuntil(b"%d" % len(PIECE)), 10)
        writer.close()
    finally:
        child.kill()
        await child.wait()

    assert 0 < held <= MEMORY_BYTES / 8  # half of a quarter: all connections are of one address
    assert during - before <= CONNECTIONS * len(PIECE) / 3
    assert refused == len(heads) >= CONNECTIONS - 4
    for head in heads:
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in head
        assert b"connection: close\r\n" in head
    assert whole.startswith(b"HTTP/1.1 200 ")


@pytest.mark.timed
async def test_a_caller_is_answered_though_four_addresses_hold_the_budget_with_bodies_that_trickle():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER % MEMORY_BYTES, stdout=PIPE)
    try:
        assert child.stdout is not None
        port = int(await asyncio.wait_for(child.stdout.readline(), 60))
        size = MEMORY_BYTES // 4 // 8 - 20_000
        slow = [await hold(port, f"127.0.0.{2 + number % 4}", size) for number in range(8)]
        async with asyncio.timeout(10):
            while (await state_of(port))[1] < 8 * size:  # noqa: ASYNC110 - the server is another process
                await asyncio.sleep(0.05)
        await trickle([writer for _, writer in slow], LATE_SECONDS + 0.2)

        heads = []
        for _ in range(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
            writer.write(HEAD % len(PIECE) + PIECE)
            heads.append(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10))
            writer.close()
        assert {head.partition(b"\r\n")[0] for head in heads} == {b"HTTP/1.1 200 OK"}
        ended = await asyncio.wait_for(slow[0][0].readuntil(b"\r\n\r\n"), 10)
        for _, writer in slow:
            writer.close()
    finally:
        child.kill()
        await child.wait()

    assert ended.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in ended
    assert b"connection: close\r\n" in ended
