"""What ``understudy doctor`` asks a Postgres: its version, its clock, its partitions, the proxies it has seen."""

import time
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from understudy.adapters.postgres.connection import connect, translated

_ASK = "SELECT current_setting('server_version') AS version, extract(epoch FROM clock_timestamp())::float8 AS clock"
_TABLES = "SELECT to_regclass('servingpolicy') IS NOT NULL"
_PARTITIONS = """
    SELECT max(substring(c.relname FROM '^predictionlog_(\\d{4}_\\d{2})$'))
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass('predictionlog')
"""
_PROXIES = (
    "SELECT instance, generations::text, seen_at, extract(epoch FROM now() - seen_at)::float8 AS age FROM proxyinstance"
)


# One row of a month is enough to know that it is still here.
_ARCHIVE = """
    SELECT (SELECT extract(epoch FROM now() - beyond)::float8 / 86400
            FROM (SELECT substring(pg_get_expr(relpartbound, oid) FROM 'FROM \\(''([^'']+)''\\)')::timestamptz AS first,
                         substring(pg_get_expr(relpartbound, oid) FROM 'TO \\(''([^'']+)''\\)')::timestamptz AS beyond
                  FROM pg_class JOIN pg_inherits ON inhrelid = oid
                  WHERE inhparent = 'predictionlog'::regclass) AS months
            WHERE EXISTS (SELECT FROM predictionlog WHERE predicted_at >= first AND predicted_at < beyond)
            ORDER BY first LIMIT 1) AS oldest_days,
           (SELECT extract(epoch FROM now() - succeeded_at)::float8 FROM archivestatus) AS succeeded_seconds
"""


_MONITOR = "SELECT holder, extract(epoch FROM now() - renewed_at)::float8 AS age FROM monitorlease WHERE holder <> ''"


class MonitorSeen(NamedTuple):
    """The monitor that led last and has not given the lease back."""

    holder: str
    age_seconds: float
    """How long ago it renewed its lease."""


class ArchiveCheckup(NamedTuple):
    """How archiving goes."""

    oldest_days: float | None
    """How long ago the oldest month ended that has rows in Postgres; ``None``: none has; negative: it has not ended."""
    succeeded_seconds: float | None
    """How long ago a run came to its end; ``None``: none ever did."""


class ProxySeen(NamedTuple):
    """A proxy's latest sign of life, and the generation of each model that it acts on."""

    instance: str
    generations: dict[str, int]
    seen_at: datetime
    age_seconds: float


class PostgresCheckup(NamedTuple):
    """What was found. Without our tables there are neither partitions nor proxies."""

    server_version: str
    round_trip_seconds: float
    clock_ahead_seconds: float
    """How far this machine's clock is ahead of Postgres'; less than half a round trip of it is noise."""
    last_partition: str | None
    """The month up to which PredictionLog has partitions, as ``2027-02``."""
    proxies: tuple[ProxySeen, ...]


async def examine_postgres(database_url: str, *, timeout_seconds: float = 5.0) -> PostgresCheckup:
    """Ask a database all of it.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name="understudy-doctor")
    try:
        async with translated("the checkup", timeout_seconds):
            await connection.fetchrow(_ASK)  # the first query of a connection pays for the catalogue's cache
            began, clock_began = time.monotonic(), time.time()
            (asked,) = await connection.fetch(_ASK)
            round_trip_seconds = time.monotonic() - began
            month, proxies = None, []
            if await connection.fetchval(_TABLES):
                month = await connection.fetchval(_PARTITIONS)
                proxies = await connection.fetch(_PROXIES)
    finally:
        connection.terminate()
    return PostgresCheckup(
        server_version=asked["version"].split()[0],
        round_trip_seconds=round_trip_seconds,
        clock_ahead_seconds=clock_began + round_trip_seconds / 2 - asked["clock"],
        last_partition=month.replace("_", "-") if month else None,
        proxies=tuple(map(_proxy_of, proxies)),
    )


async def examine_archive(database_url: str, *, timeout_seconds: float = 5.0) -> ArchiveCheckup:
    """Ask a database with the newest schema how archiving goes.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not know.
    """
    connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name="understudy-doctor")
    try:
        async with translated("the archive's checkup", timeout_seconds):
            (found,) = await connection.fetch(_ARCHIVE)
            return ArchiveCheckup(*found)
    finally:
        connection.terminate()


async def examine_monitor(database_url: str, *, timeout_seconds: float = 5.0) -> MonitorSeen | None:
    """Ask a database with the newest schema which monitor leads; ``None``: none ever did, or the last one said goodbye.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not know.
    """
    connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name="understudy-doctor")
    try:
        async with translated("the monitor's checkup", timeout_seconds):
            found = await connection.fetchrow(_MONITOR)
            return None if found is None else MonitorSeen(*found)
    finally:
        connection.terminate()


def _proxy_of(row: Any) -> ProxySeen:
    generations = {str(name): int(number) for name, number in orjson.loads(row["generations"]).items()}
    return ProxySeen(row["instance"], generations, row["seen_at"], row["age"])
