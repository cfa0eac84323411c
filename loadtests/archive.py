"""Months of the log into files: how fast, how much memory, and what ten ``kill -9`` cost. ``make bench-archive``.

Arguments: ``--rows`` (3,000,000 over four months), ``--kills`` (10), ``--seed``.
"""

import argparse
import asyncio
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg
from worlds.archive import fill, month_ago, versions_of

from understudy.adapters.archive.folder import FolderArchive
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.prediction_log.archive_ledger import open_ledger
from understudy.adapters.postgres.prediction_log.archive_rows import open_archive_rows
from understudy.core.prediction_log.archive_plan import Step
from understudy.retention.archiver import Ages, Archiver, Progress

MONTHS = 4
QUESTION = (
    "SELECT model, version, count(*) AS calls, count(score), sum(latency_us), min(predicted_at), max(predicted_at),"
    " sum(id) FROM predictionlog GROUP BY ALL ORDER BY ALL"
)
_ROOT = Path(__file__).resolve().parents[1]
_SUMS = "SELECT count(*), count(DISTINCT id), sum(id), sum(latency_us) FROM PredictionLog"
_BEGUN = """
    SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
                   WHERE locktype = 'advisory' AND granted AND datname = current_database())
"""
_TICKS = os.sysconf("SC_CLK_TCK")


class Killed(NamedTuple):
    """What came of an archiver that was killed again and again."""

    kills: int
    runs: int
    states: tuple[str, ...]
    """Of the month that was on its way at each kill."""


def command(url: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "understudy.entrypoints.cli", *arguments],
        env={**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(_ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ask(url: str, folder: Path) -> bytes:
    """Return what ``log query`` answers."""
    asked = command(url, "log", "query", QUESTION, "--csv")
    out, err = asked.communicate(timeout=600)
    assert asked.returncode == 0, err
    assert folder.exists() or b" 0 archived" in err, err
    return out


async def kill_again_and_again(url: str, folder: Path, kills: int, dice: random.Random, longest: float) -> Killed:
    """Kill an archiver at random moments of its work, then let one finish.

    Args:
        url: Of the database.
        folder: Of the archive.
        kills: How often.
        dice: Chooses the moments.
        longest: Seconds after the beginning of its work at which it is killed at the latest.
    """
    states: list[str] = []
    runs = 0
    database = await asyncpg.connect(url, timeout=10)
    try:
        while True:
            runs += 1
            run = command(url, "db", "archive", "--to", str(folder), "--older-than", "1d", "--json")
            if len(states) == kills:
                out, err = await asyncio.to_thread(run.communicate, None, 3_600)
                assert run.returncode == 0, (out, err)
                return Killed(kills, runs, tuple(states))
            while run.poll() is None and not await database.fetchval(_BEGUN):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.005)
            await asyncio.sleep(dice.uniform(0, longest))
            if run.poll() is not None:
                run.communicate()
                return Killed(len(states), runs, tuple(states))
            run.kill()
            await asyncio.to_thread(run.communicate, None, 10)
            open_one = await database.fetchval("SELECT max(state) FROM LogArchive WHERE state <> 'archived'")
            states.append(open_one or "between months")
    finally:
        database.terminate()


async def sums_of(url: str) -> tuple[int, ...]:
    """Return figures of all rows that Postgres has."""
    database = await asyncpg.connect(url, timeout=10)
    try:
        (found,) = await database.fetch(_SUMS, timeout=600)
        return tuple(int(value or 0) for value in found)
    finally:
        database.terminate()


class Costs(NamedTuple):
    """What one uninterrupted run took."""

    rows: int
    wall_seconds: float
    export_cpu_seconds: float
    verify_cpu_seconds: float
    postgres_cpu_seconds: float
    size_bytes: int
    most_bytes: int


async def measure(url: str, root: Path, postmaster: int) -> Costs:
    """Archive in this process, and say what it cost here and in Postgres."""
    cpu = {Step.EXPORT: 0.0, Step.VERIFY: 0.0}
    last = time.process_time()

    def on_progress(done: Progress) -> None:
        nonlocal last
        cpu[done.step] += time.process_time() - last
        last = time.process_time()

    began, postgres_began = time.monotonic(), _children_seconds(postmaster)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_ledger(url, timeout_seconds=30) as ledger,
            open_archive_rows(url, timeout_seconds=30) as rows,
        ):
            archiver = Archiver(ledger, rows, FolderArchive(root), folder=Path(folder), on_progress=on_progress)
            moved = await archiver.run(time.time(), Ages(86_400, 86_400))
    wall = time.monotonic() - began
    await asyncio.sleep(1)  # the backends end, and the postmaster counts them
    return Costs(
        sum(month.rows for month in moved),
        wall,
        cpu[Step.EXPORT],
        cpu[Step.VERIFY],
        _children_seconds(postmaster) - postgres_began,
        sum(month.size_bytes for month in moved),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _children_seconds(postmaster: int) -> float:
    """Return the processor time of all processes that this one had and that ended."""
    fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


@contextmanager
def a_server() -> Iterator[EmbeddedPostgres]:
    """Start a Postgres with its own settings but for the planner's statistics and the size of its log."""
    folder = Path(tempfile.mkdtemp(prefix="us-bench-", dir="/tmp"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "pg", parameters={"max_wal_size": "4GB", "work_mem": "64MB"})
    try:
        server.start()
        yield server
    finally:
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


async def _on_server(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute(statement, timeout=600)
    finally:
        await connection.close(timeout=5)


async def run(rows: int, kills: int, seed: int) -> int:
    """Run all of it and print the table."""
    dice = random.Random(seed)
    with a_server() as server, tempfile.TemporaryDirectory(prefix="us-archive-") as place:
        folder = Path(place)
        await upgrade(server.url)
        database = await asyncpg.connect(server.url, timeout=10)
        months = [month_ago(number) for number in range(MONTHS + 1, 1, -1)]
        await fill(database, months, rows // MONTHS, await versions_of(database, ("churn", "visits")))
        await database.execute("VACUUM ANALYZE", timeout=600)
        await database.close(timeout=5)
        killed_url = server.url.rpartition("/")[0] + "/killed"
        admin_url = server.url.rpartition("/")[0] + "/postgres"
        await _on_server(admin_url, f"CREATE DATABASE killed TEMPLATE {server.url.rpartition('/')[2]}")
        before, answer_before = await sums_of(server.url), ask(server.url, folder / "none")

        costs = await measure(server.url, folder / "whole", server.pid or 0)
        _print_costs(costs)
        same = [ask(server.url, folder / "whole") == answer_before]

        # Long enough for a month to come to its end now and then.
        longest = 1.5 * costs.wall_seconds / MONTHS
        killed = await kill_again_and_again(killed_url, folder / "killed", kills, dice, longest)
        same.append(ask(killed_url, folder / "killed") == answer_before)
        left = await sums_of(killed_url)
    print(f"kill -9          {killed.kills} times in {killed.runs} runs, at: {', '.join(killed.states)} (seed {seed})")
    print(f"rows             {before[0]:,} before, {left[0]:,} left in Postgres")
    print(f"log query        {'the same answer before and after' if all(same) else f'DIFFERS: {same}'}")
    return 0 if all(same) and left[0] == 0 else 1


def _print_costs(costs: Costs) -> None:
    both = costs.export_cpu_seconds + costs.postgres_cpu_seconds
    print(
        f"archived         {costs.rows:,} rows in {costs.wall_seconds:.1f} s: {costs.rows / costs.wall_seconds:,.0f}/s"
    )
    print(f"into Parquet     {costs.rows / costs.export_cpu_seconds:,.0f} rows a second of the archiver's processor")
    print(f"with Postgres'   {costs.rows / both:,.0f} rows a second of both (fingerprints and detaching included)")
    print(f"read back        {costs.rows / costs.verify_cpu_seconds:,.0f} rows a second of the archiver's processor")
    print(f"size             {costs.size_bytes / costs.rows:.1f} bytes a row")
    print(f"memory           {costs.most_bytes / 1e6:.0f} MB at most")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    return asyncio.run(run(chosen.rows, chosen.kills, chosen.seed))


if __name__ == "__main__":
    sys.exit(main())
