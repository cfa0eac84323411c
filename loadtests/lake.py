"""Rows to Postgres and rows to the lake, beside each other: how fast, and how many bytes. ``make bench-lake``.

Arguments: ``--rows`` (300,000), ``--rounds`` (3). The same spooled rows go both ways, in turns, with the real shippers,
their windows, a durable Postgres and a folder that is synced; commits to the table are counted with the lake. Then the
question that an A/B report reads most rows for is asked of both, over all rows that were shipped. At the end rows come
little by little, as they do in a proxy (P7): what shipping them to Postgres costs without a lake and beside one, and
what the lake costs without its commits.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import asyncpg
import duckdb
import numpy as np
from integration.prediction_log.log_worker import Silent
from traffic.spooled_rows import a_row, new_windows, no_threshold
from worlds.lake import A_VERSION, Lake
from worlds.lake_reports import Readers, readers_of

from loadtests.machine import cpu_seconds, resident_bytes
from understudy.adapters.disk.spool import Spool
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.prediction_id import RANDOM_BITS, prediction_id
from understudy.core.prediction_log.row import PredictionRow
from understudy.errors import RegistryUnavailable
from understudy.ports.experiments.experiment_log import EntityQuery
from understudy.ports.prediction_log.prediction_log import SpoolShelf
from understudy.shipping.log_shipper import LogShipper
from understudy.shipping.shared_spool import SharedSpool

ENTITIES = 200_000
FILE_BYTES = 16 * 1_048_576
DAY = 86_400.0
ROWS_AT_ONCE = 2_000
"""That come to Postgres in one transaction."""
ROWS_APPENDED = 20


class Way(NamedTuple):
    """What the rows cost on one way."""

    seconds: float
    own_us: float
    """Processor time of the shipping process, for a row."""
    postgres_us: float


def rows_of(count: int, version_id: int, seed: int) -> list[PredictionRow]:
    """Return rows as calls leave them: ids, hashes and scores of their own, entities that come back."""
    dice = np.random.default_rng(seed)
    entities, scores = dice.integers(ENTITIES, size=count).tolist(), dice.random(count).tolist()
    latencies, bits = dice.integers(900, 40_000, size=count).tolist(), dice.bytes(count * 10)
    now = time.time()
    return [
        a_row(1, version_id=version_id)._replace(
            prediction_id=prediction_id(
                int(now * 1_000) + place // 4,
                int.from_bytes(bits[place * 10 : place * 10 + 10]) % (1 << RANDOM_BITS),
            ),
            predicted_at=now + place / 4_000,
            entity_id=f"customer-{entities[place]}",
            input_hash=sha256(place.to_bytes(8, "little")).hexdigest(),
            prediction=b'{"score":%.7f}' % scores[place],
            score=round(scores[place], 7),
            latency_us=latencies[place],
            bucket=entities[place] % 100,
        )
        for place in range(count)
    ]


async def measured(work: Awaitable[None], postgres: int, rows: int) -> Way:
    """Await some work and return what it cost."""
    own, server, began = cpu_seconds([os.getpid()]), cpu_seconds([postgres]), time.perf_counter()
    await work
    seconds = time.perf_counter() - began
    own_us = (cpu_seconds([os.getpid()]) - own) * 1e6 / rows
    return Way(seconds, own_us, (cpu_seconds([postgres]) - server) * 1e6 / rows)


def filled_spool(folder: Path, made: list[PredictionRow]) -> Spool:
    """Return a spool with these rows."""
    spool = Spool(folder, limit_bytes=1 << 32, segment_bytes=8 << 20, sync_seconds=1.0)
    for place in range(0, len(made), 1_000):
        spool.append_all(made[place : place + 1_000])
    return spool


def log_shipper_of(shelf: SpoolShelf, store: PostgresPredictionStore) -> LogShipper:
    """Return what ships to Postgres, with the defaults of a proxy."""
    return LogShipper(shelf, store, new_windows, no_threshold, Silent(), batch_rows=2_000, interval_seconds=0.2)


async def windows_alone(lake: Lake, postgres: int, made: list[PredictionRow], seed: int) -> Way:
    """Ship what Postgres gets of the same rows where they are in the lake alone."""
    spool = filled_spool(lake.folder / f"spool-alone-{seed}", made)
    store = PostgresPredictionStore(lake.url, timeout_seconds=60, is_sample_alone=True)
    shipper = log_shipper_of(SharedSpool(spool, 1).shelf_of(0), store)
    way = await measured(shipper.drain(600), postgres, len(made))
    await store.close()
    spool.close()
    return way


async def a_round(lake: Lake, postgres: int, version_id: int, rows: int, seed: int) -> tuple[Way, Way, Way]:
    """Ship the same rows both ways, and the windows of them alone."""
    made = rows_of(rows, version_id, seed)
    alone = await windows_alone(lake, postgres, made, seed)
    spool = filled_spool(lake.folder / f"spool-{seed}", made)
    del made
    shared = SharedSpool(spool, 2)
    store = PostgresPredictionStore(lake.url, timeout_seconds=60)
    shipper = log_shipper_of(shared.shelf_of(1), store)

    async def to_lake() -> None:
        await lake.lake_shipper(shared.shelf_of(0), file_bytes=FILE_BYTES).drain(600)
        await lake.commit(over_seconds=1e9)

    ways = {}
    for way in ("postgres", "lake") if seed % 2 else ("lake", "postgres"):
        ways[way] = await measured(shipper.drain(600) if way == "postgres" else to_lake(), postgres, rows)
    if spool.own.unshipped_bytes:
        raise RuntimeError("rows were left in the spool; the figures would mean nothing")
    await store.close()
    spool.close()
    return ways["postgres"], ways["lake"], alone


async def little_by_little(lake: Lake, made: list[PredictionRow], name: str, *, has_lake: bool) -> tuple[float, float]:
    """Return the processor time here of shipping a row to Postgres, and to the lake, in microseconds."""
    spool = filled_spool(lake.folder / f"spool-{name}", [])
    shared = SharedSpool(spool, 2 if has_lake else 1)
    store = PostgresPredictionStore(lake.url, timeout_seconds=60)
    to_postgres = log_shipper_of(shared.shelf_of(0), store)
    to_lake = lake.lake_shipper(shared.shelf_of(1), file_bytes=FILE_BYTES) if has_lake else None
    spent = [0.0, 0.0]
    for place in range(0, len(made), ROWS_AT_ONCE):
        for first in range(place, min(place + ROWS_AT_ONCE, len(made)), ROWS_APPENDED):
            spool.append_all(made[first : first + ROWS_APPENDED])
        began = time.process_time()
        await to_postgres.drain(60)
        spent[0] += time.process_time() - began
        is_last = place + ROWS_AT_ONCE >= len(made)
        if to_lake is not None and (is_last or spool.own.unshipped_bytes >= FILE_BYTES):
            began = time.process_time()
            await to_lake.drain(60)
            spent[1] += time.process_time() - began
    if spool.own.unshipped_bytes:
        raise RuntimeError("rows were left in the spool; the figures would mean nothing")
    await store.close()
    spool.close()
    return spent[0] * 1e6 / len(made), spent[1] * 1e6 / len(made)


async def beside_each_other(lake: Lake, version_id: int, rows: int, rounds: int) -> str:
    """Return what a row costs little by little, with the lake and without it, in turns."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for seed in range(rounds):
        made = rows_of(rows, version_id, seed)
        for has_lake in (seed % 2 == 0, seed % 2 == 1):
            found[has_lake].append(await little_by_little(lake, made, f"{has_lake}-{seed}", has_lake=has_lake))
    alone, beside, in_lake = (
        statistics.median(one[place] for one in found[has_lake])
        for has_lake, place in ((False, 0), (True, 0), (True, 1))
    )
    return (
        f"little by little: {alone:.1f} µs a row here to Postgres without a lake, {beside:.1f} beside one "
        f"({beside / alone:.2f}), and {in_lake:.1f} to the lake"
    )


async def merged(lake: Lake, postgres: int, rows: int) -> str:
    """Merge the table's files, and return what it cost."""
    files = len(list(lake.table().load().scan().plan_files()))
    way = await measured(lake.commit(over_seconds=-86_400), postgres, rows)
    left = len(list(lake.table().load().scan().plan_files()))
    return (
        f"merging {files} files into {left}: {rows / way.seconds:,.0f} rows/s, {way.own_us:.1f} µs a row here, "
        f"{peak_mb():,.0f} MB at most"
    )


def counted_rows(lake: Lake) -> int:
    """Return how many rows the table has, by DuckDB over its files."""
    files = [task.file.file_path.removeprefix("file://") for task in lake.table().load().scan().plan_files()]
    found = duckdb.connect().execute("SELECT count(DISTINCT prediction_id) FROM read_parquet($1)", [files]).fetchone()
    assert found is not None
    return int(found[0])


async def a_report(readers: Readers, version_id: int, rows: int) -> tuple[float, float, int | None]:
    """Return the seconds that a report's entities took, the most memory in MB, and how many; ``None``: not in time."""
    now = time.time()
    until = now + DAY + rows / 4_000
    asked = EntityQuery("visits", "converted", version_id, None, {3: 0}, now - DAY, until, 60.0, is_share=True)
    peak_mb(begins=True)
    began = time.perf_counter()
    with suppress(RegistryUnavailable):  # it took longer than a question may
        entities = (await readers.log.entities(asked)).total
        return time.perf_counter() - began, peak_mb(), entities
    return time.perf_counter() - began, peak_mb(), None


def peak_mb(*, begins: bool = False) -> float:
    """Return the most memory that this process had since this was last called with ``begins``."""
    if begins:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1_000


async def measure(folder: Path, rows: int, rounds: int) -> str:
    """Return the figures as a table."""
    with EmbeddedPostgres(folder / "pg") as server:
        await upgrade(server.url)
        database = await asyncpg.connect(server.url)
        version_id = await database.fetchval(A_VERSION, "visits", "1")
        lake = Lake(server.url, folder)
        assert server.pid is not None
        before = resident_bytes(os.getpid())
        found = [await a_round(lake, server.pid, version_id, rows, seed) for seed in range(rounds)]
        heap = await database.fetchval(
            "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('predictionlog') WHERE isleaf"
        )
        stored = await database.fetchrow("SELECT sum(byte_count)::bigint AS bytes, count(*) AS files FROM LakeFile")
        peak_mb(begins=True)
        merging = await merged(lake, server.pid, rows * rounds)
        counted = counted_rows(lake)
        reports = [await a_report(readers, version_id, rows) for readers in readers_of(lake)]
        little = await beside_each_other(lake, version_id, rows, rounds)
        database.terminate()
        lake.close()
    if counted != rows * rounds or stored is None:
        raise RuntimeError(f"{counted} rows in the table of {rows * rounds}")
    total = rows * rounds
    lines = [
        f"{rows:,} rows, {rounds} rounds in turns; {(resident_bytes(os.getpid()) - before) / 1e6:.0f} MB more memory"
    ]
    sizes = (("postgres", heap / total), ("lake", stored["bytes"] / total), ("windows", 0.0))
    for place, (name, size) in enumerate(sizes):
        ways = [one[place] for one in found]
        seconds, own, theirs = (statistics.median(column) for column in zip(*ways, strict=True))
        lines.append(
            f"{name:9} {rows / seconds:9,.0f} rows/s   {own:5.1f} µs a row here   {theirs:5.1f} µs in Postgres"
            f"   {size:6.1f} bytes a row"
        )
    for name, (seconds, peak, entities) in zip(("postgres", "lake"), reports, strict=True):
        over = f"{total:,} rows ({'not in time' if entities is None else f'{entities:,} entities'})"
        lines.append(f"a report over {over} from {name}: {seconds:.1f} s, {peak:,.0f} MB at most")
    return "\n".join([*lines, merging, little, f"{stored['files']} files"])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="us-lake-"))
    folder.chmod(0o755)
    try:
        print(asyncio.run(measure(folder, given.rows, given.rounds)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
