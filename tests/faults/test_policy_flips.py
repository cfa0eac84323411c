import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import asyncpg
import pytest
from e2e.flips import FLIP, lags_seconds
from e2e.load import Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, register, sql


def body_of(number: int) -> bytes:
    return PREDICT_BODIES[number % 50]


async def two_versions(stack: Stack, database_url: str) -> tuple[int, int]:
    ids = [await register(database_url, label, [stack.start_model(f"visits:{label}")]) for label in (1, 2)]
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", ids[0])
    return ids[0], ids[1]


@pytest.mark.alone
@pytest.mark.parametrize("flips", [40, pytest.param(200, marks=pytest.mark.slow)])
async def test_flips_reach_every_worker_within_100_ms_and_fail_no_call(tmp_path, database_url, flips):
    with a_stack(tmp_path, database_url) as stack:
        first, second = await two_versions(stack, database_url)
        port = stack.start_proxy(workers=2)
        load = Load()
        running = asyncio.create_task(run_load(port, VISITS, body_of, per_second=300, seconds=120, load=load))
        await asyncio.sleep(1)
        committed_at: dict[int, float] = {}
        connection = await asyncpg.connect(database_url)
        for _ in range(flips):
            generation = await connection.fetchval(FLIP, first, second, "visits")
            committed_at[generation] = time.monotonic()
            await asyncio.sleep(0.05)
        await connection.close()
        await asyncio.sleep(1)
        load.is_over = True
        await running

    lags = lags_seconds(load.answers, committed_at)
    assert load.failed == []
    assert lags[int(len(lags) * 0.99) - 1] <= 0.1, lags[-5:]
    answered_by = {(a.json["generation"], a.json["version"]) for a in load.answers}
    assert len({generation for generation, _ in answered_by}) == len(answered_by)
    assert {version for _, version in answered_by} == {"1", "2"}
    assert_no_answer_of_the_other_version(load)
    print(f"flips: p50 {lags[len(lags) // 2] * 1000:.1f} ms, p99 {lags[int(len(lags) * 0.99) - 1] * 1000:.1f} ms")


def assert_no_answer_of_the_other_version(load: Load) -> None:
    """One input has one score a version, whoever answered from which cache, but for how calls shared a batch.

    A model rounds the last digit of a float32 otherwise in a batch of another size; the versions differ in the second.
    """
    scores: dict[tuple[bytes, str], set[float]] = {}
    for answer in load.answers:
        body = answer.json
        key = (body_of(answer.number), body["version"])
        scores.setdefault(key, set()).add(round(body["prediction"]["score"], 4))
    assert all(len(values) == 1 for values in scores.values())


@pytest.mark.alone
async def test_with_listen_and_polls_cut_a_change_still_arrives_within_five_seconds(tmp_path, database_url):
    """All connections stay open but dead: their server processes are stopped before the change."""
    with a_stack(tmp_path, database_url) as stack:
        first, second = await two_versions(stack, database_url)
        port = stack.start_proxy(workers=2)
        load = Load()
        running = asyncio.create_task(run_load(port, VISITS, body_of, per_second=100, seconds=120, load=load))
        await asyncio.sleep(1)
        committed_at: dict[int, float] = {}
        with stopped(await pids_of(database_url)):
            rows = await sql(database_url, FLIP, first, second, "visits")
            committed_at[rows[0]["generation"]] = time.monotonic()
            await until_all_answer_by(load, rows[0]["generation"])
        load.is_over = True
        await running

    assert load.failed == []
    assert lags_seconds(load.answers, committed_at)[-1] <= 5


async def until_all_answer_by(load: Load, generation: int) -> None:
    """Wait until each of the last 100 answers, a second of both workers', was given by this policy or a younger one."""
    give_up = time.monotonic() + 20
    while min(answer.json["generation"] for answer in load.answers[-100:]) < generation:
        assert time.monotonic() < give_up, load.answers[-5:]
        await asyncio.sleep(0.05)


async def pids_of(database_url: str) -> list[int]:
    """Return the server processes of both workers' listening and query connections, once they have them."""
    ours = "application_name IN ('understudy-listener', 'understudy-policies') AND datname = current_database()"
    give_up = time.monotonic() + 60
    while True:
        pids = [row["pid"] for row in await sql(database_url, f"SELECT pid FROM pg_stat_activity WHERE {ours}")]
        if len(pids) == 4:
            return pids
        assert time.monotonic() < give_up, pids
        await asyncio.sleep(0.1)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
