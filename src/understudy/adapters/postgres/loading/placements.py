"""``PlacementStore`` in Postgres."""

from collections.abc import Collection, Sequence

import asyncpg

from understudy.adapters.postgres.connections.connection import KeptConnection
from understudy.adapters.postgres.monitoring.lease import fenced
from understudy.core.loading.idle import Idle
from understudy.core.loading.replicas import FALL_SECONDS, Replicas
from understudy.core.loading.wanted import SILENT_SECONDS, GroupMember, ManagedVersion, Place, Placements, Why
from understudy.ports.loading.placement_store import LoadingFacts
from understudy.ports.monitoring.lease import Epoch

REASONS = """
    array_remove(ARRAY[
        CASE WHEN policy.champion_version = version.id THEN 'champion' END,
        CASE WHEN policy.challenger_version = version.id THEN 'challenger' END,
        CASE WHEN policy.shadow_version = version.id THEN 'shadow' END,
        CASE WHEN policy.arms @> jsonb_build_array(jsonb_build_object('version_id', version.id)) THEN 'arm' END,
        CASE WHEN EXISTS (
            SELECT FROM Rollout WHERE model_name = version.model_name
              AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')
              AND version.id IN (champion_version, challenger_version)) THEN 'rollout' END,
        CASE WHEN policy.previous_champion = version.id AND version.status <> 'retired' THEN 'previous champion' END,
        CASE WHEN loading.wanted_until > now() AND version.status <> 'retired' THEN 'asked for' END
    ], NULL)
"""
"""Why a version is wanted now: each is a ``core.loading.wanted.Why``."""
_VERSIONS = f"""
    SELECT version.id, version.model_name, version.version, loading.group_name, {REASONS} AS reasons,
           loading.replicas_min, loading.replicas_max,
           loading.wanted_until IS NOT NULL AND version.status <> 'retired' AS may_idle,
           CASE WHEN loading.wanted_until IS NOT NULL AND version.status <> 'retired'
                 AND NOT EXISTS (SELECT FROM ModelEndpoint AS its WHERE its.model_version_id = version.id)
                THEN (SELECT max(predicted_at) FROM PredictionLog AS its
                      WHERE its.model_version_id = version.id AND predicted_at > now() - INTERVAL '15 minutes'
                        AND reason = 'forced' AND its.status = 'unavailable') END IS NOT NULL AS is_called
    FROM VersionLoading AS loading JOIN ModelVersion AS version ON version.id = loading.model_version_id
    LEFT JOIN ServingPolicy AS policy ON policy.model_name = version.model_name
"""  # noqa: S608 - a constant
_SERVERS = f"""
    SELECT name, group_name, seen_at > now() - INTERVAL '{SILENT_SECONDS} seconds', problem = '', room_bytes,
           draining_at IS NOT DISTINCT FROM seen_at
    FROM ModelServer
"""  # noqa: S608 - a constant
_PLACED = "SELECT model_version_id, server, why FROM Placement"
_LAST_CALL = """
    (SELECT max(predicted_at) FROM PredictionLog AS its
     WHERE its.model_version_id = Placement.model_version_id AND its.predicted_at > now() - INTERVAL '1 day')
"""
"""Nothing but calls by its name reach an idle version, and those are in no window."""
_IDLE = f"""
    SELECT model_version_id, server, extract(epoch FROM now() - idle_since)::float8,
           extract(epoch FROM now() - greatest(idle_since, {_LAST_CALL}))::float8
    FROM Placement WHERE idle_since IS NOT NULL
"""  # noqa: S608 - a constant
_AVAILABLE = f"""
    SELECT model_version_id, server FROM LoadedVersion JOIN ModelServer ON ModelServer.name = server
    WHERE state = 'AVAILABLE' AND seen_at > now() - INTERVAL '{SILENT_SECONDS} seconds'
"""  # noqa: S608 - a constant
_WITHOUT_ROOM = "SELECT model_version_id, server FROM LoadedVersion WHERE state = 'ERROR' AND error_code = 'E214'"
_SIZES = """
    SELECT model_version_id, server, bytes FROM LoadedVersion
    CROSS JOIN LATERAL (
        SELECT CASE WHEN error_code = 'E214' THEN greatest(expected_bytes, memory_bytes)
                    ELSE coalesce(memory_bytes, expected_bytes) END AS bytes) AS its
    WHERE bytes IS NOT NULL
"""
_LATELY_REMOVED = f"""
    SELECT DISTINCT model_version_id FROM LoadedVersion
    WHERE state IN ('QUIESCING', 'UNLOADING', 'END') AND updated_at > now() - INTERVAL '{FALL_SECONDS} seconds'
"""  # noqa: S608 - a constant
# A version or server that was deleted meanwhile is left out.
_DECIDE = """
    INSERT INTO Placement (model_version_id, server, why, epoch)
    SELECT loading.model_version_id, ModelServer.name, $3, $4 FROM VersionLoading AS loading, ModelServer
    WHERE loading.model_version_id = $1 AND ModelServer.name = $2
    ON CONFLICT (model_version_id, server) DO UPDATE
    SET why = excluded.why, epoch = excluded.epoch, decided_at = now(), idle_since = NULL
"""
_REST = f"""
    UPDATE Placement SET epoch = $3,
        idle_since = CASE WHEN idle_since IS NULL THEN now() ELSE greatest(idle_since, {_LAST_CALL}) END
    WHERE model_version_id = $1 AND server = $2
"""  # noqa: S608 - a constant
_SILENT = """
    SELECT name, count(*) AS endpoints FROM ModelServer JOIN ModelEndpoint ON server = name
    WHERE seen_at < now() - INTERVAL '1 minute' GROUP BY name ORDER BY name
"""
_UNDO = "DELETE FROM Placement WHERE model_version_id = $1 AND server = $2"


class PostgresPlacementStore:
    """One connection that is kept: the monitor asks once a second."""

    def __init__(self, database_url: str, *, timeout_seconds: float) -> None:
        self._kept = KeptConnection(database_url, "placements of versions", timeout_seconds, "understudy-placements")

    async def read(self) -> LoadingFacts:
        async with (
            self._kept.use() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            read_at = await connection.fetchval("SELECT extract(epoch FROM now())::float8")
            placed = {(row[0], row[1]): Why(row[2]) for row in await connection.fetch(_PLACED)}
            rows = await connection.fetch(_VERSIONS)
            versions = [_managed(row) for row in rows]
            servers = [GroupMember(*row) for row in await connection.fetch(_SERVERS)] if versions else []
            available = {(row[0], row[1]) for row in await connection.fetch(_AVAILABLE)} if versions else set()
            full = {(row[0], row[1]) for row in await connection.fetch(_WITHOUT_ROOM)} if placed else set()
            idle = {(row[0], row[1]): Idle(row[2], row[3]) for row in await connection.fetch(_IDLE)} if placed else {}
            has_numbers = any(version.replicas is not None for version in versions)
            sizes = {(row[0], row[1]): row[2] for row in await connection.fetch(_SIZES)} if has_numbers else {}
            lately_removed = {row[0] for row in await connection.fetch(_LATELY_REMOVED)} if has_numbers else set()
        names = {row["id"]: (row["model_name"], row["version"]) for row in rows}
        return LoadingFacts(versions, servers, placed, available, names, idle, read_at, full, sizes, lately_removed)

    async def decide(
        self, wanted: Placements, gone: Collection[Place], epoch: Epoch, *, idle: Collection[Place] = ()
    ) -> None:
        async with self._kept.use() as connection, fenced(connection, epoch):
            for (version_id, server), why in wanted.items():
                await connection.execute(_DECIDE, version_id, server, why, epoch)
            for version_id, server in idle:
                await connection.execute(_REST, version_id, server, epoch)
            for version_id, server in gone:
                await connection.execute(_UNDO, version_id, server)

    async def drop_silent_servers(self, epoch: Epoch) -> Sequence[str]:
        async with self._kept.use() as connection, fenced(connection, epoch):
            before = await connection.fetch(_SILENT)
            await connection.execute("SELECT understudy_drop_silent_servers()")
            after = await connection.fetch(_SILENT) if before else []
        left = {row["name"]: row["endpoints"] for row in after}
        return [row["name"] for row in before if left.get(row["name"], 0) < row["endpoints"]]

    async def close(self) -> None:
        self._kept.drop()


def _managed(row: asyncpg.Record) -> ManagedVersion:
    reasons = frozenset(map(Why, row["reasons"]))
    replicas = None if row["replicas_min"] is None else Replicas(row["replicas_min"], row["replicas_max"])
    return ManagedVersion(
        row["id"], row["group_name"], reasons, row["may_idle"], row["is_called"], row["model_name"], replicas
    )
