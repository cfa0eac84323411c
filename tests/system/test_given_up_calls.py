"""Deadlines and callers who give up, over gRPC and REST: an answer in time, and a row for each call."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
from e2e.load import Connection
from e2e.stack import Stack, a_stack, register, sql
from e2e.test_grpc_calls import INFER as MODEL_INFER
from e2e.test_grpc_calls import infer
from system.test_dialect_split import INFER, sum_of_metric, tensor

from loadtests.watched_proxy import TASKS_FILE
from understudy.adapters.embedded.loopback_ports import free_port

SLOW = "visits:1,latency_ms=500"
DEADLINE_MS, BAR_MS = 50, 80
TRIES = 20
GIVEN_UP = 1_000
AT_ONCE = 50
SETTLED_TASKS = 4
"""Tasks that come and go: of the log, of probes."""


async def rows_by_status(database_url: str, count: int) -> dict[str, int]:
    """Return how many rows of the log have each status, once there are so many in all."""
    query = "SELECT status, count(*)::int AS n FROM PredictionLog GROUP BY status"
    give_up = time.monotonic() + 90
    while True:
        found = {row["status"]: row["n"] for row in await sql(database_url, query)}
        if sum(found.values()) >= count:
            return found
        assert time.monotonic() < give_up, f"{found}, of {count}"
        await asyncio.sleep(0.3)


async def a_slow_proxy(stack: Stack, database_url: str, model: int, **settings: Any) -> tuple[int, int]:
    """Start a proxy whose model takes half a second; return its ports of HTTP and of gRPC."""
    version = await register(database_url, 1, [model], timeout_ms=4_000)
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    grpc_port = free_port()
    port = await asyncio.to_thread(lambda: stack.start_proxy(grpc_port=grpc_port, **settings))
    return port, grpc_port


@pytest.mark.alone
async def test_a_deadline_of_50_ms_ends_a_call_of_a_slow_model_in_time_by_both_transports(
    tmp_path: Path, database_url: str, model_port: Callable[[str], int]
):
    body = orjson.dumps(tensor(1))
    took: dict[str, list[float]] = {"REST": [], "gRPC": []}
    with a_stack(tmp_path, database_url) as stack:
        port, grpc_port = await a_slow_proxy(stack, database_url, model_port(SLOW), memory_cache_bytes=0)
        connection = Connection("127.0.0.1", port)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            call: Any = channel.unary_unary(MODEL_INFER)
            await call(infer(), timeout=30)
            for _ in range(TRIES):
                answer = await connection.post(INFER, body, f"x-request-timeout-ms: {DEADLINE_MS}\r\n")
                took["REST"].append(answer.seconds)
                assert answer.status == 504
                began = time.monotonic()
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(infer(), metadata=[("x-request-timeout-ms", str(DEADLINE_MS))])
                took["gRPC"].append(time.monotonic() - began)
                assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        connection.close()
        found = await rows_by_status(database_url, 1 + 2 * TRIES)

    median = {way: 1000 * sorted(seconds)[TRIES // 2] for way, seconds in took.items()}
    print(f"\ndeadline {DEADLINE_MS} ms, median ms until the refusal (bar {BAR_MS}): {median}")
    assert found == {"ok": 1, "timeout": 2 * TRIES}
    # The usual one: a single one may meet what else this machine does.
    assert max(median.values()) <= BAR_MS


async def until_routed(metrics_port: int, calls: int) -> None:
    """Wait until so many calls by gRPC were given to the story: from then on each has its row."""
    async with asyncio.timeout(60):
        while await asyncio.to_thread(sum_of_metric, metrics_port, 'dialect="oip_grpc"') < calls:
            await asyncio.sleep(0.02)


def left_open(pid: int, file: Path) -> tuple[int, int]:
    """Return how many tasks the proxy says that it has, and its descriptors."""
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    give_up = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return int(file.read_text()), len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_a_thousand_calls_that_are_given_up_are_a_thousand_rows_and_leave_nothing_behind(
    tmp_path: Path, database_url: str, model_port: Callable[[str], int]
):
    tasks_file = tmp_path / "tasks"
    metrics_port = free_port()
    watched = {"module": "loadtests.watched_proxy", "environment": {TASKS_FILE: str(tasks_file)}}
    with a_stack(tmp_path, database_url) as stack:
        _, grpc_port = await a_slow_proxy(
            stack, database_url, model_port(SLOW), memory_cache_bytes=0, metrics_port=metrics_port, **watched
        )
        pid = stack.processes["proxy"].pid
        async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            call: Any = channel.unary_unary(MODEL_INFER)
            await asyncio.gather(*(call(infer(), timeout=30) for _ in range(AT_ONCE)))
            before = await asyncio.to_thread(left_open, pid, tasks_file)
            for number in range(2, 2 + GIVEN_UP // AT_ONCE):
                asked = [call(infer(), timeout=30) for _ in range(AT_ONCE)]
                await until_routed(metrics_port, number * AT_ONCE)
                for one in asked:
                    one.cancel()
            found = await rows_by_status(database_url, AT_ONCE + GIVEN_UP)
            async with asyncio.timeout(30):
                while (after := await asyncio.to_thread(left_open, pid, tasks_file))[0] > before[0] + SETTLED_TASKS:
                    await asyncio.sleep(0.3)

    print(f"\n{GIVEN_UP:,} calls given up: rows {found}; tasks and descriptors {before} before, {after} after")
    assert sum(found.values()) == AT_ONCE + GIVEN_UP
    assert after[1] <= before[1] + SETTLED_TASKS
