"""What a run of ``understudy entity forget`` leaves on the machine that it ran on, however it ends."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from worlds.erasure import ENTITY, log_of_customers

COMMAND = ("entity", "forget", "all", ENTITY, "--yes", "--reason", "request 118")

WAITS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'understudy-erasure' AND query LIKE '%writers_of_rows%'
"""
HOLD = "LOCK TABLE PredictionLog IN ROW EXCLUSIVE MODE"


@pytest.fixture
def environment(database_url: str, tmp_path: Path) -> Mapping[str, str]:
    return {**os.environ, "DATABASE_URL": database_url, "TMPDIR": str(tmp_path)}


@asynccontextmanager
async def a_writer(database_url: str) -> AsyncIterator[None]:
    """Keep a transaction open that may have rows: an erasure waits for its end, a minute at most."""
    session = await asyncpg.connect(database_url, timeout=10)
    try:
        await session.execute(f"BEGIN; {HOLD}")
        yield
    finally:
        session.terminate()


async def started(
    database: asyncpg.Connection, environment: Mapping[str, str], number: int = 1
) -> asyncio.subprocess.Process:
    """Run the command until it is the n-th that waits for a writer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "understudy.entrypoints.cli", *COMMAND, env=environment, stderr=asyncio.subprocess.PIPE
    )
    while await database.fetchval(WAITS) < number:
        assert process.returncode is None, await process.communicate()
        await asyncio.sleep(0.05)
    return process


def folders(place: Path) -> list[Path]:
    return list(place.glob("understudy-erasure-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_run_that_is_stopped_takes_its_files_with_it(database, database_url, *, environment, tmp_path, number):
    await log_of_customers(database)
    async with a_writer(database_url):
        process = await started(database, environment)
        there = folders(tmp_path)
        process.send_signal(number)
        await process.communicate()

    assert len(there) == 1
    assert (process.returncode, folders(tmp_path)) == (130, [])


async def test_the_next_run_deletes_what_a_killed_one_left_and_nothing_else(
    database, database_url, *, environment, tmp_path, understudy, monkeypatch
):
    await log_of_customers(database)
    async with a_writer(database_url):
        killed, beside = [await started(database, environment, number) for number in (1, 2)]
        of_both = folders(tmp_path)
        killed.kill()
        await killed.communicate()
        for folder in of_both:
            (folder / "fetched.parquet").write_text(ENTITY)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        (tmp_path / "understudy-erasure-file").write_text("of another program")
        await understudy.beside("entity", "forget", "all", ENTITY, "--dry-run")
        of_one = [len(list(folder.iterdir())) for folder in folders(tmp_path) if folder.is_dir()]
        beside.terminate()
        await beside.communicate()

    assert len(of_both) == 2
    assert of_one == [1]
    assert folders(tmp_path) == [tmp_path / "understudy-erasure-file"]
