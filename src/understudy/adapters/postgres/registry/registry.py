"""``Registry`` over Postgres. The database decides which policies are valid; its error texts are passed on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from shlex import quote
from typing import Any

import asyncpg
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Text,
    cast,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from understudy.adapters.postgres.connections.engine import can_read_proxy_reports, make_engine, translated
from understudy.adapters.postgres.registry.audit import newest_changes, sign
from understudy.adapters.postgres.tables import (
    API_KEY,
    MODEL_ENDPOINT,
    MODEL_VERSION,
    PROXY_INSTANCE,
    ROLLOUT,
    SERVING_POLICY,
)
from understudy.core.drift.baseline import Baselines, with_baselines
from understudy.core.rollout.state import Phase
from understudy.core.routing.arms import BucketRange
from understudy.core.routing.proxy_liveness import LIVE_SECONDS
from understudy.core.routing.status_changes import StatusChange, with_status_change
from understudy.errors import AlreadyRegistered, GenerationMoved, NotRegistered, PolicyRefused
from understudy.ports.registry.registry import (
    RETIRED,
    STAGING,
    Actor,
    AuditEntry,
    AuditSubject,
    ChangedPolicy,
    KeyLimits,
    KeyRecord,
    ModelRecord,
    NewVersion,
    PolicyRecord,
    VersionChange,
    VersionRecord,
)

ROLES = ("champion", "challenger", "shadow")
_KEPT = (
    "shadow_percent",
    "fallback",
    "salt",
    "category_roles",
    "rollout_id",
    "input_sample_percent",
    "guard",
    "on_drift",
    "category_holdout_percent",
)
"""Columns of a policy that its record has unchanged."""
_REFUSAL_CLASSES = ("22", "23")
"""SQLSTATE classes of values that the database refuses: data exception, constraint violation."""
_DUPLICATE_VERSION = "modelversion_model_name_version_key"
_DUPLICATE_POLICY = "servingpolicy_pkey"
_BAD_TARGET = "modelendpoint_target_"
_ARMS = literal_column(
    "(SELECT jsonb_agg(jsonb_build_array(version, first, last) ORDER BY first) FROM understudy_arms"
    " WHERE model = servingpolicy.model_name)",
    JSONB,
)
_KEY_COLUMNS = [API_KEY.c[name] for name in KeyRecord._fields]
"""Without the hash: a login that lists keys needs no right to read it."""
_EMPTY_METRICS = "UPDATE ModelVersion SET metrics = NULL empties them."
_OPEN_PHASES = [phase.value for phase in Phase if not phase.is_final]
_LIVE = PROXY_INSTANCE.c.seen_at > text(f"now() - INTERVAL '{LIVE_SECONDS:.0f} seconds'")


class PostgresRegistry:
    """Opens a connection for each call and keeps none; every call ends within ``timeout_seconds``."""

    def __init__(self, database_url: str, *, timeout_seconds: float = 5.0) -> None:
        self._engine = make_engine(
            database_url, timeout_seconds=timeout_seconds, application_name="understudy-registry"
        )
        self._timeout_seconds = timeout_seconds

    async def add_version(self, new: NewVersion, actor: Actor, *, dry_run: bool = False) -> VersionRecord:
        values = new._asdict()
        targets = values.pop("endpoints")
        async with self._transaction(dry_run=dry_run) as connection:
            await sign(connection, actor)
            try:
                async with _refusals():
                    made = await connection.execute(insert(MODEL_VERSION).values(values).returning(MODEL_VERSION.c.id))
            except _Duplicate as problem:
                raise AlreadyRegistered(f"version {new.version} of {new.model_name} is registered already") from problem
            version_id = made.scalar_one()
            async with _refusals():
                for target in dict.fromkeys(targets):
                    row = {"model_version_id": version_id, "target": target}
                    await connection.execute(insert(MODEL_ENDPOINT).values(row))
            return await _version(connection, new.model_name, new.version)

    async def list_versions(self, model_name: str | None = None) -> Sequence[VersionRecord]:
        query = _versions()
        if model_name is not None:
            query = query.where(MODEL_VERSION.c.model_name == model_name)
        async with self._transaction() as connection:
            return [_version_record(row) for row in await connection.execute(query)]

    async def show_version(self, model_name: str, version: str) -> VersionRecord:
        async with self._transaction() as connection:
            return await _version(connection, model_name, version)

    async def add_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        async with self._transaction(dry_run=dry_run) as connection:
            await sign(connection, actor)
            found = await _version(connection, model_name, version)
            row = {"model_version_id": found.id, "target": target}
            async with _refusals():
                await connection.execute(upsert(MODEL_ENDPOINT).values(row).on_conflict_do_nothing())
            return await _version(connection, model_name, version)

    async def remove_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        async with self._transaction(dry_run=dry_run) as connection:
            await sign(connection, actor)
            found = await _version(connection, model_name, version)
            if target not in found.endpoints:
                there_are = ", ".join(found.endpoints) or "none"
                raise NotRegistered(f"version {version} of {model_name} has no endpoint {target}; it has: {there_are}")
            of_version = (MODEL_ENDPOINT.c.model_version_id == found.id) & (MODEL_ENDPOINT.c.target == target)
            async with _refusals():
                await connection.execute(delete(MODEL_ENDPOINT).where(of_version))
                # Checked now and not at the commit, which a dry run never reaches.
                await connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
            return await _version(connection, model_name, version)

    async def set_baselines(
        self,
        model_name: str,
        version: str,
        baselines: Baselines,
        actor: Actor,
        *,
        source: str,
        dry_run: bool = False,
    ) -> VersionChange:
        async with self._transaction(dry_run=dry_run) as connection:
            await sign(connection, actor)
            of_version = (MODEL_VERSION.c.model_name == model_name) & (MODEL_VERSION.c.version == version)
            await connection.execute(select(MODEL_VERSION.c.id).where(of_version).with_for_update())
            before = await _version(connection, model_name, version)
            at = (await connection.execute(select(func.now()))).scalar_one()
            changed = {"at": at.isoformat(), "by": actor.name, "source": source, "reason": actor.reason}
            try:
                metrics = with_baselines(before.metrics, baselines, changed)
            except ValueError as problem:
                raise PolicyRefused(str(problem), hint=_EMPTY_METRICS) from None
            async with _refusals():
                await connection.execute(update(MODEL_VERSION).where(of_version).values(metrics=metrics))
            return VersionChange(before, await _version(connection, model_name, version))

    async def set_retired(
        self, model_name: str, version: str, actor: Actor, *, is_retired: bool, dry_run: bool = False
    ) -> VersionChange:
        status = RETIRED if is_retired else STAGING
        async with self._transaction(dry_run=dry_run) as connection:
            await sign(connection, actor)
            of_version = (MODEL_VERSION.c.model_name == model_name) & (MODEL_VERSION.c.version == version)
            # The same lock as the guards of policies take: rows of its calls can still be logged.
            await connection.execute(select(MODEL_VERSION.c.id).where(of_version).with_for_update(key_share=True))
            before = await _version(connection, model_name, version)
            if is_retired == (before.status == RETIRED):
                return VersionChange(before, before)
            at = (await connection.execute(select(func.now()))).scalar_one()
            try:
                noted = StatusChange(status, at.isoformat(), actor.name, actor.reason)
                metrics = with_status_change(before.metrics, noted)
            except ValueError as problem:
                raise PolicyRefused(str(problem), hint=_EMPTY_METRICS) from None
            async with _refusals():
                await connection.execute(update(MODEL_VERSION).where(of_version).values(status=status, metrics=metrics))
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
                raise NotRegistered(f"no model {model_name!r} is registered", others=_listed(names))
            return found[0]

    async def set_policy(
        self,
        model_name: str,
        changes: Mapping[str, Any],
        actor: Actor,
        *,
        expected_generation: int | None = None,
        dry_run: bool = False,
    ) -> ChangedPolicy:
        async with self._transaction(dry_run=dry_run) as connection:
            await sign(connection, actor)
            held = select(SERVING_POLICY.c.generation).where(SERVING_POLICY.c.model_name == model_name)
            generation = (await connection.execute(held.with_for_update())).scalar()
            if expected_generation is not None and expected_generation != (generation or 0):
                raise GenerationMoved(
                    f"the policy of {model_name} is at generation {generation or 0}, not {expected_generation}"
                )
            before = None if generation is None else await _policy_of(connection, model_name)
            values = await _columns_of(connection, model_name, changes)
            async with _refusals():
                if generation is None:
                    await connection.execute(insert(SERVING_POLICY).values(model_name=model_name, **values))
                elif values:
                    row = SERVING_POLICY.c.model_name == model_name
                    await connection.execute(update(SERVING_POLICY).where(row).values(values))
            after = await _policy_of(connection, model_name)
            if after is None:
                raise NotRegistered(f"the policy of {model_name} was deleted meanwhile")
            return ChangedPolicy(before, after)

    async def list_audit(
        self, model_name: str | None = None, limit: int = 50, subject: AuditSubject | None = None
    ) -> Sequence[AuditEntry]:
        async with self._transaction() as connection:
            return await newest_changes(connection, model_name, subject, limit)

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
        row = {"id": key_id, "sha256": sha256, "scopes": list(scopes), "note": note, "created_by": actor.name}
        row |= limits._asdict()
        async with self._transaction() as connection, _refusals():
            await sign(connection, actor)
            made = await connection.execute(insert(API_KEY).values(row).returning(*_KEY_COLUMNS))
            return _key_record(made.one())

    async def list_keys(self) -> Sequence[KeyRecord]:
        async with self._transaction() as connection:
            rows = await connection.execute(select(*_KEY_COLUMNS).order_by(API_KEY.c.created_at, API_KEY.c.id))
            return [_key_record(row) for row in rows]

    async def revoke_key(self, key_id: str, actor: Actor) -> KeyRecord:
        revoked = func.coalesce(API_KEY.c.revoked_at, func.now())
        statement = update(API_KEY).where(API_KEY.c.id == key_id).values(revoked_at=revoked).returning(*_KEY_COLUMNS)
        async with self._transaction() as connection:
            await sign(connection, actor)
            row = (await connection.execute(statement)).one_or_none()
            if row is None:
                raise NotRegistered(f"there is no key {key_id!r}", hint="understudy key list shows the keys there are.")
            return _key_record(row)

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def _transaction(self, *, dry_run: bool = False) -> AsyncIterator[AsyncConnection]:
        async with translated("the registry", self._timeout_seconds), self._engine.connect() as connection:
            transaction = await connection.begin()
            yield connection
            if dry_run:
                await transaction.rollback()
            else:
                await transaction.commit()


# -- reading -----------------------------------------------------------------------------------------------------------


def _versions() -> Select[Any]:
    targets = (
        select(func.array_agg(aggregate_order_by(MODEL_ENDPOINT.c.target, MODEL_ENDPOINT.c.target)))
        .where(MODEL_ENDPOINT.c.model_version_id == MODEL_VERSION.c.id)
        .scalar_subquery()
    )
    return select(MODEL_VERSION, targets.label("endpoints")).order_by(MODEL_VERSION.c.id)


def _version_record(row: Row[Any]) -> VersionRecord:
    values = {**row._mapping, "endpoints": tuple(row.endpoints or ())}  # noqa: SLF001 - public in spite of its name
    return VersionRecord(**values)


async def _version(connection: AsyncConnection, model_name: str, version: str) -> VersionRecord:
    of_model = MODEL_VERSION.c.model_name == model_name
    row = (await connection.execute(_versions().where(of_model, MODEL_VERSION.c.version == version))).one_or_none()
    if row is None:
        raise NotRegistered(await _no_such_version(connection, model_name, version))
    return _version_record(row)


async def _refuse_in_rollout(connection: AsyncConnection, record: VersionRecord) -> None:
    """Refuse to retire a version whose rollout is not over, even without a role: it may get one again.

    Raises:
        PolicyRefused: An open rollout has the version.
    """
    has_part = ROLLOUT.c.champion_version == record.id, ROLLOUT.c.challenger_version == record.id
    open_ones = select(ROLLOUT.c.id).where(or_(*has_part), ROLLOUT.c.phase.in_(_OPEN_PHASES))
    rollout_id = (await connection.execute(open_ones)).scalar()
    if rollout_id is not None:
        model = record.model_name
        raise PolicyRefused(
            f"version {record.version} of {model} has a part in rollout {rollout_id}, which is not over, and cannot be "
            "retired",
            hint=f"understudy rollout wait {quote(model)} --until finished waits for its end, understudy rollout abort "
            f"{quote(model)} --reason '…' ends it.",
        )


async def _no_such_version(connection: AsyncConnection, model_name: str, version: str) -> str:
    query = select(MODEL_VERSION.c.version).where(MODEL_VERSION.c.model_name == model_name).order_by(MODEL_VERSION.c.id)
    labels = (await connection.execute(query)).scalars().all()
    return f"{model_name} has no version {version!r}; it has: {_listed(labels)}"


async def _policy_of(connection: AsyncConnection, model_name: str) -> PolicyRecord | None:
    found = await _models(connection, model_name)
    return found[0].policy if found else None


async def _models(connection: AsyncConnection, model_name: str | None = None) -> list[ModelRecord]:
    """Return models with their policies; of one whose proxies' reports are locked, no proxy is live."""
    counts = select(MODEL_VERSION.c.model_name, func.count().label("versions")).group_by(MODEL_VERSION.c.model_name)
    policies = _policies(can_see_proxies=await can_read_proxy_reports(connection))
    if model_name is not None:
        counts = counts.where(MODEL_VERSION.c.model_name == model_name)
        policies = policies.where(SERVING_POLICY.c.model_name == model_name)
    held = {row.model_name: _policy_record(row) for row in await connection.execute(policies)}
    rows = await connection.execute(counts.order_by(MODEL_VERSION.c.model_name))
    return [ModelRecord(row.model_name, held.get(row.model_name), row.versions) for row in rows]


def _policies(*, can_see_proxies: bool) -> Select[Any]:
    policy = SERVING_POLICY.c
    on_generation = PROXY_INSTANCE.c.generations[policy.model_name].astext == cast(policy.generation, Text)
    live = select(func.count()).select_from(PROXY_INSTANCE).where(_LIVE)
    kept = (policy[name] for name in _KEPT)
    return select(
        policy.model_name,
        policy.challenger_weight,
        *(_label_of(policy[f"{role}_version"]).label(role) for role in ROLES),
        *kept,
        _label_of(policy.previous_champion).label("previous_champion"),
        policy.generation,
        policy.updated_at,
        policy.updated_by,
        (live.scalar_subquery() if can_see_proxies else literal(0)).label("proxies"),
        (live.where(on_generation).scalar_subquery() if can_see_proxies else literal(0)).label("proxies_on_generation"),
        _ARMS.label("arms"),
    )


def _policy_record(row: Row[Any]) -> PolicyRecord:
    arms = tuple(BucketRange(*arm) for arm in row.arms or ())
    return PolicyRecord(**{**row._mapping, "arms": arms})  # noqa: SLF001 - public in spite of its name


def _label_of(version_id: ColumnElement[Any]) -> ColumnElement[Any]:
    return select(MODEL_VERSION.c.version).where(MODEL_VERSION.c.id == version_id).scalar_subquery()


def _key_record(row: Row[Any]) -> KeyRecord:
    return KeyRecord(**{**row._mapping, "scopes": tuple(row.scopes)})  # noqa: SLF001 - public in spite of its name


def _listed(names: Sequence[str], at_most: int = 20) -> str:
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return (", ".join(names[:at_most]) or "none") + more


# -- writing -----------------------------------------------------------------------------------------------------------


async def _columns_of(connection: AsyncConnection, model_name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes as columns, with version ids for labels."""
    values: dict[str, Any] = {}
    for field, value in changes.items():
        if field == "arms":
            values[field] = [
                {"version_id": await _id_of(connection, model_name, arm), "first": first, "last": last}
                for arm, first, last in value
            ]
        elif field in ROLES:
            values[f"{field}_version"] = None if value is None else await _id_of(connection, model_name, value)
        else:
            values[field] = value
    return values


async def _id_of(connection: AsyncConnection, model_name: str, version: str) -> int:
    return (await _version(connection, model_name, version)).id


class _Duplicate(Exception):
    """The version exists."""


@asynccontextmanager
async def _refusals() -> AsyncIterator[None]:
    """Turn the database's refusals into ``PolicyRefused`` with its texts; other errors pass."""
    try:
        yield
    except DBAPIError as problem:
        said = problem.driver_exception
        if not isinstance(said, asyncpg.PostgresError) or said.sqlstate[:2] not in _REFUSAL_CLASSES:
            # asyncpg itself refuses a value that does not fit its column, before the database sees it
            if isinstance(said, asyncpg.DataError | ValueError | TypeError):
                raise PolicyRefused(str(said)) from problem
            raise
        constraint = said.constraint_name or ""
        if constraint == _DUPLICATE_VERSION:
            raise _Duplicate from problem
        if constraint == _DUPLICATE_POLICY:
            raise GenerationMoved("another change made the model's first policy meanwhile") from problem
        if constraint.startswith(_BAD_TARGET):
            raise PolicyRefused(
                "an endpoint is host:port of a model server, not a URL, a path, or a link-local address",
                hint="For example 127.0.0.1:9000 or tfs-churn-7:8500.",
            ) from problem
        raise PolicyRefused(said.message or str(said), hint=said.hint) from problem
