"""The promise of the lake: what was appended is in the table, once, though shippers and committers are killed."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from traffic import chance
from worlds.lake import A_VERSION, Lake, ship_both

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]
TESTS = Path(__file__).parent.parent
KILLS = 8
BEGUN_BYTES = 2_000


class Processes:
    """A worker and a committer; each that is killed is replaced."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder = folder
        self._dsn = dsn
        self._started = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str) -> None:
        self._started += 1
        arguments = [kind, str(self._folder), self._dsn, str(self._started * 1_000_000)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        with (
            (self._folder / f"promised-{self._started}").open("wb") as promised,
            (self._folder / f"errors-{self._started}").open("wb") as errors,
        ):
            script = [sys.executable, str(TESTS / "failing" / "lake_worker.py"), *arguments]
            self.running[kind] = subprocess.Popen(script, stdout=promised, stderr=errors, env=environment)

    def kill(self, kind: str) -> None:
        victim = self.running.pop(kind)
        assert victim.poll() is None, f"a {kind} ended by itself"
        victim.kill()
        victim.wait(10)

    def promised(self) -> list[str]:
        """Return the ids whose append returned; a line that a kill cut off is no promise."""
        texts = [path.read_text() for path in self._folder.glob("promised-*")]
        return [line for text in texts for line in text[: text.rfind("\n") + 1].splitlines()]


@contextmanager
def processes(folder: Path, dsn: str) -> Iterator[Processes]:
    started = Processes(folder, dsn)
    try:
        for kind in ("worker", "committer"):
            started.start(kind)
        yield started
    finally:
        for process in started.running.values():
            process.kill()
            process.wait(10)


async def test_every_row_is_in_the_table_once_though_shippers_and_committers_are_killed(
    database, database_url, tmp_path
):
    seed = chance.seed()
    dice = random.Random(seed)
    assert await database.fetchval(A_VERSION, "visits", "1") == 1
    with processes(tmp_path, database_url) as running:
        for _ in range(KILLS):
            # Until the one that is next is in the middle of its work: after its imports, at a random point.
            committed = await database.fetchval("SELECT count(*) FROM LakeFile WHERE committed_at IS NOT NULL")
            deadline = time.monotonic() + 60
            while (
                await database.fetchval("SELECT count(*) FROM LakeFile WHERE committed_at IS NOT NULL") <= committed
                and time.monotonic() < deadline
            ):
                await asyncio.sleep(0.05)
            await asyncio.sleep(dice.uniform(0, 0.3))
            kind = dice.choice(("worker", "committer"))
            await asyncio.to_thread(running.kill, kind)
            running.start(kind)
        for kind in tuple(running.running):
            running.kill(kind)
        promised = running.promised()
    lake = Lake(database_url, tmp_path)
    spool = lake.spool()
    while spool.own.unshipped_bytes or len(list((tmp_path / "spool").iterdir())) > 1:
        await ship_both(lake, spool)
    await lake.commit()

    counted = lake.ids()
    logged = Counter(str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog"))
    assert len(promised) > 1_000, seed
    assert [one for one in promised if counted[one] != 1] == [], seed
    assert counted == logged, seed
    spool.close()
    lake.close()
