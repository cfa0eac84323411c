"""What ``understudy doctor`` asks a Postgres: its version, its clock, its partitions, the proxies it has seen."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from understudy.adapters.postgres.connections.connection import connect, session, translated
from understudy.adapters.postgres.connections.proxy_reports import ProxyReports

_ASK = "SELECT current_setting('server_version') AS version, extract(epoch FROM clock_timestamp())::float8 AS clock"
_TABLES = "SELECT to_regclass('servingpolicy') IS NOT NULL"
_PARTITIONS = """
    SELECT max(substring(c.relname FROM '^predictionlog_(\\d{4}_\\d{2})$'))
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass('predictionlog')
"""
_PROXIES = (
    "SELECT instance, generations::text, seen_at, extract(epoch FROM now() - seen_at)::float8 AS age "
    "FROM proxyinstance WHERE isfinite(seen_at)"
)
_SETTLED = "SELECT model_name, generation FROM servingpolicy WHERE updated_at < now() - $1 * INTERVAL '1 second'"


# One row of a month shows that the month is still in Postgres.
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


# A split or an open rollout, which something has to watch, and a guard that failed of late, or waits because single
# entities fail (as `time`), of each model: with all of its versions that did.
_GUARDS = """
    SELECT policy.model_name, policy.guard, EXISTS (
               SELECT FROM rollout AS open
               WHERE open.model_name = policy.model_name AND open.phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')
           ) AS is_watched, failed.reason
    FROM servingpolicy AS policy
    CROSS JOIN LATERAL (
        SELECT string_agg(reason, '; ' ORDER BY id) AS reason FROM (
            SELECT id, state ->> 'reason' AS reason,
                   rank() OVER (ORDER BY coalesce(guard_id, id) DESC) AS age
            FROM rollout AS guard
            WHERE guard.model_name = policy.model_name AND (guard.kind = 'guard' OR guard.guard_id IS NOT NULL) AND (
                (guard.phase = 'FAILED' AND guard.finished_at > now() - INTERVAL '1 day')
                OR (guard.phase = 'WAITING' AND coalesce(guard.state ->> 'waiting_for', 'time') = 'time'))) AS guards
        WHERE age = 1) AS failed
    WHERE policy.challenger_weight > 0 OR policy.arms <> '[]' OR failed.reason IS NOT NULL OR EXISTS (
        SELECT FROM rollout AS open WHERE open.model_name = policy.model_name AND open.kind = 'rollout'
            AND open.phase IN ('PROGRESSING', 'WAITING', 'PROMOTING'))
    ORDER BY policy.model_name
"""

_GATES = """
    SELECT model_name, state ->> 'waiting_for', state ->> 'reason',
           greatest(extract(epoch FROM now())::float8 - coalesce((state #>> '{gate,since}')::float8, 0), 0)
    FROM rollout WHERE phase = 'WAITING' AND state ->> 'waiting_for' IN ('approval', 'gate') ORDER BY model_name, id
"""

# The challenger and the arms of each model that have a share now. A call that the champion answered in the version's
# place is an error of the version's own windows. Of the last hour, or else of the last day.
_FAILING = """
    SELECT DISTINCT ON (version.model_name, version.id)
           version.model_name, version.version, sum(w.errors)::bigint, sum(w.calls)::bigint, policy.fallback,
           lately.hours
    FROM servingpolicy AS policy
    JOIN modelversion AS version ON version.model_name = policy.model_name AND (
        (version.id = policy.challenger_version AND policy.challenger_weight > 0)
        OR policy.arms @> jsonb_build_array(jsonb_build_object('version_id', version.id)))
    CROSS JOIN (VALUES (1), (24)) AS lately (hours)
    JOIN predictionwindow AS w ON w.model_version_id = version.id AND w.role = 'challenger'
        AND w.window_start >= now() - lately.hours * INTERVAL '1 hour'
    GROUP BY version.id, policy.model_name, lately.hours
    HAVING sum(w.calls) >= $1 AND sum(w.errors) > $2::float8 * sum(w.calls)
    ORDER BY version.model_name, version.id, lately.hours
"""

_ERASURES = """
    SELECT model_name, extract(epoch FROM now() - began_at)::float8 AS age FROM entityerasure
    WHERE finished_at IS NULL AND began_at < now() - $1 * INTERVAL '1 second' ORDER BY began_at LIMIT $2
"""


class GuardSeen(NamedTuple):
    """A model whose traffic is split, that has an open rollout, or whose guard failed within a day."""

    model_name: str
    guard: str
    """As the policy has it."""
    is_watched: bool
    """Whether a guard or a rollout is open."""
    failure: str | None
    """What the newest guard that failed within a day found; ``None``: none did."""


class GateSeen(NamedTuple):
    """A rollout that waits at a gate of its plan."""

    model_name: str
    waiting_for: str
    """``approval`` of a person, or ``gate`` while a service has time to answer."""
    reason: str
    waited_seconds: float


class FailingShare(NamedTuple):
    """A version with a share of a model's traffic that failed too many of its calls in the last hour, or day."""

    model_name: str
    version: str
    errors: int
    """Judged calls that it failed, those that the champion answered in its place among them."""
    calls: int
    """Its judged calls."""
    has_fallback: bool
    """Whether the champion answers what it fails: ``ServingPolicy.fallback``."""
    hours: int = 1
    """Of how long the calls are: an hour, or a day where that hour has few calls, or few of them failed."""


class ErasureSeen(NamedTuple):
    """An erasure of an entity that no run has finished."""

    model_name: str | None
    """``None``: of every model."""
    age_seconds: float
    """Time since its first run began."""


class MonitorSeen(NamedTuple):
    """The monitor that led last and has not released the lease."""

    holder: str
    age_seconds: float
    """Time since it renewed the lease."""


class ArchiveCheckup(NamedTuple):
    """The state of archiving."""

    oldest_days: float | None
    """Time since the end of the oldest month with rows in Postgres; ``None``: no month has any; negative: not ended."""
    succeeded_seconds: float | None
    """Time since a run succeeded; ``None``: none ever did."""


class ProxySeen(NamedTuple):
    """A proxy's latest report, with the generation of each model that it acts on."""

    instance: str
    generations: dict[str, int]
    seen_at: datetime
    age_seconds: float


class PostgresCheckup(NamedTuple):
    """The checkup's result. Without our tables there are neither partitions nor proxies."""

    server_version: str
    round_trip_seconds: float
    clock_ahead_seconds: float
    """How far this machine's clock is ahead of Postgres'; less than half a round trip is noise."""
    last_partition: str | None
    """The month up to which PredictionLog has partitions, as ``2027-02``."""
    proxies: tuple[ProxySeen, ...]
    settled: Mapping[str, int]
    """The generation of each model's policy that has stood for long enough that proxies act on it."""
    proxies_hidden: bool = False
    """Whether their reports could not be read, since a session keeps the table locked."""


async def examine_postgres(database_url: str, settled_seconds: float, timeout_seconds: float = 5.0) -> PostgresCheckup:
    """Run the checkup of a database; a policy that changed within ``settled_seconds`` is left out of ``settled``.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name="understudy-doctor")
    try:
        async with translated("the checkup", timeout_seconds):
            await connection.fetchrow(_ASK)  # the first query of a connection also fills the catalogue's cache
            began, clock_began = time.monotonic(), time.time()
            (asked,) = await connection.fetch(_ASK)
            round_trip_seconds = time.monotonic() - began
            month, proxies, is_seen, settled = None, [], True, dict[str, int]()
            if await connection.fetchval(_TABLES):
                month = await connection.fetchval(_PARTITIONS)
                rows = await connection.fetch(_SETTLED, settled_seconds)
                settled = {row["model_name"]: row["generation"] for row in rows}
                async with connection.transaction():
                    is_seen = await ProxyReports().can_be_read(connection)
                    proxies = await connection.fetch(_PROXIES) if is_seen else []
    finally:
        connection.terminate()
    return PostgresCheckup(
        server_version=asked["version"].split()[0],
        round_trip_seconds=round_trip_seconds,
        clock_ahead_seconds=clock_began + round_trip_seconds / 2 - asked["clock"],
        last_partition=month.replace("_", "-") if month else None,
        proxies=tuple(map(_proxy_of, proxies)),
        settled=settled,
        proxies_hidden=not is_seen,
    )


async def examine_archive(database_url: str, *, timeout_seconds: float = 5.0) -> ArchiveCheckup:
    """Ask a database with the newest schema for the state of archiving.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not read it.
    """
    async with session(database_url, "the archive's checkup", timeout_seconds, "understudy-doctor") as connection:
        (found,) = await connection.fetch(_ARCHIVE)
        return ArchiveCheckup(*found)


async def examine_monitor(database_url: str, *, timeout_seconds: float = 5.0) -> MonitorSeen | None:
    """Ask a database with the newest schema which monitor leads; ``None``: none ever did, or it released the lease.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not read it.
    """
    async with session(database_url, "the monitor's checkup", timeout_seconds, "understudy-doctor") as connection:
        found = await connection.fetchrow(_MONITOR)
        return None if found is None else MonitorSeen(*found)


async def examine_guards(database_url: str, *, timeout_seconds: float = 5.0) -> list[GuardSeen]:
    """Ask a database with the newest schema which splits there are, and which guards failed within a day.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not read it.
    """
    async with session(database_url, "the guards' checkup", timeout_seconds, "understudy-doctor") as connection:
        return [GuardSeen(*row) for row in await connection.fetch(_GUARDS)]


async def examine_gates(database_url: str, *, timeout_seconds: float = 5.0) -> list[GateSeen]:
    """Ask a database with the newest schema which rollouts wait at a gate.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not read it.
    """
    async with session(database_url, "the gates' checkup", timeout_seconds, "understudy-doctor") as connection:
        return [GateSeen(*row) for row in await connection.fetch(_GATES)]


async def examine_shares(
    database_url: str, least_calls: int, most_failing: float, *, timeout_seconds: float = 5.0
) -> list[FailingShare]:
    """Ask a database with the newest schema which challengers and arms fail.

    Args:
        database_url: Of the database.
        least_calls: Versions with fewer judged calls are left out.
        most_failing: The share of a version's calls, from 0 to 1, that may fail.
        timeout_seconds: For connecting and for the query.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not read it.
    """
    async with session(database_url, "the checkup of shares", timeout_seconds, "understudy-doctor") as connection:
        return [FailingShare(*row) for row in await connection.fetch(_FAILING, least_calls, most_failing)]


async def examine_erasures(
    database_url: str, after_seconds: float, most: int, *, timeout_seconds: float = 5.0
) -> list[ErasureSeen]:
    """Ask a database with the newest schema which erasures of entities are not finished.

    Args:
        database_url: Of the database.
        after_seconds: Younger ones are left out: they may be under way.
        most: Erasures that are returned, the oldest first.
        timeout_seconds: For connecting and for the query.

    Raises:
        RegistryUnavailable: Postgres does not answer in time, or the login may not read it.
    """
    async with session(database_url, "the erasures' checkup", timeout_seconds, "understudy-doctor") as connection:
        return [ErasureSeen(*row) for row in await connection.fetch(_ERASURES, after_seconds, most)]


def _proxy_of(row: Any) -> ProxySeen:
    try:
        generations = {str(name): int(number) for name, number in orjson.loads(row["generations"]).items()}
    except (AttributeError, OverflowError, TypeError, ValueError):  # no proxy wrote that: it confirms nothing
        generations = {}
    return ProxySeen(row["instance"], generations, row["seen_at"], row["age"])
