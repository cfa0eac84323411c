"""``AgentStore`` in Postgres: every write is fenced by the agent's epoch, a row of ``AgentLease``."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import asyncpg

from understudy.adapters.postgres.connections.connection import KeptConnection
from understudy.adapters.postgres.connections.listening import listen_on
from understudy.adapters.postgres.connections.proxy_reports import ProxyReports
from understudy.adapters.postgres.monitoring.lease import agent_of, fence_of_one_statement, fenced
from understudy.core.loading.giving_way import KEPT_SECONDS
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import SILENT_SECONDS, Why
from understudy.core.routing.proxy_liveness import LIVE_SECONDS
from understudy.errors import ArtifactDiffers, LeadershipLost, PolicyRefused, ServerTaken
from understudy.ports.loading.agent_store import LoadingRecord, ServerReport, ValidationResult, VersionAtServer
from understudy.ports.monitoring.lease import Epoch

CHANNEL = "understudy_placement"
HEARTBEAT_SECONDS = 10.0
"""Between two of the listening connection: a round comes every five seconds, whether that one is dead or not."""
ANSWERS_SECONDS = 10
"""A server answers whose agent has said so in this time: an agent says it every five seconds, and one that is away once
a second."""
RECORDED_SECONDS = 3_600
"""How long what has ended stays recorded, for people to read."""
MAX_ERROR = 500

# One server has one agent. Of two with different names the one that reports already goes on: the other one would
# unload what the first has loaded.
_LIVE = f"seen_at > now() - INTERVAL '{SILENT_SECONDS} seconds'"
_OTHER_AGENT = f"""
    SELECT name FROM ModelServer AS other WHERE target = $2 AND name <> $1 AND {_LIVE}
      AND (name < $1 OR NOT EXISTS (SELECT FROM ModelServer WHERE name = $1 AND target = $2 AND {_LIVE}))
    LIMIT 1
"""  # noqa: S608 - constants
_ANSWERS = f"other.seen_at > now() - INTERVAL '{ANSWERS_SECONDS} seconds'"
# People write asked_at too. A time to come asks for nothing yet: until then no attempt would be the last one.
_ASKED_AGAIN = "loading.asked_at > loaded.updated_at AND loading.asked_at <= now()"
_LOOK = f"""
    SELECT version.id, version.model_name, version.version, version.artifact_path, version.framework,
        coalesce(version.artifact_digest, loading.pinned_digest) AS expected_digest, version.timeout_ms, placement.why,
        EXISTS (SELECT FROM ModelEndpoint WHERE model_version_id = version.id AND target = $2) AS has_endpoint,
        EXISTS (SELECT FROM ModelEndpoint WHERE model_version_id = version.id AND server = $1)
          OR version.id IN (SELECT version_id FROM understudy_left_endpoints($1)) AS owns_endpoint,
        loaded.state, loaded.artifact_digest,
        CASE WHEN {_ASKED_AGAIN} THEN 0 ELSE loaded.attempt END AS attempt,
        coalesce({_ASKED_AGAIN} OR loaded.next_attempt_at <= now(), FALSE) AS may_retry,
        loaded.updated_at <= now() - INTERVAL '{RECORDED_SECONDS} seconds' AS is_over,
        coalesce(loading.requires_validation, FALSE) AS requires_validation, loaded.memory_bytes,
        extract(epoch FROM now() - placement.idle_since)::float8 AS idle_seconds,
        EXISTS (SELECT FROM ModelEndpoint AS endpoint JOIN ModelServer AS other ON other.name = endpoint.server
                WHERE endpoint.model_version_id = version.id AND other.name <> $1 AND other.target <> $2
                  AND other.problem = '' AND {_ANSWERS}) AS is_elsewhere,
        coalesce(placement.why = 'previous champion' AND coalesce(loading.wanted_until <= now(), TRUE)
                 AND placement.decided_at <= now() - INTERVAL '{KEPT_SECONDS} seconds', FALSE) AS has_had_its_time,
        coalesce(loading.wanted_until > now() AND loading.group_name = $3 AND version.status <> 'retired', FALSE)
          AS is_asked_for
    FROM ModelVersion AS version
    LEFT JOIN VersionLoading AS loading ON loading.model_version_id = version.id
    LEFT JOIN Placement AS placement ON placement.model_version_id = version.id AND placement.server = $1
    LEFT JOIN LoadedVersion AS loaded ON loaded.model_version_id = version.id AND loaded.server = $1
    WHERE version.id IN (
        SELECT model_version_id FROM Placement WHERE server = $1
        UNION SELECT model_version_id FROM LoadedVersion WHERE server = $1
        UNION SELECT model_version_id FROM ModelEndpoint WHERE server = $1 OR target = $2)
"""  # noqa: S608 - constants
_FENCE = fence_of_one_statement("AgentLease", "$1", "$6")
# An agent at rest asks nothing else: one statement, and no transaction around it. What it reads is as it was before it
# wrote: what is left of a server's former name is seen a round after the first report under the new one.
_ROUND = f"""
    WITH fence AS ({_FENCE}), other AS ({_OTHER_AGENT}), written AS (
        INSERT INTO ModelServer (name, group_name, target, build, problem, room_bytes, draining_at)
        SELECT $1, $3, $2, $4, $5, $7, CASE WHEN $8 THEN now() END
        WHERE EXISTS (SELECT FROM fence) AND NOT EXISTS (SELECT FROM other)
        ON CONFLICT (name) DO UPDATE SET group_name = excluded.group_name, target = excluded.target,
            build = excluded.build, problem = excluded.problem, room_bytes = excluded.room_bytes,
            draining_at = excluded.draining_at, seen_at = now())
    SELECT EXISTS (SELECT FROM fence) AS is_held, (SELECT name FROM other) AS taken_by, seen.*
    FROM (SELECT) AS round LEFT JOIN ({_LOOK}) AS seen ON TRUE
    ORDER BY seen.id
"""  # noqa: S608 - constants
# A proxy that was live when the endpoint was taken back, and has not said since that it has read that, may still call.
# One that has, and says that 0 calls are in flight, makes none: a proxy of the release before names no such version.
# One that reports still, and has not, may call for as long as it does; what a proxy of an older release has read is not
# known.
_UNREAD = f"""
    SELECT model_version_id, (
        SELECT (count(*) FILTER (WHERE has_read IS NOT TRUE), count(*) FILTER (WHERE NOT has_read AND is_live),
                coalesce(bool_and(has_read IS TRUE AND calls IS NOT DISTINCT FROM '0'), FALSE))
        FROM (SELECT read_xid > loaded.removed_xid AS has_read, in_flight -> model_version_id::text AS calls,
                     seen_at > now() - INTERVAL '{LIVE_SECONDS:.0f} seconds' AS is_live
              FROM ProxyInstance
              WHERE seen_at > loaded.removed_at - INTERVAL '{LIVE_SECONDS:.0f} seconds') AS proxy)
    FROM LoadedVersion AS loaded WHERE server = $1 AND state = 'QUIESCING'
"""  # noqa: S608 - a constant
_NOT_KNOWN = (1, 0, False)
"""Proxies that may call, those of them that report, and whether calls are over, while their reports are locked."""
_WRITE = """
    INSERT INTO LoadedVersion (model_version_id, server, state, attempt, artifact_digest, epoch)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (model_version_id, server) DO UPDATE SET state = excluded.state, attempt = excluded.attempt,
        artifact_digest = excluded.artifact_digest, epoch = excluded.epoch, updated_at = now(),
        error_code = NULL, error = NULL, next_attempt_at = NULL, removed_xid = NULL, removed_at = NULL
"""
_FAIL = """
    UPDATE LoadedVersion SET state = 'ERROR', error_code = $3, error = $4, attempt = $5, epoch = $7, updated_at = now(),
        next_attempt_at = now() + make_interval(secs => $6), expected_bytes = coalesce($8, expected_bytes)
    WHERE model_version_id = $1 AND server = $2
"""
_NOTE_MEMORY = "UPDATE LoadedVersion SET memory_bytes = $3 WHERE model_version_id = $1 AND server = $2"
_PIN = """
    UPDATE VersionLoading SET pinned_digest = coalesce(pinned_digest, $2) WHERE model_version_id = $1
    RETURNING pinned_digest
"""
_STATE = """
    UPDATE LoadedVersion SET state = $3, attempt = 0, epoch = $4, updated_at = now(), error_code = NULL, error = NULL,
        next_attempt_at = NULL, removed_xid = NULL, removed_at = NULL
    WHERE model_version_id = $1 AND server = $2
"""
_REMOVED = """
    INSERT INTO LoadedVersion (model_version_id, server, state, epoch, removed_xid, removed_at)
    VALUES ($1, $2, $3, $4, pg_current_xact_id(), now())
    ON CONFLICT (model_version_id, server) DO UPDATE SET state = excluded.state, epoch = excluded.epoch,
        updated_at = now(), removed_xid = excluded.removed_xid, removed_at = excluded.removed_at
"""
JUDGE = """
    INSERT INTO VersionValidation (model_version_id, server, build, artifact_digest, passed, said, judged_by)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (model_version_id, server) DO UPDATE SET build = excluded.build,
        artifact_digest = excluded.artifact_digest, passed = excluded.passed, said = excluded.said,
        judged_by = excluded.judged_by, judged_at = now()
"""
"""Keeps what became of a validation."""
_FORGET = "DELETE FROM LoadedVersion WHERE model_version_id = $1 AND server = $2"
_IS_PLACED = "SELECT EXISTS (SELECT FROM Placement WHERE model_version_id = $1 AND server = $2)"
_ADD_ENDPOINT = "SELECT understudy_add_agent_endpoint($1, $2)"
_REMOVE_ENDPOINT = "SELECT understudy_remove_agent_endpoint($1, $2)"
_TURN_OF_GROUP = """
    SELECT pg_advisory_xact_lock(hashtextextended('understudy.turn:' || group_name, 0)) FROM ModelServer WHERE name = $1
"""
# Of a version that is on some servers of its group those count that are to have one of its model.
_OTHERS_SERVE = f"""
    SELECT NOT EXISTS (
        SELECT FROM ModelServer AS its JOIN ModelServer AS other USING (group_name)
        WHERE its.name = $2 AND other.name <> $2 AND other.seen_at > now() - INTERVAL '{SILENT_SECONDS} seconds'
          AND ((SELECT replicas_min FROM VersionLoading WHERE model_version_id = $1) IS NULL OR EXISTS (
              SELECT FROM Placement JOIN ModelVersion AS version ON version.id = model_version_id
              WHERE Placement.server = other.name AND idle_since IS NULL
                AND version.model_name = (SELECT model_name FROM ModelVersion WHERE id = $1)))
          AND (other.problem <> '' OR NOT EXISTS (
              SELECT FROM ModelEndpoint AS endpoint JOIN ModelVersion AS version ON version.id = model_version_id
              WHERE endpoint.server = other.name
                AND version.model_name = (SELECT model_name FROM ModelVersion WHERE id = $1))))
"""  # noqa: S608 - a constant
_HAS_ENDPOINT = """
    SELECT EXISTS (SELECT FROM ModelEndpoint JOIN ModelServer ON ModelServer.target = ModelEndpoint.target
                   WHERE model_version_id = $1 AND ModelServer.name = $2)
"""


class PostgresAgentStore:
    """The records of the server ``server``, over one connection that is kept, and one for ``LISTEN``."""

    def __init__(self, database_url: str, server: str, *, timeout_seconds: float) -> None:
        self._url = database_url
        self._server = server
        self._row = agent_of(server)
        self._timeout_seconds = timeout_seconds
        self._reports = ProxyReports()
        self._kept = KeptConnection(database_url, "what the agent records", timeout_seconds, "understudy-agent")

    async def look(self, server: ServerReport, epoch: Epoch) -> Sequence[VersionAtServer]:
        name, group_name, target, build, problem, room_bytes, is_draining = server
        async with self._kept.use() as connection:
            rows = await connection.fetch(
                _ROUND, name, target, group_name, build, problem, epoch, room_bytes, is_draining
            )
        if not rows[0]["is_held"]:
            raise LeadershipLost(f"epoch {epoch} is over")
        if rows[0]["taken_by"] is not None:
            raise ServerTaken(f"the model server at {target} has an agent, which reports it as {rows[0]['taken_by']}")
        versions = [row for row in rows if row["id"] is not None]
        is_waiting = any(row["state"] == LoadingState.QUIESCING for row in versions)
        unread = await self._unread_proxies(epoch) if is_waiting else {}
        return [_version_of(row, unread.get(row["id"], _NOT_KNOWN)) for row in versions]

    async def write(
        self, version_id: int, state: LoadingState, epoch: Epoch, *, attempt: int = 0, digest: str | None = None
    ) -> None:
        async with self._fenced(epoch) as connection:
            await connection.execute(_WRITE, version_id, self._server, state, attempt, digest, epoch)

    async def fail(
        self,
        version_id: int,
        code: str,
        error: str,
        epoch: Epoch,
        *,
        attempt: int,
        retry_seconds: float | None,
        expected_bytes: int | None = None,
    ) -> None:
        told = (code, storable(error), attempt, retry_seconds, epoch, expected_bytes)
        async with self._fenced(epoch) as connection:
            await connection.execute(_FAIL, version_id, self._server, *told)

    async def note_memory(self, version_id: int, memory_bytes: int, epoch: Epoch) -> None:
        async with self._fenced(epoch) as connection:
            await connection.execute(_NOTE_MEMORY, version_id, self._server, memory_bytes)

    async def pin(self, version_id: int, digest: str, epoch: Epoch) -> None:
        async with self._fenced(epoch) as connection:
            pinned = await connection.fetchval(_PIN, version_id, digest)
        if pinned not in (None, digest):
            raise ArtifactDiffers(f"the artifact is {digest}, and was {pinned} when it was fetched first: not loaded")

    async def record_validation(self, version_id: int, result: ValidationResult, epoch: Epoch) -> None:
        async with self._fenced(epoch) as connection:
            kept = result._replace(said=storable(result.said))
            await connection.execute(JUDGE, version_id, self._server, *kept, self._server)

    async def announce(self, version_id: int, epoch: Epoch) -> bool:
        async with self._fenced(epoch) as connection:
            try:
                async with connection.transaction():
                    await connection.execute(_ADD_ENDPOINT, version_id, self._server)
            except asyncpg.CheckViolationError as refused:
                if not await connection.fetchval(_IS_PLACED, version_id, self._server):
                    return False  # it was wanted until just now
                raise PolicyRefused(str(refused), hint=refused.hint) from None
            await connection.execute(_STATE, version_id, self._server, LoadingState.AVAILABLE, epoch)
        return True

    async def withdraw(self, version_id: int, state: LoadingState, epoch: Epoch, *, in_turn: bool = False) -> bool:
        async with self._fenced(epoch) as connection:
            if in_turn and not await self._has_its_turn(connection, version_id):
                return False
            try:
                async with connection.transaction():
                    await connection.execute(_REMOVE_ENDPOINT, version_id, self._server)
                    # Checked now and not at the commit, where it would take the record with it.
                    await connection.execute("SET CONSTRAINTS modelendpoint_guard_last IMMEDIATE")
            except asyncpg.CheckViolationError:
                is_gone = False  # the last endpoint of a version with a role
            else:
                is_gone = not await connection.fetchval(_HAS_ENDPOINT, version_id, self._server)
            if is_gone or state is not LoadingState.QUIESCING:
                await connection.execute(_REMOVED, version_id, self._server, state, epoch)
        return is_gone

    async def forget(self, version_id: int, epoch: Epoch) -> None:
        async with self._fenced(epoch) as connection:
            await connection.execute(_FORGET, version_id, self._server)

    async def listen(self, on_change: Callable[[], None]) -> None:
        await listen_on(
            self._url,
            CHANNEL,
            lambda payload: on_change() if payload == self._server else None,
            on_change,
            timeout_seconds=self._timeout_seconds,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )

    async def close(self) -> None:
        self._kept.drop()

    async def _has_its_turn(self, connection: asyncpg.Connection, version_id: int) -> bool:
        """Whether all other servers of the group have the model; no other agent finds so until the transaction ends."""
        await connection.execute(_TURN_OF_GROUP, self._server)
        return bool(await connection.fetchval(_OTHERS_SERVE, version_id, self._server))

    async def _unread_proxies(self, epoch: Epoch) -> Mapping[int, tuple[int, int, bool]]:
        async with self._fenced(epoch) as connection:
            if not await self._reports.can_be_read(connection):
                return {}
            return {row[0]: (row[1][0], row[1][1], row[1][2]) for row in await connection.fetch(_UNREAD, self._server)}

    @asynccontextmanager
    async def _fenced(self, epoch: Epoch) -> AsyncIterator[asyncpg.Connection]:
        async with self._kept.use() as connection, fenced(connection, epoch, self._row):
            yield connection


def storable(said: str) -> str:
    """Return a text as a column takes it: a file's name, or a server's words, may be any bytes, and its text not."""
    return said.replace("\0", "").encode("utf-8", "replace").decode()[:MAX_ERROR]


def _version_of(row: asyncpg.Record, proxies: tuple[int, int, bool]) -> VersionAtServer:
    record = None
    unread_proxies, reporting_proxies, calls_are_over = proxies
    if row["state"] is not None:
        record = LoadingRecord(
            LoadingState(row["state"]),
            row["attempt"],
            row["may_retry"],
            row["artifact_digest"],
            unread_proxies,
            reporting_proxies,
            row["is_over"],
            row["memory_bytes"],
            calls_are_over,
        )
    return VersionAtServer(
        row["id"],
        row["model_name"],
        row["version"],
        row["artifact_path"],
        row["framework"],
        row["expected_digest"],
        row["timeout_ms"] / 1_000,
        None if row["why"] is None else Why(row["why"]),
        row["has_endpoint"],
        row["owns_endpoint"],
        record,
        row["requires_validation"],
        row["idle_seconds"],
        row["is_elsewhere"],
        row["has_had_its_time"],
        row["is_asked_for"],
    )
