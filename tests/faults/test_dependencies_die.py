"""What may die under load without the caller noticing, and without a row lost or doubled."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.load import Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, get, logged_ids, register, sql

from understudy.adapters.embedded_postgres import EmbeddedPostgres
from understudy.adapters.embedded_valkey import EmbeddedValkey
from understudy.adapters.migrations import upgrade


def body_of(number: int) -> bytes:
    return PREDICT_BODIES[number % len(PREDICT_BODIES)]


@pytest.fixture
def own_postgres(short_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, durable as in production, that the test may kill."""
    server = EmbeddedPostgres(short_path / "pg")
    server.start()
    yield server
    server.remove()


async def serve_visits(stack: Stack, database_url: str, **columns: Any) -> int:
    """Migrate, register version 1 with one model server and make it the champion; returns its id."""
    await upgrade(database_url)
    version_id = await register(database_url, 1, [stack.start_model("visits:1")], **columns)
    await sql(
        database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version_id
    )
    return version_id


def assert_each_answer_is_logged_once(load: Load, logged: list[str]) -> None:
    answered = load.prediction_ids()
    counts = Counter(logged)
    assert len(set(answered)) == len(answered)
    assert [identifier for identifier in answered if counts[identifier] == 0] == []
    assert [identifier for identifier, count in counts.items() if count > 1] == []


async def test_killed_workers_and_a_killed_postgres_lose_and_double_no_answered_row(short_path, own_postgres):
    with a_stack(short_path, own_postgres.url) as stack:
        await serve_visits(stack, own_postgres.url)
        port = stack.start_proxy(workers=2)
        load = Load()
        running = asyncio.create_task(run_load(port, VISITS, body_of, per_second=200, seconds=22, load=load))
        for step in range(5):
            await asyncio.sleep(2)
            os.kill(stack.processes["proxy"].children()[0], signal.SIGKILL)
            if step < 3:
                await asyncio.sleep(0.7)
                await asyncio.to_thread(own_postgres.kill)
                await asyncio.sleep(0.8)
                await asyncio.to_thread(own_postgres.start)
        await running
        logged = await logged_ids(own_postgres.url, set(load.prediction_ids()))

    assert len(load.prediction_ids()) > 3_500
    assert {answer.status for answer in load.failed} <= {0}
    assert_each_answer_is_logged_once(load, logged)


async def test_postgres_stopped_under_load_fails_nobody_and_a_restarted_proxy_serves_its_snapshot(
    short_path, own_postgres
):
    with a_stack(short_path, own_postgres.url) as stack:
        await serve_visits(stack, own_postgres.url)
        port = stack.start_proxy()
        await asyncio.sleep(1.5)
        load = Load()
        running = asyncio.create_task(run_load(port, VISITS, body_of, per_second=150, seconds=8, load=load))
        await asyncio.sleep(1)
        await asyncio.to_thread(own_postgres.stop, "immediate")
        await running

        stack.processes.pop("proxy").stop()
        restarted = time.monotonic()
        port = stack.start_proxy(port=port)
        ready_seconds = time.monotonic() - restarted
        status, health = get(f"http://127.0.0.1:{port}/readyz")
        again = await run_load(port, VISITS, body_of, per_second=100, seconds=2)
        await asyncio.to_thread(own_postgres.start)
        both = Load(load.answers + again.answers)
        logged = await logged_ids(own_postgres.url, set(both.prediction_ids()))

    assert load.failed == []
    assert (status, health["status"]) == (200, "degraded")
    assert ready_seconds < 10
    assert again.failed == []
    assert_each_answer_is_logged_once(both, logged)


@pytest.mark.parametrize("fault", ["stopped", "frozen"])
async def test_redis_gone_under_load_fails_nobody(tmp_path, database_url, fault):
    with EmbeddedValkey() as valkey, a_stack(tmp_path, database_url, valkey.url) as stack:
        await serve_visits(stack, database_url)
        port = stack.start_proxy(memory_cache_bytes=0)
        load = Load()
        running = asyncio.create_task(run_load(port, VISITS, body_of, per_second=150, seconds=7, load=load))
        await asyncio.sleep(1.5)
        assert valkey.pid is not None
        pid = valkey.pid
        if fault == "stopped":
            valkey.stop()
        else:
            os.kill(pid, signal.SIGSTOP)
        await running
        if fault == "frozen":
            os.kill(pid, signal.SIGCONT)
        logged = await logged_ids(database_url, set(load.prediction_ids()))

    assert load.failed == []
    assert_each_answer_is_logged_once(load, logged)


async def test_a_hanging_shadow_costs_the_champion_nothing_and_its_rows_say_timeout(tmp_path, database_url):
    with a_stack(tmp_path, database_url) as stack:
        await serve_visits(stack, database_url, cache_ttl_seconds=0)
        shadow = await register(database_url, 4, [stack.start_model("visits:4,hang")])
        port = stack.start_proxy(shadow_limit=32)
        without, with_shadow = Load(), Load()
        await run_load(port, VISITS, body_of, per_second=150, seconds=1)
        for _ in range(3):
            # Alternating, because the machine's own noise is larger than what is looked for.
            await sql(database_url, "UPDATE ServingPolicy SET shadow_version = NULL WHERE model_name = 'visits'")
            await asyncio.sleep(0.3)
            await run_load(port, VISITS, body_of, per_second=150, seconds=3, load=without)
            await sql(database_url, "UPDATE ServingPolicy SET shadow_version = $1 WHERE model_name = 'visits'", shadow)
            await asyncio.sleep(0.3)
            await run_load(port, VISITS, body_of, per_second=150, seconds=3, load=with_shadow)
        await logged_ids(database_url, set(with_shadow.prediction_ids()))
        await asyncio.sleep(1)
        statuses = await sql(
            database_url, "SELECT status, count(*) AS n FROM PredictionLog WHERE role = 'shadow' GROUP BY status"
        )

    ratio = with_shadow.percentile_seconds(99) / without.percentile_seconds(99)
    print(f"hanging shadow: champion p99 with / without = {ratio:.2f}")
    assert without.failed == with_shadow.failed == []
    assert {row["status"] for row in statuses} == {"timeout"}
    # 32 at a time, 0.5 s each, for 9 s and the last ones' time-out: never more than the set's bound lets through.
    assert 0 < sum(row["n"] for row in statuses) <= 32 * (9 / 0.5 + 3)
    # The bound of 1.1 is measured by `make bench`; here is only what noise on two shared cores cannot explain.
    assert ratio < 3
