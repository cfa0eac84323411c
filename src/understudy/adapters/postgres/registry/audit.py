"""The audit in Postgres: changes of policies and of the rest of the registry, as one list."""

from heapq import merge
from itertools import islice
from typing import Any

from sqlalchemy import Row, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from understudy.adapters.postgres.tables import POLICY_AUDIT, REGISTRY_AUDIT
from understudy.ports.registry.registry import Actor, AuditEntry, AuditSubject


async def sign(connection: AsyncConnection, actor: Actor) -> None:
    """Name the actor of this transaction to the audit's triggers."""
    settings = {"actor": actor.name, "via": actor.via, "reason": actor.reason or ""}
    for name, value in settings.items():
        await connection.execute(select(func.set_config(f"understudy.{name}", value, True)))


async def newest_changes(
    connection: AsyncConnection, model_name: str | None, subject: AuditSubject | None, limit: int
) -> list[AuditEntry]:
    """Return the newest changes of a model, or of all, newest first; ``subject``: only those of such things."""
    policies: list[AuditEntry] = []
    others: list[AuditEntry] = []
    if subject in (None, AuditSubject.POLICY):
        policies = [_of_policy(row) for row in await connection.execute(_newest(POLICY_AUDIT, model_name, limit))]
    if subject is not AuditSubject.POLICY:
        query = _newest(REGISTRY_AUDIT, model_name, limit)
        if subject is not None:
            query = query.where(REGISTRY_AUDIT.c.subject == subject)
        others = [_of_registry(row) for row in await connection.execute(query)]
    # Merged, not sorted: the time is when a transaction began, and each table keeps the order of its ids.
    return list(islice(merge(policies, others, key=lambda entry: entry.changed_at, reverse=True), limit))


def _newest(table: Table, model_name: str | None, limit: int) -> Select[Any]:
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    return query if model_name is None else query.where(table.c.model_name == model_name)


def _of_policy(row: Row[Any]) -> AuditEntry:
    return AuditEntry(**row._mapping, subject=AuditSubject.POLICY, subject_id=row.model_name, version=None)  # noqa: SLF001 - public in spite of its name


def _of_registry(row: Row[Any]) -> AuditEntry:
    return AuditEntry(**{**row._mapping, "subject": AuditSubject(row.subject)}, generation=None)  # noqa: SLF001 - as above
