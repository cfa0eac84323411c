"""An A/B report over a large lake. ``make bench-lake-report LAKE_REPORT_ROWS=100000000``.

Arguments: ``--rows`` (10,000,000), ``--entities`` (2,000,000), ``--outcomes`` (100,000), ``--keep FOLDER`` to make the
table once and ask again. Rows are made by Arrow, file by file, and committed as files of proxies are. Half of the
outcomes name an entity and half a call. A report asks for its entities with their mean scores, and on demand for
quantiles; each question's seconds, processor seconds and memory are told. Its deadline is ten minutes here.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from worlds.lake import A_VERSION, Lake

from loadtests.lake import peak_mb
from loadtests.machine import cpu_seconds
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
from understudy.ports.experiments.experiment_log import EntityQuery, Observed

FILE_ROWS = 1_000_000
FILES_AT_ONCE = 10
DAY = 86_400.0
DEADLINE_SECONDS = 600.0
OUTCOMES = """
    INSERT INTO OutcomeEvent (event_id, model_name, name, entity_id, prediction_id, value, occurred_at)
    SELECT 'event-' || n, 'visits', 'converted', CASE WHEN n % 2 = 0 THEN entity END,
           CASE WHEN n % 2 = 1 THEN prediction::uuid END, 1, at + interval '1 hour'
    FROM unnest($1::text[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS told (entity, prediction, at, n)
"""
TOLD_COLUMNS = ("entity_id", "prediction_id", "predicted_at")


def rows_of(count: int, first: int, at: float, entities: int) -> pa.Table:
    """Return rows of one hour, as files of the lake have them."""
    dice = np.random.default_rng(first)
    scores = pa.array(dice.integers(10_000_000, size=count))
    customers = dice.integers(entities, size=count)
    is_b = pa.array(customers % 5 == 0)
    made = {
        "prediction_id": _ids(dice, count, at),
        "entity_id": _joined("customer-", pa.array(customers).cast(pa.string()), ""),
        "prediction": _joined('{"score":0.', pc.utf8_lpad(scores.cast(pa.string()), 7, "0"), "}"),
        "predicted_at": pa.array(((at + np.arange(count) * (3_500.0 / count)) * 1e6).astype("int64")),
        "score": pc.divide(scores.cast(pa.float64()), 1e7),
        "version": pc.if_else(is_b, "2", "1"),
        "role": pc.if_else(is_b, "challenger", "champion"),
        **{name: pc.if_else(is_b, 2, 1) for name in ("model_version_id", "assigned_version_id")},
        **{name: pa.array(dice.integers(1, 100, size=count)) for name in ("latency_us", "latency_ms", "bucket")},
    }
    same = {
        "input_hash": "ab" * 32, "model": "visits", "reason": "bucket", "status": "ok", "policy_generation": 3,
        "cache_hit": False,
    }  # fmt: skip
    columns = [
        made[field.name].cast(field.type)
        if field.name in made
        else pa.repeat(pa.scalar(same.get(field.name), field.type), count)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def _ids(dice: np.random.Generator, count: int, at: float) -> Any:
    """Return UUIDs of version 7, of one hour and random after that."""
    beginning = np.frombuffer(f"{int(at * 1_000):012x}7".encode(), np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[dice.integers(16, size=(count, 32), dtype=np.uint8)]
    digits[:, : len(beginning)] = beginning
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, [place for place in range(36) if place not in (8, 13, 18, 23)]] = digits
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), count, [None, pa.py_buffer(text)]).cast(pa.string())


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")


async def fill(lake: Lake, rows: int, entities: int, outcomes: int) -> list[Any]:
    """Make the table, a file for each hour, the newest last; return which calls outcomes are told of."""
    began = time.time() // 3_600 * 3_600 - (rows // FILE_ROWS + 2) * 3_600
    path, table = lake.folder / "made.parquet", lake.table()
    table.load()
    keys, told = list[str](), list[Any]()
    for place in range(0, rows, FILE_ROWS):
        at = began + place // FILE_ROWS * 3_600
        made = rows_of(min(FILE_ROWS, rows - place), place, at, entities)
        of_calls = made.select(TOLD_COLUMNS).slice(0, outcomes * FILE_ROWS // rows)
        told.append([of_calls[name].to_pylist() for name in TOLD_COLUMNS])  # a slice would keep the whole hour
        parquet.write_table(made, path, **OPTIONS)
        hour = time.strftime("%Y-%m-%d-%H", time.gmtime(at))
        keys.append(rewritten_key("visits", hour, place, "made", 0))
        await lake.store.put(keys[-1], path)
        if len(keys) == FILES_AT_ONCE or place + FILE_ROWS >= rows:
            table.load().add_files([f"{lake.location}/{key}" for key in keys])
            keys.clear()
            print(f"{place + FILE_ROWS:,} rows", flush=True)
    path.unlink()
    return [[value for hour in told for value in hour[place]] for place in range(len(TOLD_COLUMNS))]


async def asked(name: str, question: Awaitable[Any]) -> Any:
    """Await a question, and print what it took."""
    peak_mb(begins=True)
    before, began = cpu_seconds([os.getpid()]), time.perf_counter()
    found = await question
    seconds, processor = time.perf_counter() - began, cpu_seconds([os.getpid()]) - before
    print(f"{name}: {seconds:.1f} s, {processor:.1f} s of processor time, {peak_mb():,.0f} MB at most", flush=True)
    return found


async def measure(folder: Path, rows: int, entities: int, outcomes: int) -> str:
    """Return how large the table is; prints the figures."""
    with EmbeddedPostgres(folder / "pg") as server:
        await upgrade(server.url)
        database = await asyncpg.connect(server.url)
        lake = Lake(server.url, folder)
        if not await database.fetchval("SELECT count(*) FROM iceberg_tables"):
            for version in ("1", "2"):
                await database.fetchval(A_VERSION, "visits", version)
            await database.execute(OUTCOMES, *await fill(lake, rows, entities, outcomes))
        await database.close()
        reader = LakeReader(server.url, lake.location, endpoint=None, timeout_seconds=60)
        log = LakeExperimentLog(
            Questions(reader, timeout_seconds=DEADLINE_SECONDS),
            PostgresExperimentLog(server.url, timeout_seconds=DEADLINE_SECONDS),
            PostgresOutcomeEvents(server.url, timeout_seconds=DEADLINE_SECONDS),
        )
        files = [task.file for task in lake.table().load().scan().plan_files()]
        rows = sum(file.record_count for file in files)
        now = time.time()
        since = now - max(1_000, len(files) + 10) * 3_600
        query = EntityQuery("visits", "converted", 1, 2, {3: 0}, since, now, DAY, is_share=True)
        found, scores = await asked("entities and mean scores", log.entities_and_scores(query, lambda _entered: 0))
        await asked("latencies", log.entity_values(query, Observed.LATENCY))
        stored = sum(path.stat().st_size for path in (folder / "lake").rglob("*.parquet"))
        lake.close()
    return (
        f"{rows:,} rows, {stored / rows:.0f} bytes a row, {len(files)} files, {found.total:,} entities in "
        f"{len(found.groups)} groups, {len(scores.a):,} and {len(scores.b):,} scores ({NAME[1]})"
    )


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--outcomes", type=int, default=100_000)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="us-lake-report-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        print(asyncio.run(measure(folder, given.rows, given.entities, given.outcomes)))
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
