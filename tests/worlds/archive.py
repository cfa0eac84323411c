"""A log with months that are over, and where each of its rows is."""

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import asyncpg
from pyarrow import parquet

from understudy.adapters.archive.open import open_archive
from understudy.adapters.postgres.prediction_log.log_snapshot import log_snapshot
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.log_archive import WantedRows

ALL_TIME = WantedRows(0.0, 4_102_444_800.0)
MODELS = ("churn", "visits/ä=%")
_FILL = """
    INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,
        prediction_id, assigned_version_id, score, latency_us, role, reason, status, error_code, bucket,
        policy_generation, cache_hit, defaulted)
    SELECT ($3::bigint[])[1 + n % cardinality($3::bigint[])], 'user-' || n % 1000,
           encode(sha256(n::text::bytea), 'hex'), jsonb_build_object('score', (n % 997) / 997.0), n % 90,
           ($1::timestamptz[])[1 + n * days / $2] + interval '1 day' * ((n * days % $2 + 0.5) / $2),
           gen_random_uuid(), ($3::bigint[])[1 + n % cardinality($3::bigint[])],
           CASE WHEN n % 50 > 0 THEN (n % 997) / 997.0 END, 1000 * (n % 90), 'champion', 'bucket',
           CASE WHEN n % 50 > 0 THEN 'ok' ELSE 'timeout' END, CASE WHEN n % 50 = 0 THEN 'E504' END, n % 100, 3,
           n % 7 = 0, NULL
    FROM generate_series(0, $2::int - 1) AS n, cardinality($1::timestamptz[]) AS days
"""


class Month(NamedTuple):
    """A month, in UTC."""

    start: datetime
    end: datetime

    @property
    def partition(self) -> str:
        return f"predictionlog_{self.start:%Y_%m}"


def month_ago(months: int, now: datetime | None = None) -> Month:
    """Return the month that was so many months before this one."""
    today = now or datetime.now(UTC)
    number = today.year * 12 + today.month - 1 - months
    first, beyond = (datetime(place // 12, place % 12 + 1, 1, tzinfo=UTC) for place in (number, number + 1))
    return Month(first, beyond)


def every_day(month: Month) -> list[datetime]:
    """Return where each day of a month begins."""
    return [month.start + timedelta(days=number) for number in range((month.end - month.start).days)]


def few_days(month: Month) -> list[datetime]:
    """Return where four days of a month begin: each day of each model is a file of its own, which takes its time."""
    days = every_day(month)
    return [days[0], days[1], days[len(days) // 2], days[-1]]


async def versions_of(database: asyncpg.Connection, models: Sequence[str] = MODELS) -> list[int]:
    """Register a version of each model and return their ids."""
    return [
        await database.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ($1, '1', 'file:///m', 'sklearn', '{}') RETURNING id",
            model,
        )
        for model in models
    ]


async def fill(
    database: asyncpg.Connection,
    months: Sequence[Month],
    rows: int,
    version_ids: Sequence[int],
    days: Callable[[Month], Sequence[datetime]] = every_day,
) -> None:
    """Log so many rows in each month, evenly over the versions and over its days, or over those that are given."""
    for month in months:
        await database.execute("SELECT understudy_ensure_partitions(0, $1)", month.start)
        await database.execute(_FILL, days(month), rows, list(version_ids), timeout=300)
    for month in months:  # ensuring one also makes the one before it
        before = month_ago(1, month.start)
        if before not in months and before.end < month_ago(1).start:
            await database.execute(f"DROP TABLE IF EXISTS {before.partition}")


async def ids_logged(database: asyncpg.Connection) -> list[int]:
    return [row[0] for row in await database.fetch("SELECT id FROM PredictionLog ORDER BY 1", timeout=60)]


async def ids_seen(url: str, open_store: Callable[[str], ArchiveStore] | None = None) -> Counter[int]:
    """Return how often a reader of log and archive sees each row."""
    seen: Counter[int] = Counter()
    database = await asyncpg.connect(url, timeout=10)
    try:
        async with log_snapshot(url, timeout_seconds=10) as snapshot:
            places = await snapshot.files(ALL_TIME)
            # The snapshot's own lock keeps months where they are.
            seen.update(await ids_logged(database))
    finally:
        database.terminate()
    for place in places:
        store = (open_store or folder_store)(place.location)
        with tempfile.TemporaryDirectory() as folder:
            for file in place.files:
                path = Path(folder) / "file.parquet"
                assert await store.fetch(file.key, path), file.key
                seen.update(parquet.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist())
    return seen


def folder_store(location: str) -> ArchiveStore:
    return open_archive(location, endpoint=None, timeout_seconds=10)
