"""A process that is short of memory, until the caller who made it so is gone: its resident memory falls again."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

STATM = Path("/proc/self/statm")
SERVER = """
import asyncio, socket, uvicorn
from functools import partial
from uvicorn.server import ServerState
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.telemetry.process_usage import resident_bytes
from understudy.entrypoints.proxy.api.limits import overload_manager
from understudy.entrypoints.proxy.processes.uvicorn_process import tune_runtime, uvicorn_options
from understudy.entrypoints.proxy.overload.overload import OVERLOAD
from understudy.settings import Settings

kept = []

async def app(scope, receive, send):
    pieces = [b"%04d" % number * 800 for number in range(60_000)] if scope["path"] == "/hold" else []
    kept.extend(pieces[::100])  # what other calls have made meanwhile, say a cache
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"o", "more_body": True})
    if pieces:
        pieces.append(pieces)  # a reference cycle: only the garbage collector frees it
        while (await receive())["type"] != "http.disconnect":
            pass
    await send({"type": "http.response.body", "body": b"k"})

async def main():
    settings = Settings(max_memory_bytes=resident_bytes() + 100_000_000, max_lag_seconds=0, auth=True)
    manager = overload_manager(settings, MemoryTelemetry())
    watching = asyncio.create_task(manager.run())
    tune_runtime()
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, **{**uvicorn_options(settings), "lifespan": "off"})
    config.load()
    http = partial(config.http_protocol_class, config=config, server_state=ServerState())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: http(app_state={OVERLOAD: manager}, _loop=loop), sock=listening)
    print(listening.getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


async def status_of_a_new_caller(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def until_answered(port: int, status: int) -> None:
    while await status_of_a_new_caller(port) != status:  # noqa: ASYNC110 - the server is another process
        await asyncio.sleep(0.1)


@pytest.mark.timed
@pytest.mark.skipif(not STATM.exists(), reason="the memory of a process is read from /proc")
async def test_memory_pressure_ends_once_what_was_held_is_free():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdout=PIPE)
    try:
        assert child.stdout is not None
        port = int(await asyncio.wait_for(child.stdout.readline(), 60))
        assert await status_of_a_new_caller(port) == 200

        reader, holder = await asyncio.open_connection("127.0.0.1", port)
        holder.write(b"GET /hold HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"o"), 30)
        await asyncio.wait_for(until_answered(port, 503), 30)
        holder.close()

        await asyncio.wait_for(until_answered(port, 200), 30)
    finally:
        child.kill()
        await child.wait()
