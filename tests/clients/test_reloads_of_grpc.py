"""Workers are replaced, and instances change places, while Triton's own client calls 200 times a second over gRPC.

On a machine that others use as well ``UNDERSTUDY_TEST_RELOADS=2 UNDERSTUDY_TEST_RATE=20`` is a look at it.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from clients.test_real_clients import PYTHON, ROWS
from e2e.stack import Stack, a_stack, logged_ids, register, sql

from rigs.faults.links import Links
from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = pytest.mark.timeout(1_800)
SCRIPT = Path(__file__).with_name("ask_steadily.py")
PER_SECOND = int(os.environ.get("UNDERSTUDY_TEST_RATE", "200"))
RELOADS = int(os.environ.get("UNDERSTUDY_TEST_RELOADS", "10"))
ENOUGH_SECONDS = 300.0


@asynccontextmanager
async def called(port: int, tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """Have a client call meanwhile; what came of it is there afterwards."""
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps(ROWS))
    child = await asyncio.create_subprocess_exec(
        PYTHON, SCRIPT, f"127.0.0.1:{port}", rows, str(PER_SECOND),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**24,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdin is not None
    found: dict[str, Any] = {}
    try:
        assert await asyncio.wait_for(child.stdout.readline(), ENOUGH_SECONDS) == b"answered\n"
        yield found
        child.stdin.close()
        found |= json.loads(await asyncio.wait_for(child.stdout.read(), ENOUGH_SECONDS))
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def champion(database_url: str, port: int) -> None:
    version = await register(database_url, 1, [port])
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)


async def start(stack: Stack, name: str, grpc_port: int, **settings: Any) -> None:
    await asyncio.to_thread(lambda: stack.start_proxy(name, grpc_port=grpc_port, **settings))


def say(what: str, found: dict[str, Any]) -> None:
    sys.stdout.write(f"\n{RELOADS} {what}: {found['answered']:,} answered, failed {found['failed']}\n")


async def every_answer_is_a_row(database_url: str, ids: list[str]) -> None:
    logged = Counter(await logged_ids(database_url, set(ids)))
    assert set(ids) <= set(logged)
    assert max(logged.values()) == 1


async def test_ten_reloads_of_four_workers_cost_no_call(
    database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    grpc_port = free_port()
    await champion(database_url, model_port("visits:1"))
    with a_stack(tmp_path, database_url) as stack:
        await start(stack, "proxy", grpc_port, workers=4)
        proxy = stack.processes["proxy"]
        async with called(grpc_port, tmp_path) as found:
            for _ in range(RELOADS):
                old = set(proxy.children())
                proxy.signal(signal.SIGHUP)
                async with asyncio.timeout(ENOUGH_SECONDS):
                    while old & set(proxy.children()):  # noqa: ASYNC110 - no event tells of processes
                        await asyncio.sleep(0.1)

    say("reloads of 4 workers", found)
    assert found["failed"] == {}
    await every_answer_is_a_row(database_url, found["ids"])


async def test_ten_changes_of_instances_cost_no_call(
    database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    """A front sends new connections to the newer instance, as a Service does, and then the older one is told to end."""
    await champion(database_url, model_port("visits:1"))
    settings = {"drain_seconds": 5}
    with a_stack(tmp_path, database_url) as stack, Links() as links:
        ports = [free_port() for _ in range(RELOADS + 1)]
        await start(stack, "proxy-0", ports[0], state_dir=tmp_path / "state-0", **settings)
        front = links.to(ports[0])
        async with called(front.port, tmp_path) as found:
            for number in range(1, RELOADS + 1):
                name, leaving = f"proxy-{number}", stack.processes[f"proxy-{number - 1}"]
                await start(stack, name, ports[number], state_dir=tmp_path / f"state-{number}", **settings)
                front.move(ports[number], resets=False)
                leaving.signal(signal.SIGTERM)
                await asyncio.to_thread(leaving.child.wait, ENOUGH_SECONDS)

    say("changes of instances", found)
    assert found["failed"] == {}
    await every_answer_is_a_row(database_url, found["ids"])
