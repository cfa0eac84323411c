"""Rows LG: what may happen to the prediction log."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from e2e.load import Load
from worlds.archive import fill, ids_logged, ids_seen, month_ago, versions_of

from rigs.faults.inputs import distinct_of, entity_of
from rigs.faults.measure import NOTHING, measured, standard
from rigs.faults.not_here import NotHere
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_least, at_most
from rigs.faults.small_disk import small_disk
from rigs.faults.world import Machine, World

SMALL_SPOOL_BYTES = 131_072
SMALL_DISK = "96k"
ARCHIVED_ROWS = 2_000
ARCHIVER_STEPS = (
    "after:begin",
    "after:name_file",
    "after:put",
    "after:add_file",
    "after:end_export",
    "before:verified",
    "before:detach",
    "after:detach",
    "before:drop",
    "after:drop",
)
"""Moments of ``faults.archive_worker``, in the order in which a month comes to them."""
JUMPS = ("+11d", "-2h", "+0")
"""What a proxy's clock is off by, one after the other."""
_LIBRARIES = Path("/usr/lib")
POISONED = entity_of(7)
_DROPPED = 'prediction_log_rows_total{outcome="dropped"}'
_REJECTED = 'prediction_log_rows_total{outcome="rejected"}'
_PARTITIONS = "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'predictionlog'::regclass"
_OWN_COUNTERS_SECONDS = 1.5


async def spool_full(machine: Machine, span: Span) -> Figures:
    async with machine.world(spool_limit_bytes=SMALL_SPOOL_BYTES, spool_segment_bytes=32_768) as world:
        await world.serve()
        return await _with_drops(world, span)


async def disk_full(machine: Machine, span: Span) -> Figures:
    with small_disk(machine.folder / "small-spool", SMALL_DISK) as folder:
        async with machine.world(state_dir=folder) as world:
            await world.serve()
            return await _with_drops(world, span)


async def _with_drops(world: World, span: Span) -> dict[str, float]:
    """Refuse Postgres under load and compare what the log lacks with what was counted as dropped."""
    seen = await measured(world, world.postgres.refusing(), span)
    rows = await world.lost_and_doubled(seen.load)
    await asyncio.sleep(_OWN_COUNTERS_SECONDS)
    counted = world.metric(_DROPPED)
    lost = rows.pop("rows_lost")
    return {
        **seen.figures(),
        **rows,
        "lost": lost,
        "counted": counted,
        "lost_minus_counted": lost - counted,
        "landed_at_end_ratio": await _landed_since(world, seen.load, seen.mended_at + span.after / 2),
    }


async def _landed_since(world: World, load: Load, moment: float) -> float:
    """Return the share of calls that were sent after a moment, on the monotonic clock, that have a row."""
    late = set(Load([answer for answer in load.answers if answer.sent > moment]).prediction_ids())
    logged = {row["id"] for row in await world.sql("SELECT prediction_id::text AS id FROM PredictionLog")}
    return len(late & logged) / max(1, len(late))


async def killed_with_queued_rows(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        port = await world.serve()

        @asynccontextmanager
        async def killed() -> AsyncIterator[None]:
            with world.postgres.refusing():
                await asyncio.sleep(span.during)
                process = world.stack.processes.pop("proxy")
                process.child.kill()
                await asyncio.to_thread(process.child.wait, 10)
                await world.start_proxy(port=port)
            yield

        seen = await measured(world, killed(), span._replace(during=0.0))
        rows = await world.lost_and_doubled(seen.load)
        return {
            "requests": len(seen.load.answers),
            "failed": len(seen.failed),
            "answered": len(seen.load.prediction_ids()),
            **rows,
        }


async def poison(machine: Machine, span: Span) -> Figures:
    """Let the database refuse the rows of one entity: the same error class as any row that validation missed."""
    async with machine.world() as world:
        await world.serve()
        await world.sql(f"ALTER TABLE PredictionLog ADD CONSTRAINT poison CHECK (entity_id <> '{POISONED}') NOT VALID")
        seen = await measured(world, NOTHING, span)
        poisoned = [
            answer.headers[b"x-prediction-id"].decode()
            for answer in seen.load.answers
            if answer.status == 200 and entity_of(distinct_of(answer.number)) == POISONED
        ]
        innocent = Load([a for a in seen.load.answers if entity_of(distinct_of(a.number)) != POISONED])
        rows = await world.lost_and_doubled(innocent)
        await asyncio.sleep(_OWN_COUNTERS_SECONDS)
        (dead,) = await world.sql("SELECT count(*) AS n FROM PredictionDeadLetter")
        return {
            "requests": len(seen.load.answers),
            "failed": len(seen.failed),
            "innocent_rows_lost": rows["rows_lost"],
            "rows_dup": rows["rows_dup"],
            "poisoned": len(poisoned),
            "rejected_minus_poisoned": abs(dead["n"] - len(poisoned)) + abs(world.metric(_REJECTED) - len(poisoned)),
        }


async def no_partition(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        (headroom,) = await world.sql(
            """SELECT extract(epoch FROM max(to_timestamp(right(relname, 7), 'YYYY_MM')) + INTERVAL '1 month' - now())
                      / 86400 AS days
               FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
               WHERE inhparent = 'predictionlog'::regclass AND relname ~ '^predictionlog_[0-9]{4}_[0-9]{2}$'"""
        )
        for row in await world.sql(_PARTITIONS):
            await world.sql(f"DROP TABLE {row['name']}")
        await world.serve()
        figures = await standard(world, NOTHING, span)
        return {**figures, "partition_headroom_days": float(headroom["days"])}


async def clock_jumps(machine: Machine, span: Span) -> Figures:
    """Move the clock on the wall of a proxy under load, there and back; the clock that times are measured by stays."""
    library = next(iter(sorted(_LIBRARIES.glob("*/faketime/libfaketimeMT.so.1"))), None)
    if library is None:
        raise NotHere("libfaketime is not installed, and no setting of the product moves its clock")
    async with machine.world() as world:
        clock = world.folder / "clock"
        clock.write_text(JUMPS[-1])
        await world.champion()
        await world.start_proxy(
            environment={
                "LD_PRELOAD": str(library),
                "FAKETIME_TIMESTAMP_FILE": str(clock),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        )

        @asynccontextmanager
        async def jumping() -> AsyncIterator[None]:
            for jump in JUMPS:
                clock.write_text(jump)
                await asyncio.sleep(span.during / len(JUMPS))
            yield

        seen = await measured(world, jumping(), span._replace(during=0.0))
        rows = await world.lost_and_doubled(seen.load)
        (far,) = await world.sql(
            """SELECT count(*) FILTER (WHERE predicted_at > now() + INTERVAL '10 days') AS ahead,
                      count(*) FILTER (WHERE predicted_at < now() - INTERVAL '1 hour') AS behind FROM PredictionLog"""
        )
        return {**seen.figures(), **rows, "rows_ahead": far["ahead"], "rows_behind": far["behind"]}


async def archiver_killed(machine: Machine, _span: Span) -> Figures:
    """Kill an archiver at each step of a month, one after the other, and look for every row after each kill."""
    async with machine.world() as world:
        database = await asyncpg.connect(world.url, timeout=10)
        await fill(database, [month_ago(4), month_ago(3)], ARCHIVED_ROWS // 2, await versions_of(database))
        before = Counter(await ids_logged(database))
        neither = both = kills = unfinished = 0
        for step in (*ARCHIVER_STEPS, "never"):
            code = await asyncio.to_thread(_run_archiver, world, step)
            kills += code == -signal.SIGKILL
            unfinished += step == "never" and code != 0
            seen = await ids_seen(world.url)
            neither += (before - seen).total()
            both += (seen - before).total()
        unfinished += await database.fetchval("SELECT count(*) FROM LogArchive WHERE state <> 'archived'")
        unfinished += await database.fetchval("SELECT count(*) FROM PredictionLog")
        database.terminate()
        return {
            "rows": before.total(),
            "kills": kills,
            "rows_in_neither": neither,
            "rows_in_both": both,
            "unfinished": unfinished,
        }


def _run_archiver(world: World, moment: str) -> int:
    arguments = ["-m", "rigs.faults.archive_worker", world.url, str(world.folder / "archive"), moment]
    return subprocess.run([sys.executable, *arguments], timeout=120, check=False).returncode


_COUNTED = at_most(failed=0, rows_dup=0, lost_minus_counted=0)
_UNDERCOUNTED = at_least(lost_minus_counted=0, counted=1, landed_at_end_ratio=0.9)
ROWS = (
    Row(
        "LG-01",
        "spool full (128 KB), Postgres refuses",
        "answers go on, drops are counted; rows land again once Postgres is back",
        (*_COUNTED, *_UNDERCOUNTED),
        spool_full,
    ),
    Row("LG-02", "disk full (96 KB), Postgres refuses", "as LG-01", (*_COUNTED, *_UNDERCOUNTED), disk_full),
    Row(
        "LG-03",
        "proxy killed with rows in its spool",
        "the next one ships them",
        (*at_most(rows_lost=0, rows_dup=0), *at_least(answered=1)),
        killed_with_queued_rows,
    ),
    Row(
        "LG-04",
        "rows that Postgres refuses",
        "found by halving, kept as dead letters",
        (*at_most(failed=0, innocent_rows_lost=0, rows_dup=0, rejected_minus_poisoned=0), *at_least(poisoned=1)),
        poison,
    ),
    Row(
        "LG-05",
        "no partition for this month",
        "made, and the batch written again; months are made ahead",
        (*NOTHING_LOST, *at_least(partition_headroom_days=35)),
        no_partition,
    ),
    Row(
        "LG-06",
        "the clock jumps +11 days and -2 hours",
        "time-outs are monotonic; rows land",
        (*NOTHING_LOST, *at_least(rows_ahead=1, rows_behind=1)),
        clock_jumps,
    ),
    Row(
        "LG-07",
        "archiver killed at each step",
        "manifest first, detach last; the next run finishes",
        (*at_most(rows_in_neither=0, rows_in_both=0, unfinished=0), *at_least(kills=8)),
        archiver_killed,
    ),
)
