"""The audit in Postgres: changes of policies and of the rest of the registry, as one list."""

import json
from heapq import merge
from itertools import islice
from typing import Any

import asyncpg

from understudy.adapters.postgres.connections.connection import named_by_callers
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditSubject

_POLICIES = """
    SELECT id, model_name, generation, changed_at, actor, via, reason, action, before, after FROM policyaudit
    WHERE ($1::text IS NULL OR model_name = $1) AND ($3::text IS NULL OR actor = $3)
        AND ($4::text IS NULL OR via = $4) AND ($5::timestamptz IS NULL OR changed_at >= $5)
        AND ($6::bigint IS NULL OR id < $6) AND ($7::bigint IS NULL OR generation = $7)
    ORDER BY id DESC LIMIT $2
"""
_OTHERS = """
    (SELECT id, model_name, changed_at, actor, via, reason, action, before, after, subject, subject_id, version
     FROM registryaudit
     WHERE ($1::text IS NULL OR model_name = $1) AND ($3::text IS NULL OR actor = $3)
         AND ($4::text IS NULL OR via = $4) AND ($5::timestamptz IS NULL OR changed_at >= $5)
         AND ($6::bigint IS NULL OR id < $6) AND ($7::text IS NULL OR subject = $7)
     ORDER BY id DESC LIMIT $2)
    UNION ALL
    (SELECT id, model_name, changed_at, actor, via, reason, action, before, after, 'subscription', name, NULL
     FROM subscriptionaudit
     WHERE ($1::text IS NULL OR model_name = $1) AND ($3::text IS NULL OR actor = $3)
         AND ($4::text IS NULL OR via = $4) AND ($5::timestamptz IS NULL OR changed_at >= $5)
         AND ($6::bigint IS NULL OR id < $6) AND coalesce($7, 'subscription') = 'subscription'
     ORDER BY id DESC LIMIT $2)
    ORDER BY id DESC LIMIT $2
"""


async def newest_changes(
    connection: asyncpg.Connection,
    model_name: str | None,
    subject: AuditSubject | None,
    limit: int,
    only: AuditFilter,
) -> list[AuditEntry]:
    """Return the newest changes of a model, or of all, newest first; ``subject``: only those of such things."""
    policies: list[AuditEntry] = []
    others: list[AuditEntry] = []
    asked, after = (model_name, limit, only.actor, only.via, only.since), only.after
    with named_by_callers():
        if subject in (None, AuditSubject.POLICY):
            found = await connection.fetch(_POLICIES, *asked, after.policy, only.generation)
            policies = [_of_policy(row) for row in found]
        if subject is not AuditSubject.POLICY and only.generation is None:
            others = [_of_registry(row) for row in await connection.fetch(_OTHERS, *asked, after.other, subject)]
    # Merged, not sorted: the time is when a transaction began, and each table keeps the order of its ids.
    return list(islice(merge(policies, others, key=lambda entry: entry.changed_at, reverse=True), limit))


def _of_policy(row: asyncpg.Record) -> AuditEntry:
    subject = {"subject": AuditSubject.POLICY, "subject_id": row["model_name"], "version": None}
    return AuditEntry(**{**_values(row), **subject})


def _of_registry(row: asyncpg.Record) -> AuditEntry:
    return AuditEntry(**{**_values(row), "subject": AuditSubject(row["subject"]), "generation": None})


def _values(row: asyncpg.Record) -> dict[str, Any]:
    documents = {name: row[name] and json.loads(row[name]) for name in ("before", "after")}
    return {**dict(row), **documents}
