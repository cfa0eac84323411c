"""What a run of ``understudy entity forget`` leaves on the machine that it ran on, however it ends."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pytest
from erasure_world import ENTITY, log_of_customers

COMMAND = ("entity", "forget", "all", ENTITY, "--yes", "--reason", "request 118")


@pytest.fixture
def environment(database_url: str, tmp_path: Path) -> Mapping[str, str]:
    return {**os.environ, "DATABASE_URL": database_url, "TMPDIR": str(tmp_path)}


async def started(
    database: asyncpg.Connection, environment: Mapping[str, str], number: int = 1
) -> asyncio.subprocess.Process:
    """Run the command until it is the n-th that waits for the archive's lock, which this session has."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "understudy.entrypoints.cli", *COMMAND, env=environment, stderr=asyncio.subprocess.PIPE
    )
    waits = "SELECT count(*) FROM pg_locks WHERE relation = 'archivestatus'::regclass AND NOT granted"
    while await database.fetchval(waits) < number:
        assert process.returncode is None, await process.communicate()
        await asyncio.sleep(0.05)
    return process


def folders(place: Path) -> list[Path]:
    return list(place.glob("understudy-erasure-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_run_that_is_stopped_takes_its_files_with_it(database, environment, tmp_path, number):
    await log_of_customers(database)
    async with database.transaction():
        await database.execute("LOCK TABLE ArchiveStatus IN SHARE UPDATE EXCLUSIVE MODE")
        process = await started(database, environment)
        there = folders(tmp_path)
        process.send_signal(number)
        await process.communicate()

    assert len(there) == 1
    assert (process.returncode, folders(tmp_path)) == (130, [])


async def test_the_next_run_deletes_what_a_killed_one_left_and_nothing_else(
    database, environment, tmp_path, understudy, monkeypatch
):
    await log_of_customers(database)
    async with database.transaction():
        await database.execute("LOCK TABLE ArchiveStatus IN SHARE UPDATE EXCLUSIVE MODE")
        killed, beside = [await started(database, environment, number) for number in (1, 2)]
        of_both = folders(tmp_path)
        killed.kill()
        await killed.communicate()
        for folder in of_both:
            (folder / "fetched.parquet").write_text(ENTITY)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        (tmp_path / "understudy-erasure-file").write_text("of another program")
        await understudy.beside("entity", "forget", "all", ENTITY, "--dry-run")
        of_one = folders(tmp_path)
        beside.terminate()
        await beside.communicate()

    assert len(of_both) == 2
    assert sorted(len(list(folder.iterdir())) for folder in of_one if folder.is_dir()) == [1]
    assert folders(tmp_path) == [tmp_path / "understudy-erasure-file"]
