"""The question that an A/B report reads most rows for, over a large lake. ``make bench-lake-report ROWS=100000000``.

Arguments: ``--rows`` (10,000,000), ``--entities`` (2,000,000), ``--keep FOLDER`` to make the table once and ask again.
Rows are made by Arrow, file by file, and committed as files of proxies are; the question has its own deadline, which
is ten minutes here, and its time and memory are told.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from worlds.lake import A_VERSION, Lake

from loadtests.lake import peak_mb
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.lake.iceberg_table import NAME
from understudy.adapters.lake.parquet_rows import OPTIONS, SCHEMA
from understudy.adapters.lake.reading.experiment_log import LakeExperimentLog
from understudy.adapters.lake.reading.question import Lake as Questions
from understudy.adapters.lake.reading.snapshot import LakeReader
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.adapters.postgres.experiments.outcome_events import PostgresOutcomeEvents
from understudy.core.prediction_log.lake_rewrites import rewritten_key
from understudy.ports.experiments.experiment_log import EntityQuery

FILE_ROWS = 1_000_000
FILES_AT_ONCE = 10
DAY = 86_400.0
DEADLINE_SECONDS = 600.0


def rows_of(count: int, first: int, at: float, entities: int) -> pa.Table:
    """Return rows of one hour, as files of the lake have them."""
    dice = np.random.default_rng(first)
    scores = pa.array(dice.integers(10_000_000, size=count))
    made = {
        "prediction_id": _ids(np.arange(first, first + count)),
        "entity_id": _joined("customer-", pa.array(dice.integers(entities, size=count)).cast(pa.string()), ""),
        "prediction": _joined('{"score":0.', pc.utf8_lpad(scores.cast(pa.string()), 7, "0"), "}"),
        "predicted_at": pa.array(((at + np.arange(count) * (3_500.0 / count)) * 1e6).astype("int64")),
        "score": pc.divide(scores.cast(pa.float64()), 1e7),
        **{name: pa.array(dice.integers(1, 100, size=count)) for name in ("latency_us", "latency_ms", "bucket")},
    }
    same = {
        "input_hash": "ab" * 32, "model": "visits", "version": "1", "role": "champion", "reason": "bucket",
        "status": "ok", "model_version_id": 1, "assigned_version_id": 1, "policy_generation": 3, "cache_hit": False,
    }  # fmt: skip
    columns = [
        made[field.name].cast(field.type)
        if field.name in made
        else pa.repeat(pa.scalar(same.get(field.name), field.type), count)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def _ids(numbers: np.ndarray) -> Any:
    """Return UUIDs that end with numbers."""
    text = np.tile(np.frombuffer(b"00000000-0000-0000-0000-000000000000", np.uint8), (len(numbers), 1))
    digits = (numbers[:, None] >> np.arange(44, -4, -4)) & 15
    text[:, 24:] = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), len(numbers), [None, pa.py_buffer(text)]).cast(
        pa.string()
    )


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")


async def fill(lake: Lake, rows: int, entities: int) -> None:
    """Make the table: a file for each hour, the newest last; one that was stopped has the rows so far."""
    began = time.time() // 3_600 * 3_600 - (rows // FILE_ROWS + 2) * 3_600
    path, table = lake.folder / "made.parquet", lake.table()
    table.load()
    keys = list[str]()
    for place in range(0, rows, FILE_ROWS):
        at = began + place // FILE_ROWS * 3_600
        parquet.write_table(rows_of(min(FILE_ROWS, rows - place), place, at, entities), path, **OPTIONS)
        hour = time.strftime("%Y-%m-%d-%H", time.gmtime(at))
        keys.append(rewritten_key("visits", hour, place, "made", 0))
        await lake.store.put(keys[-1], path)
        if len(keys) == FILES_AT_ONCE or place + FILE_ROWS >= rows:
            table.load().add_files([f"{lake.location}/{key}" for key in keys])
            keys.clear()
            print(f"{place + FILE_ROWS:,} rows", flush=True)
    path.unlink()


async def measure(folder: Path, rows: int, entities: int) -> str:
    """Return the figures."""
    with EmbeddedPostgres(folder / "pg") as server:
        await upgrade(server.url)
        database = await asyncpg.connect(server.url)
        lake = Lake(server.url, folder)
        if not await database.fetchval("SELECT count(*) FROM iceberg_tables"):
            await database.fetchval(A_VERSION, "visits", "1")
            await fill(lake, rows, entities)
        await database.close()
        reader = LakeReader(server.url, lake.location, endpoint=None, timeout_seconds=60)
        outcomes = PostgresOutcomeEvents(server.url, timeout_seconds=DEADLINE_SECONDS)
        log = LakeExperimentLog(
            Questions(reader, timeout_seconds=DEADLINE_SECONDS),
            PostgresExperimentLog(server.url, timeout_seconds=DEADLINE_SECONDS),
            outcomes,
        )
        files = [task.file for task in lake.table().load().scan().plan_files()]
        rows = sum(file.record_count for file in files)
        now = time.time()
        since = now - max(1_000, len(files) + 10) * 3_600
        asked = EntityQuery("visits", "converted", 1, None, {3: 0}, since, now, 60.0, is_share=True)
        peak_mb(begins=True)
        began = time.perf_counter()
        found = await log.entities(asked)
        seconds = time.perf_counter() - began
        stored = sum(path.stat().st_size for path in (folder / "lake").rglob("*.parquet"))
        lake.close()
    return (
        f"{rows:,} rows, {stored / rows:.0f} bytes a row, {found.total:,} entities: {seconds:.1f} s, "
        f"{peak_mb():,.0f} MB at most ({NAME[1]})"
    )


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="us-lake-report-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        print(asyncio.run(measure(folder, given.rows, given.entities)))
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
