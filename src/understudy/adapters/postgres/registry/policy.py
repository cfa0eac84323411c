"""``PolicySource`` over Postgres: reads the policy document, polls for changes, listens for them.

Three kinds of connections, so that none waits for another: one for queries, opened when needed and kept; one for
``LISTEN``, which must be idle, and lead to Postgres itself and not through a pooler in transaction mode; one for each
report and for the sign-off, closed again.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
import orjson

from understudy.adapters.postgres.connections.connection import VENDOR_ERRORS, connect, translated
from understudy.adapters.postgres.connections.listening import listen_on
from understudy.core.routing.policy_document import PolicyDocument
from understudy.core.routing.proxy_liveness import FORGOTTEN_SECONDS
from understudy.ports.registry.policy import PolicyChange

CHANNEL = "understudy_policy"
KEPT_SECONDS = 1.0
"""Longest wait over a kept connection, which may be dead unnoticed. A new one then has the whole time-out."""
ROWS_A_TURN = 1_000
"""Rows of models that are processed before other tasks get a turn of the event loop."""
_STATEMENT_SHARE = 0.8
POLICY_COLUMNS = (
    "champion_version",
    "challenger_version",
    "challenger_weight",
    "shadow_version",
    "shadow_percent",
    "fallback",
    "salt",
    "category_roles",
    "generation",
    "input_sample_percent",
    "arms",
)
LATER_POLICY_COLUMNS = ("category_holdout_percent",)
"""That the schema of the release before does not have: a proxy that starts before the migration reads ``null``."""
VERSION_COLUMNS = (
    "id",
    "version",
    "status",
    "protocol",
    "input_schema",
    "output_schema",
    "backend",
    "deterministic",
    "cache_ttl_seconds",
    "timeout_ms",
)
KEY_COLUMNS = ("id", "sha256", "scopes", "tenant", "calls_per_second", "bytes_per_second")

_POLICY_FIELDS = ", ".join(
    [
        *(f"'{name}', p.{name}" for name in POLICY_COLUMNS),
        *(f"'{name}', to_jsonb(p) -> '{name}'" for name in LATER_POLICY_COLUMNS),
    ]
)
_VERSION_FIELDS = ", ".join(f"'{name}', v.{name}" for name in VERSION_COLUMNS)

# What calls are logged under: beside further arms the guard of all of their versions.
_SPLIT_ID = "coalesce(p.rollout_id, p.guard_id)"
# One statement, so that rows and horizon are of one snapshot. Each version is a JSON text of its own: one that cannot
# be decoded must not fail the others.
_MODELS = f"""
    SELECT p.model_name, json_build_object({_POLICY_FIELDS}, 'rollout_id', {_SPLIT_ID}, 'slow_us', (
        SELECT slow_us FROM rollout WHERE rollout.id = {_SPLIT_ID}))::text AS policy, v.versions
    FROM servingpolicy p
    JOIN (
        SELECT v.model_name, array_agg(json_build_object({_VERSION_FIELDS}, 'endpoints', (
            SELECT coalesce(json_agg(e.target ORDER BY e.target COLLATE "C"), '[]')
            FROM modelendpoint e WHERE e.model_version_id = v.id))::text ORDER BY v.id) AS versions
        FROM modelversion v JOIN servingpolicy p ON p.model_name = v.model_name
        WHERE ($1::text[] IS NULL OR v.model_name = ANY ($1))
          AND (v.status <> 'retired' OR v.id IN (p.champion_version, p.challenger_version, p.shadow_version))
        GROUP BY v.model_name
    ) v ON v.model_name = p.model_name
    UNION ALL
    SELECT NULL, NULL, ARRAY[pg_snapshot_xmin(pg_current_snapshot())::text]
"""  # noqa: S608 - the columns are the constants above
_KEY_FIELDS = ", ".join(f"'{name}', {name}" for name in KEY_COLUMNS)
_EXPIRES = "'expires_at', extract(epoch FROM expires_at)"
_KEYS = f"""
    UNION ALL
    SELECT NULL, json_strip_nulls(json_build_object({_KEY_FIELDS}, {_EXPIRES}))::text, NULL
    FROM apikey WHERE revoked_at IS NULL
"""  # noqa: S608 - the columns are the constants above

_READ_SECRET = "SELECT encode(secret, 'hex') AS secret FROM cachesecret"  # noqa: S105 - no secret: how to read it
_CHANGES = """
    SELECT NULL AS model_name, NULL AS source, pg_snapshot_xmin(pg_current_snapshot())::text AS xid
    UNION ALL
    SELECT model_name, source, changed_xid::text FROM policychange
    WHERE changed_xid >= $1::text::xid8 OR pg_snapshot_xmin(pg_current_snapshot()) < $1::text::xid8
"""

_REPORT = f"""
    WITH forgotten AS (
        DELETE FROM proxyinstance WHERE seen_at < now() - INTERVAL '{FORGOTTEN_SECONDS:.0f} seconds' AND instance <> $1)
    INSERT INTO proxyinstance (instance, generations, in_flight, answers_warm_ups, read_xid)
    VALUES ($1, $2::text::jsonb, $3::text::jsonb, TRUE, $4::text::xid8)
    ON CONFLICT (instance) DO UPDATE
    SET generations = excluded.generations, in_flight = excluded.in_flight, answers_warm_ups = TRUE,
        read_xid = excluded.read_xid, seen_at = now()
"""  # noqa: S608 - a constant
_SIGN_OFF = "DELETE FROM proxyinstance WHERE instance = $1"


class PostgresPolicySource:
    """Reads policies from a registry. Safe for use by several tasks."""

    def __init__(
        self,
        database_url: str,
        *,
        timeout_seconds: float = 5.0,
        heartbeat_seconds: float = 2.0,
        reads_keys: bool = True,
        reads_cache_secret: bool = False,
    ) -> None:
        """Prepare; no connection is opened before the first call.

        Args:
            database_url: Of Postgres itself; ``LISTEN`` does not work through a pooler in transaction mode.
            timeout_seconds: The longest that one call may take on a new connection, connecting included; before that,
                a call may lose ``KEPT_SECONDS`` on a kept one.
            heartbeat_seconds: Interval of the listening connection's heartbeats, and the longest wait for each.
            reads_keys: Whether documents have the callers' keys: only proxies that check keys need them, and may read
                them.
            reads_cache_secret: Whether documents have the secret of the shared cache.
        """
        self._url = database_url
        self._reads_keys = reads_keys
        self._reads_cache_secret = reads_cache_secret
        self._document = _MODELS + _KEYS if reads_keys else _MODELS
        self._timeout_seconds = timeout_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._lock = asyncio.Lock()
        self._kept: asyncpg.Connection | None = None
        self._horizon: str | None = None
        self._told: Mapping[tuple[str, str], str] = {}
        """The transaction last reported for each model and source."""
        self._read_before: dict[str, int] = {}
        """For each name read since the last poll: the first transaction that may not have ended by then."""
        self._pending: set[str] = set()
        self._secret_is_due = False
        """Whether the cache's secret was to be read, and could not be."""

    async def load(self, model_names: Sequence[str] | None = None) -> PolicyDocument:
        """See :meth:`understudy.ports.registry.policy.PolicySource.load`; with the keys, if it reads them.

        With everything, and with the keys (``""``), also the shared cache's secret, if it reads that. A
        model's rows are decoded at each access.
        """
        named = None if model_names is None else [name for name in model_names if name]
        async with translated("policies cannot be read"), self._lock:
            if named is None:
                self._drop()  # reading everything is rare and slow: not on a connection that may be dead
            rows = await self._fetch(self._document, named)
            # under the lock: changes that a later poll reports stay pending
            self._pending.difference_update(self._pending if named is None else named, [""])
            horizon = next(versions[0] for name, text, versions in rows if name is None and text is None)
            if named is None:
                self._horizon = horizon
                self._told, self._read_before = {}, {}
            else:
                self._read_before.update(dict.fromkeys((*named, ""), int(horizon)))
            asks_for_secret = self._reads_cache_secret and (model_names is None or "" in model_names)
            secret = await self._cache_secret() if asks_for_secret else {}
        models: dict[str, Any] = {name: {"policy": None, "versions": []} for name in named or ()}
        keys = []
        for number, (name, text, versions) in enumerate(rows, start=1):
            if number % ROWS_A_TURN == 0:
                await asyncio.sleep(0)
            if name is not None:
                models[name] = _Rows(text, versions)
            elif text is not None:
                keys.append(orjson.loads(text))
        return {"models": models, **({"keys": keys} if self._reads_keys else {}), **secret}

    async def _cache_secret(self) -> dict[str, str | None]:
        """Return the document's part with the secret: ``None`` where the schema or the login has none.

        It is left out when it cannot be read in time, and asked for again at the next poll: policies do not wait for
        it.
        """
        self._secret_is_due = False
        try:
            rows = await self._fetch(_READ_SECRET)
        except (asyncpg.UndefinedTableError, asyncpg.InsufficientPrivilegeError):
            return {"cache_secret": None}
        except VENDOR_ERRORS:
            self._secret_is_due = True
            return {}
        return {"cache_secret": rows[0]["secret"] if rows else None}

    async def changed_since_last_poll(self) -> Sequence[str]:
        """See :meth:`understudy.ports.registry.policy.PolicySource.changed_since_last_poll`; ``""`` stands for keys.

        A transaction that began before the last poll and commits after it is seen: the poll reads what was written by
        the oldest transaction that was open then, or by a later one. When the counter of transactions went back
        (another database was restored into this place), everything counts as changed. A model is returned again until
        it is loaded, and not at all if it was loaded since (after a notification, say) with what was written.
        """
        async with translated("policy changes cannot be read"), self._lock:
            rows = await self._fetch(_CHANGES, self._horizon or "0")
            horizon = next(xid for name, _, xid in rows if name is None)
            read_before = {} if int(horizon) < int(self._horizon or 0) else self._read_before
            written = {(name, source): xid for name, source, xid in rows if name is not None}
            self._pending.update(
                place[0]
                for place, xid in written.items()
                if self._told.get(place) != xid and int(xid) >= read_before.get(place[0], 0)
            )
            self._pending.update([""] if self._secret_is_due else [])
            self._horizon, self._told, self._read_before = horizon, written, {}
            return sorted(self._pending)

    @property
    def horizon(self) -> int | None:
        return None if self._horizon is None or self._pending else int(self._horizon)

    @property
    def newest_change(self) -> int | None:
        return max(map(int, self._told.values()), default=None)

    async def listen(self, on_change: Callable[[PolicyChange], None]) -> None:
        """See :meth:`understudy.ports.registry.policy.PolicySource.listen`; only cancelling ends it without error."""
        await listen_on(
            self._url,
            CHANNEL,
            lambda payload: on_change(_change_from(payload)),
            lambda: on_change(PolicyChange(None)),
            timeout_seconds=self._timeout_seconds,
            heartbeat_seconds=self._heartbeat_seconds,
        )

    async def report(
        self, instance: str, generations: Mapping[str, int], in_flight: Mapping[int, int], horizon: int | None
    ) -> None:
        """See :meth:`understudy.ports.registry.policy.PolicySource.report`; those unseen for a day are forgotten."""
        async with translated("the instance cannot be reported", self._timeout_seconds):
            await self._execute(
                _REPORT,
                instance,
                orjson.dumps(dict(generations)).decode(),
                orjson.dumps(dict(in_flight), option=orjson.OPT_NON_STR_KEYS).decode(),
                None if horizon is None else str(horizon),
            )

    async def sign_off(self, instance: str) -> None:
        async with translated("the instance cannot be signed off", self._timeout_seconds):
            await self._execute(_SIGN_OFF, instance)

    async def close(self) -> None:
        """Drop the query connection; a :meth:`listen` in progress ends when its task is cancelled."""
        self._drop()

    async def _execute(self, statement: str, *arguments: Any) -> None:
        connection = await self._open("understudy-report")
        try:
            await connection.execute(statement, *arguments)
            await connection.close()
        finally:
            connection.terminate()

    async def _fetch(self, query: str, *arguments: Any) -> list[Any]:
        """Ask over the kept connection, briefly; when there is none, or it fails, over a new one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(*VENDOR_ERRORS):
                return await self._ask(kept, min(KEPT_SECONDS, self._timeout_seconds), query, arguments)
        async with asyncio.timeout(self._timeout_seconds):
            connection = await self._open("understudy-policies")
            return await self._ask(connection, self._timeout_seconds, query, arguments)

    async def _ask(
        self, connection: asyncpg.Connection, timeout_seconds: float, query: str, arguments: Sequence[Any]
    ) -> list[Any]:
        try:
            rows = await connection.fetch(query, *arguments, timeout=timeout_seconds)
        except BaseException:
            connection.terminate()  # its state is unknown
            raise
        self._kept = connection
        return rows

    async def _open(self, application_name: str) -> asyncpg.Connection:
        # A time-out in Postgres too: it does not notice a client that left while a statement waits for a lock.
        milliseconds = self._timeout_seconds * 1000 * _STATEMENT_SHARE
        return await connect(
            self._url,
            timeout_seconds=self._timeout_seconds,
            application_name=application_name,
            server_settings={"statement_timeout": f"{milliseconds:.0f}"},
        )

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.terminate()
        self._kept = None


class _Rows(Mapping[str, Any]):
    """A model's ``policy`` and ``versions``, decoded at each access.

    Ten thousand models decoded at once would be a million objects: they would block the event loop, cost the garbage
    collector, and be dropped, because most of them are unchanged.
    """

    __slots__ = ("_policy", "_versions")

    def __init__(self, policy: str, versions: Sequence[str]) -> None:
        self._policy = policy
        self._versions = tuple(versions)

    def __getitem__(self, key: str) -> Any:
        """Return the decoded value."""
        if key == "policy":
            return orjson.loads(self._policy)
        if key == "versions":
            return _decoded_versions(self._versions)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        """Yield the two names."""
        return iter(("policy", "versions"))

    def __len__(self) -> int:
        """Return the number of names."""
        return 2


def _decoded_versions(texts: Sequence[str]) -> list[Any]:
    versions = []
    for text in texts:
        try:
            versions.append(orjson.loads(text))
        except orjson.JSONDecodeError:  # such as 1e400, which JSONB holds and no float does
            continue
    return versions


def _change_from(payload: str) -> PolicyChange:
    """Return the change that a notification names; an unreadable one means that anything may have changed."""
    try:
        name = orjson.loads(payload)["model"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return PolicyChange(None)
    return PolicyChange(name if isinstance(name, str) else None)
