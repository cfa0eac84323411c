"""P7: what the prediction log costs the proxy, how fast it is, and whether it holds over restarts.

The proxy is measured beside one that syncs each row before its answer (``UNDERSTUDY_SPOOL_SYNC=answer``).

The shipper's processor time is taken where it can be told from everything else: in this process, with the product's own
spool, shipper and store, and rows as the proxy writes them. It is taken in bulk, a long spool at once, and in ticks of
as many rows as the loaded proxy of the same run had in one, since a tick has a price of its own.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple
from uuid import uuid4

import uvloop
from e2e.load import Load, run_load
from e2e.stack import logged_ids
from traffic.spooled_rows import a_row, new_windows, no_threshold

from loadtests.machine import SERVER_CORE, ended_children_cpu_seconds, on_core
from loadtests.result import say
from loadtests.rounds import Contender, Ledger, details, take_turns
from loadtests.scene import BENCH, Scene, path_of
from loadtests.section import Check, Effort, Findings, Section, Target
from loadtests.steady import body_of
from understudy.adapters.disk.spool import Spool
from understudy.adapters.embedded.installations import find_installations
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.row import COLUMNS, PredictionRow
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.settings import Settings
from understudy.shipping.log_shipper import LogShipper

ROWS, QUICK_ROWS = 40_000, 16_000
TICKS = 25
TURN_ROWS = 20
"""Of a write to the spool: about as many calls end in a turn of the loaded proxy's event loop."""
SYNCS = 100
_BATCH_ROWS: int = Settings.model_fields["log_batch_rows"].default
_TICK_SECONDS: float = Settings.model_fields["log_interval_seconds"].default
_SPOOL_BYTES = 256 * 1_048_576
_DRAIN_SECONDS = 60.0
_RESTART_PER_SECOND = 150
_RESTART_SECONDS, _QUICK_RESTART_SECONDS = 24.0, 12.0
_LAST_ROW_SECONDS = 30.0
_PREDICTION = b'{"score":0.75,"outputs":{"probabilities":[0.25,0.75]}}'


class Shipped(NamedTuple):
    """Processor time of this process for each row, in microseconds, and rows a second of wall-clock time."""

    append_us: float
    writer_us: float
    per_second: float


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure the proxy, then its log's parts, and then restart what the log depends on."""
    proxy, durable_proxy = scene.proxy(), scene.proxy("durable", spool_sync="answer")
    ledger = Ledger(scene, [proxy, durable_proxy])
    product, durable = (
        Contender(name, one.url(), one.pid, settle=one.await_log)
        for name, one in (("understudy", proxy), ("understudy, synced before the answer", durable_proxy))
    )
    take_turns(scene, [product, durable], effort)
    checks = ledger.checks([product, durable])
    tick_rows = max(1, round(product.per_second * _TICK_SECONDS))

    say(f"  the log alone: in bulk, in ticks of {tick_rows:,} rows, and psql's \\copy")
    count = QUICK_ROWS if effort.quick else ROWS
    version = scene.versions[BENCH]["champion"]
    bulk: list[Shipped] = []
    ticks: list[Shipped] = []
    copies: list[Shipped] = []
    for _ in range(effort.rounds):
        bulk.append(_ship(scene, _rows(version, count), count))
        ticks.append(_ship(scene, _rows(version, tick_rows * TICKS), tick_rows))
        copies.append(_copy(scene, _rows(version, count)))
    parts = _parts(scene, _rows(version, count))
    append_us, bulk_us, tick_us = (
        median(one.append_us for one in ticks),
        median(one.writer_us for one in bulk),
        median(one.writer_us for one in ticks),
    )
    found = Findings(
        targets=[
            Target("P7", "log writer in bulk, CPU per row", bulk_us, "µs", 2),
            Target("P7", "log writer in ticks as the loaded proxy has, CPU per row", tick_us, "µs", 2),
            Target("P7", "spool + log ÷ the request's CPU", append_us + tick_us, "µs", 0.3, product.server_us),
            Target(
                "P7",
                "rows a second ÷ psql \\copy",
                median(one.per_second for one in bulk),
                "/s",
                0.9,
                median(one.per_second for one in copies),
                at_least=True,
            ),
        ],
        checks=checks,
        notes=[
            f"append to the spool: {append_us:.2f} µs a row; psql: {median(one.writer_us for one in copies):.2f} µs",
            "the writer in bulk, µs a row: " + ", ".join(f"{name} {us:.2f}" for name, us in parts.items()),
            f"the writer reads the spool, adds windows up, and commits every {_BATCH_ROWS:,} rows; psql commits once",
            f"a tick of the loaded proxy: {tick_rows:,} rows",
            f"an fdatasync here: {_sync_ms(scene):.2f} ms",
            *map(_load_of, (product, durable)),
        ],
        detail={
            **details([product, durable]),
            "parts_us": parts,
            **{
                name: [one._asdict() for one in rounds]
                for name, rounds in (("bulk", bulk), ("ticks", ticks), ("copy", copies))
            },
        },
    )
    say("  SIGTERM to the proxy, and a restart of Postgres, under load")
    found.checks += _restarts(scene, _QUICK_RESTART_SECONDS if effort.quick else _RESTART_SECONDS)
    return found


def _load_of(contender: Contender) -> str:
    latencies = [median(getattr(one.answered, name) for one in contender.rounds) for name in ("p50_ms", "p99_ms")]
    return (
        f"{contender.name}: {contender.server_us:.1f} µs CPU a request, {contender.per_second:,.0f} answers a second, "
        f"p50 {latencies[0]:.1f} ms, p99 {latencies[1]:.1f} ms"
    )


def _sync_ms(scene: Scene) -> float:
    """Return how long the disk takes to sync a few appended rows, the median of several."""
    seconds = []
    with (scene.folder / "synced").open("ab", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(1_024))
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - started)
    return median(seconds) * 1000


def _rows(version_id: int, count: int) -> list[PredictionRow]:
    now = time.time()
    row = a_row(version_id=version_id, prediction=_PREDICTION)
    return [
        row._replace(prediction_id=str(uuid4()), entity_id=f"customer-{number:08d}", predicted_at=now)
        for number in range(count)
    ]


@contextmanager
def _own_spool(scene: Scene) -> Iterator[Spool]:
    spool = Spool(
        scene.folder / f"spool-{uuid4().hex}",
        limit_bytes=_SPOOL_BYTES,
        segment_bytes=Settings.model_fields["spool_segment_bytes"].default,
        sync_seconds=Settings.model_fields["spool_sync_seconds"].default,
    )
    try:
        yield spool
    finally:
        spool.close()


def _ship(scene: Scene, rows: Sequence[PredictionRow], at_once: int) -> Shipped:
    """Append and ship so many rows at once until there are no more, on the core of the servers under test."""

    async def work(spool: Spool) -> Shipped:
        store = PostgresPredictionStore(scene.postgres.url, timeout_seconds=_DRAIN_SECONDS)
        telemetry = MemoryTelemetry()
        shipper = LogShipper(
            spool, store, new_windows, no_threshold, telemetry, batch_rows=_BATCH_ROWS, interval_seconds=_TICK_SECONDS
        )
        await store.committed(spool.own.spool_id)  # the connection is there before the clock runs
        appending = writing = wall = 0.0
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            appending += _cpu_of(lambda some=some: _append(spool, some))  # type: ignore[misc]
            cpu, clock = time.process_time(), time.monotonic()
            await shipper.drain(_DRAIN_SECONDS)
            writing, wall = writing + time.process_time() - cpu, wall + time.monotonic() - clock
        await store.close()
        if spool.own.unshipped_bytes:
            raise RuntimeError("the rows were not shipped in time")
        return Shipped(appending / len(rows) * 1e6, writing / len(rows) * 1e6, len(rows) / wall)

    with (
        on_core(SERVER_CORE),
        _own_spool(scene) as spool,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(work(spool))


def _parts(scene: Scene, rows: Sequence[PredictionRow]) -> dict[str, float]:
    """Return the processor time of the shipper's three steps, each alone, in microseconds a row."""
    spent = {"reading": 0.0, "windows": 0.0, "COPY": 0.0}

    async def work(spool: Spool) -> None:
        store = PostgresPredictionStore(scene.postgres.url, timeout_seconds=_DRAIN_SECONDS)
        place = await store.committed(spool.own.spool_id)
        builder = new_windows()
        while True:
            marks = [time.process_time()]
            batch = spool.own.read_from(*place, _BATCH_ROWS, _SPOOL_BYTES)
            if batch is None:
                break
            marks.append(time.process_time())
            builder.commit(builder.stage(batch.rows, batch.columns, no_threshold, batch.records))
            marks.append(time.process_time())
            await store.write(batch)
            marks.append(time.process_time())
            place = (batch.segment, batch.end)
            for name, (start, end) in zip(spent, pairwise(marks), strict=True):
                spent[name] += end - start
        await store.close()

    with (
        on_core(SERVER_CORE),
        _own_spool(scene) as spool,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        _append(spool, rows)
        runner.run(work(spool))
    return {name: seconds / len(rows) * 1e6 for name, seconds in spent.items()}


def _append(spool: Spool, rows: Sequence[PredictionRow]) -> None:
    for start in range(0, len(rows), TURN_ROWS):
        spool.append_all(rows[start : start + TURN_ROWS])


def _cpu_of(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def _copy(scene: Scene, rows: Sequence[PredictionRow]) -> Shipped:
    """Write the same rows with psql."""
    text = scene.folder / "rows.txt"
    text.write_bytes(b"".join(encode_line(row) for row in rows))
    command = [_psql(), scene.postgres.url, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"]
    command += ["--command", f"\\copy predictionlog ({', '.join(COLUMNS)}) from '{text}'"]
    before, started = ended_children_cpu_seconds(), time.monotonic()
    with on_core(SERVER_CORE):
        subprocess.run(command, check=True)
    seconds, used = time.monotonic() - started, ended_children_cpu_seconds() - before
    return Shipped(0.0, used / len(rows) * 1e6, len(rows) / seconds)


def _psql() -> str:
    return next(path for one in find_installations() if Path(path := one.binary("psql")).exists())


def _restarts(scene: Scene, seconds: float) -> list[Check]:
    """Compare the ids of answers with the ids of rows; the rows of other sections are none of these ids."""
    load = asyncio.run(_load_over_restarts(scene, seconds))
    answered = load.prediction_ids()
    rows = asyncio.run(logged_ids(scene.postgres.url, set(answered), seconds=_LAST_ROW_SECONDS))
    kept = set(rows)
    missing = sum(one not in kept for one in answered)
    twice = len(rows) - len(kept)
    return [
        Check(
            "rows = answers across SIGTERM and a Postgres restart",
            not missing and not twice and bool(answered),
            f"{len(answered):,} answers, {missing:,} missing, {twice:,} twice",
        ),
        Check("no answer was an error", not _errors(load), f"{len(_errors(load)):,} errors"),
    ]


def _errors(load: Load) -> list[int]:
    """Return statuses other than 200 and "nobody is listening": between SIGTERM and the next start that is so."""
    return [answer.status for answer in load.failed if answer.status != 0]


async def _load_over_restarts(scene: Scene, seconds: float) -> Load:
    proxy = scene.proxy("restarted")
    load = Load()
    asking = asyncio.create_task(
        run_load(proxy.port, path_of(BENCH), body_of, per_second=_RESTART_PER_SECOND, seconds=seconds, load=load)
    )
    await asyncio.sleep(seconds / 4)
    scene.stack.processes["restarted"].stop()
    with on_core(SERVER_CORE):
        scene.stack.start_proxy(
            "restarted",
            port=proxy.port,
            metrics_port=proxy.metrics_port,
            state_dir=scene.folder / "state-restarted",
        )
    await asyncio.sleep(seconds / 8)
    await asyncio.to_thread(scene.postgres.stop)
    await asyncio.sleep(1.0)
    await asyncio.to_thread(scene.postgres.start)
    await asking
    return load


SECTION = Section(
    "P7",
    "the prediction log",
    run,
    left_out="the shipper runs in the benchmark's own process; what the proxy's own log costs is part of P1",
)
