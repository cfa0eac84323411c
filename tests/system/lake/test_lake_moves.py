"""The log moves from Postgres to the lake and back, by processes that follow each other, killed ones among them."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from traffic.spooled_rows import a_prediction_id
from worlds.lake import A_VERSION, Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TESTS = Path(__file__).parent.parent.parent
ROWS = 300
# How each process logs, and whether it is killed.
STORY = (
    ("postgres", False), ("postgres+lake", True), ("lake", False), ("lake", True), ("postgres+lake", False),
    ("postgres", False),
)  # fmt: skip


class Worker:
    """One process after the other, on the same state folder."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.promised: list[set[str]] = []

    def command(self, mode: str) -> list[str]:
        first = str(len(self.promised) * 1_000_000)
        script = str(TESTS / "failing" / "log_worker_of_mode.py")
        return [sys.executable, script, mode, str(self._lake.folder), self._lake.url, self._lake.place, first]

    def run(self, mode: str, *, is_killed: bool) -> str:
        """Run a process until it has promised enough rows; return what it said if it ended by itself."""
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        promised, errors = (self._lake.folder / f"{kind}-{len(self.promised)}" for kind in ("promised", "errors"))
        with promised.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(self.command(mode), stdout=out, stderr=err, env=environment)
        deadline = time.monotonic() + 300
        while process.poll() is None and promised.read_bytes().count(b"\n") < ROWS:
            assert time.monotonic() < deadline, errors.read_text()
            time.sleep(0.05)
        (process.kill if is_killed else process.terminate)()
        process.wait(240)
        text = promised.read_text()
        self.promised.append(set(text[: text.rfind("\n") + 1].splitlines()))
        return errors.read_text() if process.returncode not in (0, -9) else ""


async def test_no_id_is_missing_and_none_is_twice_from_postgres_to_the_lake_and_back(database, database_url, tmp_path):
    assert await database.fetchval(A_VERSION, "visits", "1") == 1
    lake = Lake(database_url, tmp_path)
    worker = Worker(lake)
    for mode, is_killed in STORY:
        assert worker.run(mode, is_killed=is_killed) == ""
        if (mode, is_killed) == ("lake", True):
            refusal = worker.run("postgres", is_killed=False)
            assert "may have rows for the lake alone" in refusal
            worker.promised.pop()
    await lake.commit()

    in_lake = lake.ids()
    rows = await database.fetch("SELECT prediction_id, inputs IS NOT NULL AS has_inputs FROM PredictionLog")
    in_postgres = Counter(str(row["prediction_id"]) for row in rows)
    sampled = {str(row["prediction_id"]) for row in rows if row["has_inputs"]}
    assert max(in_lake.values()) == 1
    assert max(in_postgres.values()) == 1
    for (mode, is_killed), promised in zip(STORY, worker.promised, strict=True):
        assert len(promised) >= ROWS
        assert promised <= set(in_lake) | set(in_postgres)
        # What a killed one left in the spool goes where the next one's setting says.
        if mode != "postgres" and not is_killed:
            assert promised <= set(in_lake)
        if mode != "lake" and not is_killed:
            assert promised <= set(in_postgres)
    alone = set().union(
        *(promised for (mode, _), promised in zip(STORY, worker.promised, strict=True) if mode == "lake")
    )
    assert {one for one in alone if one in in_postgres} <= sampled | _left_by_killed(worker)
    calls = await database.fetchval("SELECT sum(calls) FROM PredictionWindow")
    assert calls == len(set(in_lake) | set(in_postgres)), "windows count all rows, wherever they are"
    assert a_prediction_id(0) in in_postgres
    lake.close()


def _left_by_killed(worker: Worker) -> set[str]:
    """Return rows of processes that were killed, which the next one may ship to more places."""
    return set().union(*(ids for (_, killed), ids in zip(STORY, worker.promised, strict=True) if killed))
