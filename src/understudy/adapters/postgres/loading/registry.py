"""``LoadingRegistry`` in Postgres: what people ask agents to load, and see of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from shlex import quote

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall, named_by_callers
from understudy.adapters.postgres.connections.signing import sign
from understudy.adapters.postgres.loading.agent_store import JUDGE, storable
from understudy.adapters.postgres.loading.placements import REASONS
from understudy.core.loading.replicas import Replicas
from understudy.core.loading.served_name import served_name
from understudy.core.loading.wanted import SILENT_SECONDS, ManagedVersion, Why
from understudy.errors import NotRegistered, PolicyRefused
from understudy.ports.loading.loading_registry import (
    MissingVersion,
    ServerRecord,
    UnvalidatedVersion,
    ValidationRecord,
    VersionAtServerRecord,
    VersionLoadingRecord,
)
from understudy.ports.registry.registry import RETIRED, Actor

_VERSION = """
    SELECT id, status, backend ->> 'model_name' AS named FROM ModelVersion WHERE model_name = $1 AND version = $2
"""
_LOADING = """
    SELECT group_name, CASE WHEN isfinite(wanted_until) THEN wanted_until END AS wanted_until,
           coalesce(NOT isfinite(wanted_until), FALSE) AS is_kept, pinned_digest, requires_validation,
           replicas_min, replicas_max, understudy_unvalidated(model_version_id) AS unvalidated
    FROM VersionLoading WHERE model_version_id = $1
"""
_LOADED_OF_MODEL = """
    SELECT id, version FROM ModelVersion JOIN VersionLoading ON model_version_id = id
    WHERE model_name = $1 ORDER BY id DESC LIMIT $2
"""
_SERVERS_OF = """
    SELECT coalesce(placement.server, loaded.server) AS server,
           CASE WHEN placement.idle_since IS NULL THEN placement.why END AS why, loaded.state,
           coalesce(loaded.attempt, 0), loaded.error_code, loaded.error, loaded.artifact_digest, loaded.updated_at,
           loaded.next_attempt_at IS NOT NULL
             OR EXISTS (SELECT FROM VersionLoading WHERE model_version_id = $1 AND asked_at > loaded.updated_at),
           ModelServer.group_name
    FROM (SELECT * FROM Placement WHERE model_version_id = $1) AS placement
    FULL JOIN (SELECT * FROM LoadedVersion WHERE model_version_id = $1) AS loaded ON loaded.server = placement.server
    JOIN ModelServer ON ModelServer.name = coalesce(placement.server, loaded.server)
    ORDER BY 1
"""
_LOAD = """
    INSERT INTO VersionLoading
        (model_version_id, group_name, wanted_until, requires_validation, replicas_min, replicas_max)
    VALUES ($1, $2, CASE WHEN $3::float8 IS NULL THEN 'infinity' ELSE now() + make_interval(secs => $3) END,
            coalesce($4, FALSE), nullif($5::smallint, 0), nullif($6::smallint, 0))
    ON CONFLICT (model_version_id) DO UPDATE
    SET group_name = excluded.group_name, wanted_until = excluded.wanted_until, asked_at = now(),
        requires_validation = coalesce($4, VersionLoading.requires_validation),
        replicas_min = CASE WHEN $5 IS NULL THEN VersionLoading.replicas_min ELSE nullif($5, 0) END,
        replicas_max = CASE WHEN $6 IS NULL THEN VersionLoading.replicas_max ELSE nullif($6, 0) END
"""
_VALIDATIONS = """
    SELECT its.name, its.target, its.build, coalesce(version.artifact_digest, loading.pinned_digest), verdict.passed,
           verdict.said, verdict.judged_at, verdict.judged_by, found.problem
    FROM ModelVersion AS version
    JOIN ModelEndpoint AS endpoint ON endpoint.model_version_id = version.id AND endpoint.source = 'agent'
    JOIN ModelServer AS its ON its.name = endpoint.server
    LEFT JOIN VersionLoading AS loading ON loading.model_version_id = version.id
    LEFT JOIN VersionValidation AS verdict ON verdict.model_version_id = version.id AND verdict.server = its.name
    LEFT JOIN understudy_validation_problems($1) AS found ON found.server = its.name
    WHERE version.id = $1 ORDER BY 1
"""
_UNVALIDATED = """
    SELECT model_name, version, status, requires_validation, problem
    FROM ModelVersion JOIN VersionLoading ON model_version_id = id
    CROSS JOIN LATERAL (
        SELECT coalesce(understudy_unvalidated(id), (
            SELECT min(found.problem) FROM understudy_validation_problems(id) AS found
            JOIN VersionValidation AS verdict ON verdict.model_version_id = id AND verdict.server = found.server))
    ) AS why (problem)
    WHERE problem IS NOT NULL
      AND EXISTS (SELECT FROM ModelEndpoint AS endpoint WHERE endpoint.model_version_id = id AND source = 'agent')
    ORDER BY model_name, id
"""
_UNLOAD = "UPDATE VersionLoading SET wanted_until = NULL WHERE model_version_id = $1"
_WHY = f"""
    SELECT {REASONS} AS reasons
    FROM VersionLoading AS loading JOIN ModelVersion AS version ON version.id = loading.model_version_id
    LEFT JOIN ServingPolicy AS policy ON policy.model_name = version.model_name
    WHERE version.id = $1
"""  # noqa: S608 - a constant
_HAS_SERVERS = "SELECT EXISTS (SELECT FROM ModelServer WHERE group_name = $1)"
_GROUPS = "SELECT DISTINCT group_name FROM ModelServer ORDER BY 1"
_SERVERS = """
    SELECT name, group_name, target, build, problem, extract(epoch FROM now() - seen_at)::float8 AS seen_seconds,
           (SELECT count(*) FROM Placement WHERE server = name AND idle_since IS NULL) AS wanted,
           (SELECT count(*) FROM LoadedVersion WHERE server = name AND state = 'AVAILABLE') AS available,
           (SELECT count(*) FROM LoadedVersion WHERE server = name AND state = 'ERROR') AS failed,
           draining_at IS NOT DISTINCT FROM seen_at AS is_draining
    FROM ModelServer ORDER BY group_name, name
"""
_AT = "CASE WHEN draining_at = seen_at THEN 'draining' ELSE nullif(loaded.state, 'END') END"
"""What a server that does not have a version is at: one that dropped it once, and is to have it, has not begun."""
_MISSING = f"""
    SELECT wanted.id, model_name, version, wanted.group_name, reasons, live.servers, live.without,
           live.replicas, live.has, replicas_min,
           EXISTS (SELECT FROM ModelEndpoint WHERE model_version_id = wanted.id) AS has_endpoint
    FROM (SELECT version.id, version.model_name, version.version, loading.group_name,
                 loading.replicas_min, loading.replicas_max, {REASONS} AS reasons
          FROM VersionLoading AS loading JOIN ModelVersion AS version ON version.id = loading.model_version_id
          LEFT JOIN ServingPolicy AS policy ON policy.model_name = version.model_name
          WHERE $1::text IS NULL OR version.model_name = $1) AS wanted
    CROSS JOIN LATERAL (
        SELECT count(*) AS servers, array_agg(
            concat_ws(' ', name || ':', coalesce({_AT}, 'nothing has begun'), loaded.error_code, loaded.error)
            ORDER BY name) FILTER (WHERE loaded.state IS DISTINCT FROM 'AVAILABLE'
                                   AND (replicas_min IS NULL OR placed.server IS NOT NULL)) AS without,
               least(replicas_max, greatest(replicas_min, count(placed))) AS replicas,
               count(*) FILTER (WHERE loaded.state = 'AVAILABLE') AS has
        FROM ModelServer AS server
        LEFT JOIN Placement AS placed
            ON placed.server = server.name AND placed.model_version_id = wanted.id AND placed.idle_since IS NULL
        LEFT JOIN LoadedVersion AS loaded ON loaded.server = server.name AND loaded.model_version_id = wanted.id
        WHERE server.group_name = wanted.group_name AND seen_at > now() - INTERVAL '{SILENT_SECONDS} seconds') AS live
    WHERE reasons <> '{{}}' AND (
        live.servers = 0
        OR CASE WHEN replicas_min IS NULL THEN live.without IS NOT NULL ELSE live.has < live.replicas END)
    ORDER BY model_name, version
"""  # noqa: S608 - constants


class PostgresLoadingRegistry(SessionPerCall):
    """Opens a connection for each call and keeps none."""

    async def load(
        self,
        model_name: str,
        version: str,
        actor: Actor,
        *,
        group_name: str | None,
        seconds: float | None,
        requires_validation: bool | None = None,
        replicas: Replicas | None = None,
        dry_run: bool = False,
    ) -> VersionLoadingRecord:
        async with self._signed(actor, dry_run=dry_run) as connection:
            version_id, status, named = await _version(connection, model_name, version)
            before = await connection.fetchrow(_LOADING, version_id)
            group_before = None if before is None else before["group_name"]
            group = group_name or group_before
            if group is None:
                raise PolicyRefused(
                    f"version {version} of {model_name} has no group of servers to be loaded onto",
                    hint="Name one with --group; understudy server list shows the groups there are.",
                )
            loaded_as = served_name(model_name, version)
            if named != loaded_as:
                raise PolicyRefused(
                    f"proxies call version {version} of {model_name} as {named or model_name}, and agents would load it"
                    f" as {loaded_as}",
                    hint="Register the next version with --group: then both have one name.",
                )
            if status == RETIRED:
                raise PolicyRefused(
                    f"version {version} of {model_name} is retired",
                    hint=f"understudy version restore {quote(model_name)} {quote(version)} makes it staging again.",
                )
            if group_before not in (None, group):
                await _check_move(connection, model_name, version, version_id, group)
            numbers = (None, None) if replicas is None else replicas
            await connection.execute(_LOAD, version_id, group, seconds, requires_validation, *numbers)
            return await _record(connection, model_name, version, version_id)

    async def unload(
        self, model_name: str, version: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionLoadingRecord:
        async with self._signed(actor, dry_run=dry_run) as connection:
            version_id, _, _ = await _version(connection, model_name, version)
            if await connection.fetchrow(_LOADING, version_id) is None:
                raise NotRegistered(
                    f"agents do not load version {version} of {model_name}",
                    hint="The servers that people registered for it: understudy version show.",
                )
            await connection.execute(_UNLOAD, version_id)
            why = await _why(connection, version_id)
            if why is not None:
                raise PolicyRefused(
                    f"version {version} of {model_name} is wanted as {why.value}, and stays loaded",
                    hint="It is unloaded by itself once it is that no more.",
                )
            return await _record(connection, model_name, version, version_id)

    async def show(self, model_name: str, version: str) -> VersionLoadingRecord | None:
        async with self._transaction() as connection:
            version_id, _, _ = await _version(connection, model_name, version)
            if await connection.fetchrow(_LOADING, version_id) is None:
                return None
            return await _record(connection, model_name, version, version_id)

    async def of_model(self, model_name: str, at_most: int) -> Sequence[VersionLoadingRecord]:
        async with self._transaction() as connection:
            rows = await connection.fetch(_LOADED_OF_MODEL, model_name, at_most)
            return [await _record(connection, model_name, row["version"], row["id"]) for row in rows]

    async def judge(
        self, model_name: str, version: str, asked: ValidationRecord, actor: Actor, *, passed: bool, said: str
    ) -> None:
        async with self._transaction() as connection:
            version_id, _, _ = await _version(connection, model_name, version)
            judged = (asked.server, asked.build, asked.digest, passed, storable(said), actor.name)
            await connection.execute(JUDGE, version_id, *judged)

    async def list_unvalidated(self) -> Sequence[UnvalidatedVersion]:
        async with self._transaction() as connection:
            return [UnvalidatedVersion(*row) for row in await connection.fetch(_UNVALIDATED)]

    async def list_missing(self, model_name: str | None = None) -> Sequence[MissingVersion]:
        async with self._transaction() as connection:
            return [_missing(row) for row in await connection.fetch(_MISSING, model_name)]

    async def list_servers(self) -> Sequence[ServerRecord]:
        async with self._transaction() as connection:
            return [ServerRecord(*row) for row in await connection.fetch(_SERVERS)]

    @asynccontextmanager
    async def _signed(self, actor: Actor, *, dry_run: bool) -> AsyncIterator[asyncpg.Connection]:
        async with self._transaction(dry_run=dry_run) as connection:
            await sign(connection, actor)
            yield connection

    @asynccontextmanager
    async def _transaction(self, *, dry_run: bool = False) -> AsyncIterator[asyncpg.Connection]:
        async with self._session("what agents load", "understudy-loading") as connection:
            transaction = connection.transaction()
            await transaction.start()
            with named_by_callers():
                yield connection
            await (transaction.rollback() if dry_run else transaction.commit())


async def _version(connection: asyncpg.Connection, model_name: str, version: str) -> tuple[int, str, str | None]:
    """Return a version's id, its status, and what proxies call it at its servers."""
    row = await connection.fetchrow(_VERSION, model_name, version)
    if row is None:
        raise NotRegistered(f"{model_name} has no version {version!r}")
    return row["id"], row["status"], row["named"]


def _missing(row: asyncpg.Record) -> MissingVersion:
    why = ManagedVersion(row["id"], row["group_name"], frozenset(map(Why, row["reasons"]))).why
    assert why is not None  # it has a reason
    without = tuple(row["without"] or ())
    return MissingVersion(
        row["model_name"],
        row["version"],
        why.value,
        row["group_name"],
        row["servers"],
        without,
        row["has_endpoint"],
        None if row["replicas_min"] is None else row["replicas"],
        row["has"],
    )


async def _why(connection: asyncpg.Connection, version_id: int) -> Why | None:
    """Return why a version that agents load is wanted."""
    reasons = await connection.fetchval(_WHY, version_id)
    return ManagedVersion(version_id, "", frozenset(map(Why, reasons))).why


async def _check_move(
    connection: asyncpg.Connection, model_name: str, version: str, version_id: int, group: str
) -> None:
    """Refuse to move a version that is wanted to a group without servers: it may be misspelt."""
    why = await _why(connection, version_id)
    if why is not None and not await connection.fetchval(_HAS_SERVERS, group):
        raise PolicyRefused(
            f"version {version} of {model_name} is wanted as {why.value}, and no agent reports a server of the group"
            f" {group}",
            hint="understudy server list shows the groups there are; start an agent in the new one first.",
        )


async def _record(
    connection: asyncpg.Connection, model_name: str, version: str, version_id: int
) -> VersionLoadingRecord:
    loading = await connection.fetchrow(_LOADING, version_id)
    assert loading is not None  # it was written or read in this transaction
    until: datetime | None = loading["wanted_until"]
    servers = [VersionAtServerRecord(*row) for row in await connection.fetch(_SERVERS_OF, version_id)]
    return VersionLoadingRecord(
        model_name,
        version,
        loading["group_name"],
        until,
        loading["is_kept"],
        loading["pinned_digest"],
        servers,
        loading["requires_validation"],
        [ValidationRecord(*row) for row in await connection.fetch(_VALIDATIONS, version_id)],
        loading["unvalidated"],
        [row["group_name"] for row in await connection.fetch(_GROUPS)],
        None if loading["replicas_min"] is None else Replicas(loading["replicas_min"], loading["replicas_max"]),
    )
