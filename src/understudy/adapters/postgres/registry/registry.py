"""``Registry`` over Postgres. The database decides which policies are valid; its error texts are passed on."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

import asyncpg

from understudy.adapters.postgres.connections.connection import (
    UNSTORABLE,
    UNSTORABLE_HINT,
    is_unstorable_text,
    named_by_callers,
    session,
)
from understudy.adapters.postgres.connections.proxy_reports import ProxyReports
from understudy.adapters.postgres.connections.signing import sign
from understudy.adapters.postgres.registry import registry_rows as rows
from understudy.adapters.postgres.registry.audit import newest_changes
from understudy.adapters.postgres.registry.refusal_words import CONSTRAINT_WORDS
from understudy.adapters.postgres.registry.replacement import replace_version
from understudy.core.first_names import first_names
from understudy.core.loading.replicas import EVERY_SERVER
from understudy.core.routing.status_changes import StatusChange, with_status_change
from understudy.errors import AlreadyRegistered, GenerationMoved, NotRegistered, PolicyRefused
from understudy.ports.registry.registry import (
    EVERY_CHANGE,
    EVERY_VERSION,
    RETIRED,
    STAGING,
    Actor,
    AppliedFile,
    AuditEntry,
    AuditFilter,
    AuditSubject,
    ChangedPolicy,
    FileWords,
    KeyLimits,
    KeyRecord,
    ModelRecord,
    NewVersion,
    PolicyRecord,
    VersionChange,
    VersionPage,
    VersionRecord,
)

if TYPE_CHECKING:
    from understudy.core.drift.baseline import Baselines

_REFUSAL_CLASSES = ("22", "23")
"""SQLSTATE classes of values that the database refuses: data exception, constraint violation."""
_MAX_NAMED = 20
"""Models, or versions of one, that an error names."""
_DUPLICATE_VERSION = "modelversion_model_name_version_key"
_DUPLICATE_POLICY = "servingpolicy_pkey"
_EMPTY_METRICS = "UPDATE ModelVersion SET metrics = NULL empties them."


class PostgresRegistry:
    """Opens a connection for each call and keeps none; every call ends within ``timeout_seconds``."""

    def __init__(self, database_url: str, *, timeout_seconds: float = 5.0) -> None:
        self._database_url = database_url
        self._timeout_seconds = timeout_seconds

    async def add_version(
        self, new: NewVersion, actor: Actor, *, replace: bool = False, dry_run: bool = False
    ) -> VersionRecord:
        values = new._asdict()
        targets, group_name = values.pop("endpoints"), values.pop("group_name")
        is_required, replicas = values.pop("requires_validation"), values.pop("replicas") or EVERY_SERVER
        async with self._signed(actor, dry_run=dry_run) as connection:
            if replace:
                async with _refusals():
                    if await replace_version(connection, new, values):
                        return await _version(connection, new.model_name, new.version)
            try:
                async with _refusals():
                    version_id = await connection.fetchval(rows.ADD_VERSION, *_in_order(values))
            except _Duplicate as problem:
                raise AlreadyRegistered(f"version {new.version} of {new.model_name} is registered already") from problem
            async with _refusals():
                for target in dict.fromkeys(targets):
                    await connection.execute(rows.ADD_ENDPOINT, version_id, target)
                if group_name is not None:
                    await connection.execute(rows.ADD_LOADING, version_id, group_name, is_required, *replicas)
            return await _version(connection, new.model_name, new.version)

    async def list_versions(
        self, model_name: str | None = None, *, only: VersionPage = EVERY_VERSION
    ) -> Sequence[VersionRecord]:
        models = None if only.models is None else sorted(only.models)
        async with self._transaction() as connection:
            found = await connection.fetch(rows.VERSIONS, model_name, models, only.after_id, only.at_most)
            return [rows.version_record(row) for row in found]

    async def show_version(self, model_name: str, version: str) -> VersionRecord:
        async with self._transaction() as connection:
            return await _version(connection, model_name, version)

    async def add_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        async with self._signed(actor, dry_run=dry_run) as connection:
            found = await _version(connection, model_name, version)
            async with _refusals():
                await connection.execute(rows.ADD_MISSING_ENDPOINT, found.id, target)
            return await _version(connection, model_name, version)

    async def remove_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        async with self._signed(actor, dry_run=dry_run) as connection:
            found = await _version(connection, model_name, version)
            if target not in found.endpoints:
                there_are = ", ".join(found.endpoints) or "none"
                raise NotRegistered(f"version {version} of {model_name} has no endpoint {target}; it has: {there_are}")
            async with _refusals():
                await connection.execute(rows.REMOVE_ENDPOINT, found.id, target)
                # Checked now and not at the commit, which a dry run never reaches.
                await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            return await _version(connection, model_name, version)

    async def set_baselines(
        self,
        model_name: str,
        version: str,
        baselines: "Baselines",
        actor: Actor,
        *,
        source: str,
        dry_run: bool = False,
    ) -> VersionChange:
        from understudy.core.drift.baseline import with_baselines  # noqa: PLC0415 - numpy, for those who set one

        async with self._signed(actor, dry_run=dry_run) as connection:
            await connection.execute(rows.LOCK_VERSION, model_name, version)
            before = await _version(connection, model_name, version)
            changed = {"at": await _now(connection), "by": actor.name, "source": source, "reason": actor.reason}
            try:
                metrics = with_baselines(before.metrics, baselines, changed)
            except ValueError as problem:
                raise PolicyRefused(str(problem), hint=_EMPTY_METRICS) from None
            async with _refusals():
                await connection.execute(rows.SET_METRICS, model_name, version, *rows.written({"metrics": metrics}))
            return VersionChange(before, await _version(connection, model_name, version))

    async def set_retired(
        self, model_name: str, version: str, actor: Actor, *, is_retired: bool, dry_run: bool = False
    ) -> VersionChange:
        status = RETIRED if is_retired else STAGING
        async with self._signed(actor, dry_run=dry_run) as connection:
            await connection.execute(rows.LOCK_STATUS, model_name, version)
            before = await _version(connection, model_name, version)
            if is_retired == (before.status == RETIRED):
                return VersionChange(before, before)
            try:
                noted = StatusChange(status, await _now(connection), actor.name, actor.reason)
                metrics = with_status_change(before.metrics, noted)
            except ValueError as problem:
                raise PolicyRefused(str(problem), hint=_EMPTY_METRICS) from None
            async with _refusals():
                values = rows.written({"metrics": metrics, "status": status})
                await connection.execute(rows.SET_STATUS, model_name, version, *values)
            # After the database's refusal of a version with a role: to take the role away ends a guard too.
            if is_retired:
                await _refuse_in_rollout(connection, before)
            return VersionChange(before, await _version(connection, model_name, version))

    async def list_models(self) -> Sequence[ModelRecord]:
        async with self._transaction() as connection:
            return await _models(connection)

    async def show_model(self, model_name: str) -> ModelRecord:
        async with self._transaction() as connection:
            found = await _models(connection, model_name)
            if not found:
                names = [model.model_name for model in await _models(connection)]
                raise NotRegistered(
                    f"no model {model_name!r} is registered", others=first_names(names, _MAX_NAMED) or "none"
                )
            return found[0]

    async def set_policy(
        self,
        model_name: str,
        changes: Mapping[str, Any],
        actor: Actor,
        *,
        expected_generation: int | None = None,
        file: FileWords | None = None,
        dry_run: bool = False,
    ) -> ChangedPolicy:
        async with self._signed(actor, dry_run=dry_run) as connection:
            generation = await connection.fetchval(rows.GENERATION, model_name)
            if expected_generation is not None and expected_generation != (generation or 0):
                raise GenerationMoved(
                    f"the policy of {model_name} is at generation {generation or 0}, not {expected_generation}"
                )
            before = None if generation is None else await _policy_of(connection, model_name)
            values = await _columns_of(connection, model_name, changes)
            if values or generation is None:
                statement = rows.policy_statement(list(values), is_first=generation is None)
                async with _refusals():
                    await connection.execute(statement, model_name, *rows.written(values))
            if file is not None:
                async with _refusals():
                    await connection.execute(rows.KEEP_FILE, model_name, file.path, json.dumps(file.fields))
            after = await _policy_of(connection, model_name)
            if after is None:
                raise NotRegistered(f"the policy of {model_name} was deleted meanwhile")
            return ChangedPolicy(before, after)

    async def list_applied(self, model_name: str | None = None) -> Sequence[AppliedFile]:
        async with self._transaction() as connection:
            return [rows.applied_file(row) for row in await connection.fetch(rows.APPLIED_FILES, model_name)]

    async def list_audit(
        self,
        model_name: str | None = None,
        limit: int = 50,
        subject: AuditSubject | None = None,
        *,
        only: AuditFilter = EVERY_CHANGE,
    ) -> Sequence[AuditEntry]:
        async with self._transaction() as connection:
            return await newest_changes(connection, model_name, subject, limit, only)

    async def add_key(
        self,
        key_id: str,
        sha256: str,
        scopes: Sequence[str],
        *,
        note: str | None,
        actor: Actor,
        limits: KeyLimits,
    ) -> KeyRecord:
        async with self._signed(actor) as connection, _refusals():
            values = (key_id, sha256, list(scopes), note, actor.name, *limits)
            return rows.key_record(_one(await connection.fetchrow(rows.ADD_KEY, *values)))

    async def list_keys(self, newest: int | None = None) -> Sequence[KeyRecord]:
        async with self._transaction() as connection:
            return [rows.key_record(row) for row in await connection.fetch(rows.KEYS, newest)]

    async def revoke_key(self, key_id: str, actor: Actor) -> KeyRecord:
        async with self._signed(actor) as connection:
            row = await connection.fetchrow(rows.REVOKE_KEY, key_id)
            if row is None:
                raise NotRegistered(f"there is no key {key_id!r}", hint="understudy key list shows the keys there are.")
            return rows.key_record(row)

    async def close(self) -> None:
        """Nothing is open between two calls."""

    @asynccontextmanager
    async def _signed(self, actor: Actor, *, dry_run: bool = False) -> AsyncIterator[asyncpg.Connection]:
        """Open a transaction that the audit knows the actor of."""
        async with self._transaction(dry_run=dry_run) as connection:
            async with _refusals():
                await sign(connection, actor)
            yield connection

    @asynccontextmanager
    async def _transaction(self, *, dry_run: bool = False) -> AsyncIterator[asyncpg.Connection]:
        async with session(self._database_url, "the registry", self._timeout_seconds, "understudy-registry") as opened:
            transaction = opened.transaction()
            await transaction.start()
            with named_by_callers():
                yield opened
            if dry_run:
                await transaction.rollback()
            else:
                await transaction.commit()


# -- reading -----------------------------------------------------------------------------------------------------------


async def _version(connection: asyncpg.Connection, model_name: str, version: str) -> VersionRecord:
    row = await connection.fetchrow(rows.VERSION, model_name, version)
    if row is None:
        labels = [label["version"] for label in await connection.fetch(rows.LABELS, model_name)]
        raise NotRegistered(
            f"{model_name} has no version {version!r}; it has: {first_names(labels, _MAX_NAMED) or 'none'}"
        )
    return rows.version_record(row)


async def _now(connection: asyncpg.Connection) -> str:
    """Return when the transaction began, as ISO 8601."""
    return str((await connection.fetchval("SELECT now()")).isoformat())


async def _refuse_in_rollout(connection: asyncpg.Connection, record: VersionRecord) -> None:
    """Refuse to retire a version whose rollout is not over, even without a role: it may get one again.

    Raises:
        PolicyRefused: An open rollout has the version.
    """
    rollout_id = await connection.fetchval(rows.OPEN_ROLLOUT, record.id)
    if rollout_id is not None:
        model = record.model_name
        raise PolicyRefused(
            f"version {record.version} of {model} has a part in rollout {rollout_id}, which is not over, and cannot be "
            "retired",
            hint=f"understudy rollout wait {quote(model)} --until finished waits for its end, understudy rollout abort "
            f"{quote(model)} --reason '…' ends it.",
        )


async def _policy_of(connection: asyncpg.Connection, model_name: str) -> PolicyRecord | None:
    found = await _models(connection, model_name)
    return found[0].policy if found else None


async def _models(connection: asyncpg.Connection, model_name: str | None = None) -> list[ModelRecord]:
    """Return models with their policies; of one whose proxies' reports are locked, no proxy is live."""
    can_see = await ProxyReports().can_be_read(connection)
    policies = await connection.fetch(rows.POLICIES if can_see else rows.POLICIES_WITHOUT_PROXIES, model_name)
    held = {row["model_name"]: rows.policy_record(row) for row in policies}
    counts = await connection.fetch(rows.COUNTS, model_name)
    return [ModelRecord(row["model_name"], held.get(row["model_name"]), row["versions"]) for row in counts]


def _one(row: asyncpg.Record | None) -> asyncpg.Record:
    assert row is not None  # an INSERT that succeeds returns its row
    return row


# -- writing -----------------------------------------------------------------------------------------------------------


def _in_order(values: Mapping[str, Any]) -> list[Any]:
    """Return the values of a new version in the order of :data:`registry_rows.ADD_VERSION`."""
    return rows.written({name: values[name] for name in rows.NEW_VERSION})


async def _columns_of(connection: asyncpg.Connection, model_name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes as columns, with version ids for labels."""
    values: dict[str, Any] = {}
    for field, value in changes.items():
        if field == "arms":
            values[field] = [
                {"version_id": await _id_of(connection, model_name, arm), "first": first, "last": last}
                for arm, first, last in value
            ]
        elif field in rows.ROLES:
            values[f"{field}_version"] = None if value is None else await _id_of(connection, model_name, value)
        else:
            values[field] = value
    return values


async def _id_of(connection: asyncpg.Connection, model_name: str, version: str) -> int:
    return (await _version(connection, model_name, version)).id


class _Duplicate(Exception):
    """The version exists."""


@asynccontextmanager
async def _refusals() -> AsyncIterator[None]:
    """Turn the database's refusals into ``PolicyRefused`` with its texts; other errors pass."""
    try:
        yield
    except asyncpg.PostgresError as said:
        if said.sqlstate[:2] not in _REFUSAL_CLASSES:
            raise
        if is_unstorable_text(said):
            raise PolicyRefused(UNSTORABLE, hint=UNSTORABLE_HINT) from said
        constraint = said.constraint_name or ""
        if constraint == _DUPLICATE_VERSION:
            raise _Duplicate from said
        if constraint == _DUPLICATE_POLICY:
            raise GenerationMoved("another change made the model's first policy meanwhile") from said
        if constraint in CONSTRAINT_WORDS:
            words = CONSTRAINT_WORDS[constraint]
            raise PolicyRefused(words.detail, hint=words.hint) from said
        raise PolicyRefused(said.message or str(said), hint=said.hint) from said
    except (ValueError, TypeError) as said:
        # The client itself refuses a value that does not fit its column, before the database sees it.
        raise PolicyRefused(str(said)) from said
