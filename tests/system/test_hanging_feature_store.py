"""A feature store that takes every connection and never answers, under a real monitor and a real proxy."""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from command import CommandLine
from e2e.load import Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Process, Stack, a_stack, register, sql

from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = pytest.mark.timeout(180)
COMMAND = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
SPLIT = """
    UPDATE ServingPolicy SET challenger_version = (SELECT id FROM ModelVersion WHERE version = '3'),
                             challenger_weight = 30, guard = 'rollback'
"""


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Accept connections, read what comes and say nothing; yield the address as a store of features."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def start_monitor(stack: Stack, store: str, port: int) -> Process:
    environment = {
        "DATABASE_URL": stack.database_url,
        "UNDERSTUDY_MONITOR_TICK_SECONDS": "0.5",
        "UNDERSTUDY_MONITOR_METRICS_PORT": str(port),
        "UNDERSTUDY_FEATURE_REDIS_URL": store,
    }
    stack.processes["monitor"] = Process("monitor", COMMAND, stack.folder, environment)
    return stack.processes["monitor"]


def metrics_of(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def test_a_store_that_never_answers_delays_no_caller_no_rollback_and_no_other_duty_and_is_said(
    tmp_path, database_url, understudy: CommandLine
):
    port = free_port()
    async with silent_server() as store:
        with a_stack(tmp_path, database_url) as stack:
            champion = await register(database_url, 1, [stack.start_model("visits:1")])
            await register(database_url, 3, [stack.start_model("visits:3,error_percent=100", name="bad")])
            await sql(
                database_url,
                "INSERT INTO ServingPolicy (model_name, champion_version, input_sample_percent)"
                " VALUES ('visits', $1, 100)",
                champion,
            )
            stack.start_proxy(feature_redis_url=store)
            monitor = start_monitor(stack, store, port)
            load = Load()
            calls = run_load(
                stack.proxy_port,
                VISITS,
                lambda number: PREDICT_BODIES[number % len(PREDICT_BODIES)],
                per_second=40,
                seconds=150,
                load=load,
            )
            calling = asyncio.create_task(calls)

            async def is_unread() -> bool:
                with suppress(OSError):  # it has not begun to listen
                    found = await asyncio.to_thread(metrics_of, port)
                    return found.get('feature_skew_calls_total{outcome="unread"}', 0.0) > 100
                return False

            async def is_taken_back() -> bool:
                (row,) = await sql(database_url, "SELECT challenger_weight FROM ServingPolicy")
                return bool(row["challenger_weight"] == 0)

            await until(lambda: asyncio.sleep(0, len(load.answers) > 0), 30)
            await until(is_unread, 60)
            began = time.monotonic()
            await sql(database_url, SPLIT)
            await until(is_taken_back, 60)
            taken_back_after = time.monotonic() - began
            found = await asyncio.to_thread(metrics_of, port)
            shown = await understudy.beside("drift", "skew", "visits")
            load.is_over = True
            await calling
            began = time.monotonic()
            monitor.stop()
            stopped_after = time.monotonic() - began
            lines = monitor.log.read_text().count("skew.not_compared")

    jobs = {name: value for name, value in found.items() if name.startswith("monitor_tick_duration_seconds_sum")}
    ticks = found['monitor_tick_duration_seconds_count{job="skew"}']
    late = load.percentile_seconds(99)
    print(f"taken back after {taken_back_after:.1f} s, stopped after {stopped_after:.1f} s, p99 {1_000 * late:.0f} ms")
    assert load.failed == []
    assert late < 1.0
    assert not [name for name, value in found.items() if name.startswith("monitor_failures_total{") and value]
    assert jobs['monitor_tick_duration_seconds_sum{job="skew"}'] < 0.5 * ticks
    assert found['feature_skew_calls_total{outcome="compared"}'] == 0
    assert 0 < lines <= ticks + 1
    assert taken_back_after < 45
    assert stopped_after < 10
    assert "No call was compared with a feature store." in shown.out
