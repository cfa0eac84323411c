"""What the log, the policies and the cache cost on the other side: processor time and bytes of Postgres and Valkey.

    PYTHONPATH=tests .venv/bin/python -m loadtests.sink      # 20 s of processor; prints JSON, changes nothing

Rows go through the real encoder, window builder and store into the real schema, on a Postgres with its durable
defaults. These are the figures of ``loadtests/capacity.json`` whose place is ``loadtests/sink.py``; they are copied
there by hand, because a figure that changes wants to be looked at. Processor time is that of every process of the
server, in ticks of 10 ms, so each piece is repeated until that no longer matters.
"""

import asyncio
import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace as replaced
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from traffic.logged import register
from traffic.spooled_rows import a_row

from loadtests.machine import cpu_seconds
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.redis.cache import RedisCache
from understudy.core.prediction_log.prediction_id import RANDOM_BITS, prediction_id
from understudy.core.prediction_log.row import COLUMNS, PredictionRow
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.prediction_log.spool_format import FRAME_BYTES
from understudy.core.requests.rank import ranking_of
from understudy.core.schema.cache_mac import CacheMac
from understudy.core.schema.outputs import Origin, Prediction, encode_cached
from understudy.core.windows.builder import WindowBuilder
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome

BATCHES = {1: 600, 20: 500, 600: 50, 2_000: 30}
"""Rows of a transaction, and how often: 100,600 rows."""
RANK_ROWS, RANK_BATCH = 20_000, 100
WINDOW_WRITES, PER_WINDOW = 600, 75
"""75 writes of a window, as a shipper that sends every 0.2 s makes."""
WINDOW_CALLS = 600
WINDOWS_TOGETHER = 6
WINDOWS_KEPT, MARKS = 5_000, 20
ENTITIES = 200_000
LISTENERS, NOTIFICATIONS = 50, 200
ASKED, REPORTS, LOADS = 3_000, 300, 1_000
ENTRIES, TOGETHER = 40_000, 8
ARCHIVED: dict[str, Callable[[str], Any]] = {
    "prediction_id": lambda text: UUID(text).bytes,
    "input_hash": bytes.fromhex,
    "predicted_at": datetime.fromisoformat,
    "score": float,
    **dict.fromkeys(
        ("model_version_id", "assigned_version_id", "latency_ms", "latency_us", "bucket", "policy_generation"), int
    ),
}
"""What is not text in the archive."""


class Sink:
    """Ships rows of one version, each transaction behind the one before."""

    def __init__(self, database_url: str, version_id: int) -> None:
        self._store = PostgresPredictionStore(database_url, timeout_seconds=60)
        self._spool = str(uuid4())
        self._version_id = version_id
        self._end = 0

    def rows(self, count: int, prediction: Callable[[int], bytes]) -> list[bytes]:
        """Return rows as they lie in the spool: ids, hashes, latencies and scores differ as they do in service."""
        rng = np.random.default_rng(count)
        scores, latencies = rng.beta(2, 5, count), rng.lognormal(8.5, 0.4, count)
        entities = rng.integers(0, ENTITIES, count)
        return [
            encode_line(self._row(n, int(entities[n]), float(scores[n]), int(latencies[n]), prediction(n)))
            for n in range(count)
        ]

    def _row(self, number: int, entity: int, score: float, latency_us: int, prediction: bytes) -> PredictionRow:
        return a_row(number, version_id=self._version_id)._replace(
            prediction_id=prediction_id(int(time.time() * 1000), secrets.randbits(RANDOM_BITS)),
            predicted_at=time.time(),
            entity_id=f"customer-{entity}",
            input_hash=sha256(number.to_bytes(8, "little")).hexdigest(),
            prediction=prediction,
            score=score,
            latency_us=latency_us,
            bucket=entity % 100,
        )

    async def write(self, rows: Sequence[bytes], windows: Sequence[Window] = ()) -> None:
        """Commit one batch."""
        batch = SpooledBatch(self._spool, 1, self._end, self._end + 1, list(rows))
        if (await self._store.write(batch, windows)).outcome is not WriteOutcome.WRITTEN:
            raise RuntimeError("Postgres did not take a batch; the figures would mean nothing")
        self._end += 1

    async def close(self) -> None:
        await self._store.close()


class Server:
    """Postgres, asked for what it has used."""

    def __init__(self, pid: int, database: asyncpg.Connection) -> None:
        self._pid = pid
        self._database = database

    async def cost_of(self, work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
        """Return processor microseconds and bytes of WAL that the work took."""
        start = await self._database.fetchval("SELECT pg_current_wal_insert_lsn()::text")
        used = cpu_seconds([self._pid])
        await work()
        used = cpu_seconds([self._pid]) - used
        wal = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)::float8"
        return used * 1e6, await self._database.fetchval(wal, start)

    async def bytes_of_log(self) -> tuple[int, int]:
        """Return the bytes of heap (with TOAST and maps) and of indexes in all months."""
        found = await self._database.fetchrow(
            "SELECT sum(pg_table_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint"
            " FROM pg_partition_tree('predictionlog') WHERE isleaf"
        )
        assert found is not None
        return found[0], found[1]


def a_prediction(number: int) -> bytes:
    """Return what a score's answer looks like."""
    return b'{"score":0.%07d}' % (number * 7_919 % 9_999_999)


def a_ranking(number: int) -> bytes:
    """Return what the log keeps of 1,000 treatments."""
    scores = np.random.default_rng(number).random(1_000, dtype=np.float32)
    return ranking_of(scores, [f"treatment-{one}" for one in range(1_000)], 10).logged


async def measure_rows(server: Server, sink: Sink) -> dict[str, float]:
    """Return what a transaction and a row cost: a line through the batch sizes, by least squares."""
    found: dict[str, float] = {}
    before = await server.bytes_of_log()
    total = wal_bytes = 0.0
    costs = {}
    for size, times in BATCHES.items():
        batches = [sink.rows(size, a_prediction) for _ in range(times)]

        async def ship(batches: list[list[bytes]] = batches) -> None:
            for rows in batches:
                await sink.write(rows)

        cpu_us, wal = await server.cost_of(ship)
        costs[size] = cpu_us / times
        total += size * times
        if size == max(BATCHES):
            wal_bytes = wal / (size * times)
        found[f"transaction_of_{size}_us"] = round(cpu_us / times, 1)
    after = await server.bytes_of_log()
    found["row_us"] = round((costs[2_000] - costs[20]) / 1_980, 2)
    found["transaction_us"] = round(costs[20] - 20 * found["row_us"], 1)
    found["rows"] = total
    found["row_wal_bytes"] = round(wal_bytes, 1)
    found["row_heap_bytes"] = round((after[0] - before[0]) / total, 1)
    found["row_index_bytes"] = round((after[1] - before[1]) / total, 1)
    found["row_spool_bytes"] = round(sum(map(len, batches[0])) / len(batches[0]) + FRAME_BYTES, 1)
    return found


async def measure_rankings(server: Server, sink: Sink) -> dict[str, float]:
    """Return what a row of a rank call costs beside that."""
    rankings = [a_ranking(number) for number in range(200)]
    rows = sink.rows(RANK_ROWS, lambda number: rankings[number % len(rankings)])
    before = await server.bytes_of_log()

    async def ship() -> None:
        for start in range(0, len(rows), RANK_BATCH):
            await sink.write(rows[start : start + RANK_BATCH])

    cpu_us, wal = await server.cost_of(ship)
    after = await server.bytes_of_log()
    return {
        "rank_transaction_of_100_us": round(cpu_us / (RANK_ROWS / RANK_BATCH), 1),
        "rank_row_wal_bytes": round(wal / RANK_ROWS, 1),
        "rank_row_heap_bytes": round((after[0] - before[0]) / RANK_ROWS, 1),
        "rank_row_index_bytes": round((after[1] - before[1]) / RANK_ROWS, 1),
        "rank_row_spool_bytes": round(sum(map(len, rows)) / len(rows) + FRAME_BYTES, 1),
    }


async def measure_windows(server: Server, sink: Sink, url: str, database: asyncpg.Connection) -> dict[str, float]:
    """Return what writing a window costs, alone and among others, its bytes at rest, and what readers pay for it."""
    builder = WindowBuilder(uuid4().hex)
    pieces = [sink.rows(WINDOW_CALLS, a_prediction) for _ in range(40)]
    staged_us = time.process_time()
    for piece in pieces:
        builder.commit(builder.stage(piece, COLUMNS, lambda _: None))
    staged_us = (time.process_time() - staged_us) / (len(pieces) * WINDOW_CALLS) * 1e6
    (window, *_) = builder.stage(pieces[0], COLUMNS, lambda _: None).windows

    async def replace(together: int) -> None:
        for number in range(WINDOW_WRITES):
            start = window.key.start + number // PER_WINDOW * WINDOW_SECONDS
            keys = [window.key._replace(start=start, policy_generation=one) for one in range(together)]
            await sink.write([], [replaced(window, key=key) for key in keys])

    one_us, one_wal = await server.cost_of(lambda: replace(1))
    many_us, many_wal = await server.cost_of(lambda: replace(WINDOWS_TOGETHER))
    await database.execute("TRUNCATE PredictionWindow")
    await sink.write([], [window])
    # One row would be a mostly empty page: the same window at many times, as a rollout's.
    await database.execute(
        "INSERT INTO PredictionWindow SELECT model_version_id, window_start - n * interval '15 s', role, 1,"
        " policy_generation, shipper, epoch, calls, errors, counts FROM PredictionWindow, generate_series(1, $1) AS n",
        WINDOWS_KEPT,
    )
    await database.execute("VACUUM ANALYZE PredictionWindow")
    size = "SELECT pg_total_relation_size('predictionwindow')::float8 / count(*) FROM predictionwindow"
    text = "SELECT avg(length(counts::text))::float8 FROM predictionwindow WHERE rollout_id = 0"
    log = PostgresWindowLog(url, timeout_seconds=30)

    async def marks() -> None:
        for _ in range(MARKS):
            await log.latest_of_rollout(1, 0, int(time.time()) + 1)

    marks_us, _ = await server.cost_of(marks)
    return {
        "shipper_stage_us": round(staged_us, 2),
        "window_alone_us": round(one_us / WINDOW_WRITES, 1),
        "window_write_us": round((many_us - one_us) / WINDOW_WRITES / (WINDOWS_TOGETHER - 1), 1),
        "window_write_wal_bytes": round((many_wal - one_wal) / WINDOW_WRITES / (WINDOWS_TOGETHER - 1)),
        "window_bytes": round(await database.fetchval(size)),
        "window_json_bytes": round(await database.fetchval(text)),
        "window_mark_us": round(marks_us / MARKS / WINDOWS_KEPT, 2),
    }


def parquet_bytes(rows: Sequence[bytes], folder: Path) -> float:
    """Return the bytes of a row in Parquet, typed and compressed as an archive would have it."""
    fields = list(zip(*(row.rstrip(b"\n").split(b"\t") for row in rows), strict=True))
    columns: dict[str, Any] = {}
    for name, values in zip(COLUMNS, fields, strict=True):
        texts = [None if value == b"\\N" else value.decode() for value in values]
        columns[name] = [None if text is None else ARCHIVED.get(name, str)(text) for text in texts]
    path = folder / "log.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    return round(path.stat().st_size / len(rows), 1)


async def measure_policies(server: Server, database_url: str, database: asyncpg.Connection) -> dict[str, float]:
    """Return what a proxy costs that does nothing but keep its policies fresh, and what a change costs."""
    source = PostgresPolicySource(database_url)
    await source.load()

    async def polls() -> None:
        for _ in range(ASKED):
            await source.changed_since_last_poll()

    async def heartbeats() -> None:
        for _ in range(ASKED):
            await database.execute("SELECT 1")

    async def reports() -> None:
        for number in range(REPORTS):
            await source.report(f"pod-{number}", {"bench": 1}, {1: 3}, None)

    async def loads() -> None:
        for _ in range(LOADS):
            await source.load(["bench"])

    found = {
        name: round((await server.cost_of(work))[0] / times, 1)
        for name, work, times in (
            ("poll_us", polls, ASKED),
            ("heartbeat_us", heartbeats, ASKED),
            ("report_us", reports, REPORTS),
            ("policy_load_us", loads, LOADS),
        )
    }
    await source.close()
    return {**found, **await _measure_listeners(server, database_url, database)}


async def _measure_listeners(server: Server, database_url: str, database: asyncpg.Connection) -> dict[str, float]:
    heard = asyncio.Semaphore(0)

    async with AsyncExitStack() as opened:
        listeners = [await asyncpg.connect(database_url) for _ in range(LISTENERS)]
        for one in listeners:
            opened.push_async_callback(one.close)
            await one.add_listener("capacity", lambda *_: heard.release())
        pids = [one.get_server_pid() for one in listeners]
        private = [_private_bytes(pid) for pid in pids]

        async def notify() -> None:
            for _ in range(NOTIFICATIONS):
                await database.execute("NOTIFY capacity, 'x'")
                async with asyncio.timeout(30):
                    for _ in range(LISTENERS):
                        await heard.acquire()

        cpu_us, _ = await server.cost_of(notify)
    return {
        "notified_us": round(cpu_us / (LISTENERS * NOTIFICATIONS), 1),
        "connection_bytes": round(sum(private) / len(private)),
    }


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


async def measure_cache() -> dict[str, float]:
    """Return the memory of an entry, and Valkey's processor time for a key in an MGET and for a SET in a pipeline."""
    with EmbeddedValkey() as server:
        assert server.pid is not None
        failures: list[int] = []
        cache = RedisCache(
            server.url,
            timeout_seconds=5,
            now=time.monotonic,
            on_error=lambda: failures.append(1),
            on_rejected=lambda _: None,
        )
        secret = bytes(32)
        cache.use_secret(secret)
        mac, entries = CacheMac(secret), {}
        for number in range(ENTRIES):
            digest = sha256(number.to_bytes(8, "little")).hexdigest()
            value = encode_cached(Origin(1, digest[:16], digest), Prediction(a_prediction(number), 0.5))
            entries[f"infer:1:{digest}"] = value
        empty = await _used_memory(cache)
        used = cpu_seconds([server.pid])
        for number, (key, value) in enumerate(entries.items()):
            await cache.set(key, value, 300)
            if (number + 1) % TOGETHER == 0:
                await asyncio.sleep(0)
                await asyncio.gather(*cache._tasks)  # noqa: SLF001 - one pipeline after the other
        set_us = (cpu_seconds([server.pid]) - used) / ENTRIES * 1e6
        full = await _used_memory(cache)
        keys = list(entries)
        used = cpu_seconds([server.pid])
        hits = 0
        for start in range(0, ENTRIES, TOGETHER):
            found = await cache.get_all(keys[start : start + TOGETHER])
            hits += sum(one is not None for one in found)
        get_us = (cpu_seconds([server.pid]) - used) / ENTRIES * 1e6
        await cache.close()
    if failures or hits < ENTRIES:
        raise RuntimeError(f"Valkey failed {len(failures)} times, {hits:,} of {ENTRIES:,} keys were there")
    return {
        "redis_entry_bytes": round((full - empty) / ENTRIES, 1),
        "redis_get_us": round(get_us, 2),
        "redis_set_us": round(set_us, 2),
        "redis_key_bytes": len(keys[0] + mac.suffix),
        "redis_value_bytes": len(mac.seal(keys[0], entries[keys[0]], 0)),
    }


async def _used_memory(cache: RedisCache) -> int:
    client = cache._redis  # noqa: SLF001 - the port has no such question, and the benchmark wants the same server
    return int((await client.info("memory"))["used_memory"])


async def measure(folder: Path) -> dict[str, float]:
    """Start the servers, measure everything, stop them."""
    postgres = EmbeddedPostgres(folder / "pg")
    url = postgres.start()
    try:
        await upgrade(url)
        database = await asyncpg.connect(url)
        version_id = await register(database, "bench", "1")
        await database.execute(
            "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('bench', $1)", version_id
        )
        assert postgres.pid is not None
        server, sink = Server(postgres.pid, database), Sink(url, version_id)
        try:
            return {
                **await measure_rows(server, sink),
                **await measure_rankings(server, sink),
                **await measure_windows(server, sink, url, database),
                **await measure_policies(server, url, database),
                **await measure_cache(),
                "row_parquet_bytes": parquet_bytes(sink.rows(50_000, a_prediction), folder),
                "rank_row_parquet_bytes": parquet_bytes(sink.rows(2_000, a_ranking), folder),
            }
        finally:
            await sink.close()
            await database.close()
    finally:
        postgres.remove()


def main() -> int:
    """Measure and print."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    folder = Path(tempfile.mkdtemp(prefix="us-sink-"))
    folder.chmod(0o755)
    try:
        print(json.dumps(asyncio.run(measure(folder)), indent=2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
