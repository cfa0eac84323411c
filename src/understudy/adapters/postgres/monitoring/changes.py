"""``ChangeHistory`` in Postgres: ``PolicyAudit``, ``RegistryAudit``, ``PredictionWindow`` and ``PredictionMetric``."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncpg
import orjson

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.core.alerts.recent_changes import (
    MAX_CHANGES,
    RECENT_SECONDS,
    Change,
    RecentChanges,
    Traffic,
    newest,
    policy_change,
    registry_change,
)

_POLICY = """
    SELECT extract(epoch FROM changed_at)::float8 AS at, actor, via, reason, before, after, count(*) OVER () AS total
    FROM policyaudit WHERE model_name = $1 AND changed_at > now() - $2 * INTERVAL '1 second' ORDER BY id DESC LIMIT $3
"""
_REGISTRY = """
    SELECT extract(epoch FROM changed_at)::float8 AS at, actor, via, reason, subject, version, action, before, after,
           count(*) OVER () AS total
    FROM registryaudit WHERE model_name = $1 AND changed_at > now() - $2 * INTERVAL '1 second' ORDER BY id DESC LIMIT $3
"""
_LABELS = "SELECT id, version FROM modelversion WHERE model_name = $1"
_TRAFFIC = """
    SELECT coalesce(sum(calls) FILTER (WHERE window_start >= now() - $2 * INTERVAL '1 second'), 0)::float8 AS now,
           coalesce(sum(calls) FILTER (WHERE window_start < now() - $2 * INTERVAL '1 second'), 0)::float8 AS before
    FROM predictionwindow
    WHERE model_version_id IN (SELECT id FROM modelversion WHERE model_name = $1) AND role <> 'shadow'
      AND window_start >= now() - 2 * $2 * INTERVAL '1 second'
"""
# An hour is judged some minutes after its end, so the newest judgement is up to two hours old.
_DRIFTING = """
    SELECT metric_name FROM (
        SELECT DISTINCT ON (metric_name) metric_name, value
        FROM predictionmetric AS metric
        JOIN servingpolicy AS policy ON policy.champion_version = metric.model_version_id
        WHERE policy.model_name = $1 AND starts_with(metric_name, 'drift_state')
          AND computed_at > now() - INTERVAL '3 hours'
        ORDER BY metric_name, computed_at DESC) AS latest
    WHERE value = 1 ORDER BY metric_name
"""
_STATE = "drift_state"
_MINUTES = RECENT_SECONDS / 60


class PostgresChangeHistory(SessionPerCall):
    """Implements ``ports.ChangeHistory``."""

    async def recent(self, model_name: str) -> RecentChanges:
        async with self._connection() as connection:
            labels = {row["id"]: row["version"] for row in await connection.fetch(_LABELS, model_name)}
            policies = await connection.fetch(_POLICY, model_name, RECENT_SECONDS, MAX_CHANGES)
            registry = await connection.fetch(_REGISTRY, model_name, RECENT_SECONDS, MAX_CHANGES)
            traffic = await connection.fetchrow(_TRAFFIC, model_name, RECENT_SECONDS)
            drifting = await connection.fetch(_DRIFTING, model_name)
        assert traffic is not None
        found = [
            *(_change(row, policy_change(_read(row["before"]), _read(row["after"]), labels)) for row in policies),
            *(_change(row, _registry_words(row)) for row in registry),
        ]
        total = sum(rows[0]["total"] for rows in (policies, registry) if rows)
        per_minute = Traffic(traffic["now"] / _MINUTES, traffic["before"] / _MINUTES)
        return RecentChanges(newest(found), total, per_minute, tuple(_subject(row["metric_name"]) for row in drifting))

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("what changed", "understudy-changes")


def _change(row: asyncpg.Record, what: str) -> Change:
    return Change(row["at"], what, row["actor"], row["via"], row["reason"])


def _registry_words(row: asyncpg.Record) -> str:
    return registry_change(row["subject"], row["version"], row["action"], _read(row["before"]), _read(row["after"]))


def _read(document: str | None) -> Mapping[str, Any] | None:
    if document is None:
        return None
    found = orjson.loads(document)
    return found if isinstance(found, dict) else {}


def _subject(metric_name: str) -> str:
    """Return the subject of ``drift_state/country``; that of the predictions has no name there."""
    return metric_name.removeprefix(_STATE).removeprefix("/") or "prediction"
