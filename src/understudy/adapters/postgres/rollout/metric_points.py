"""Values of a rollout's own metrics, as rows of ``PredictionMetric`` under names that are the rollout's alone."""

from collections.abc import Sequence

import asyncpg

from understudy.core.canary.metric_limits import MAX_METRICS
from understudy.core.canary.metric_samples import MetricPoint
from understudy.ports.rollout.rollout_store import RolloutRecord

_PROBLEM = "_problem"
_POINTS = """
    SELECT model_version_id, metric_name, value, extract(epoch FROM computed_at)::bigint AS at FROM predictionmetric
    WHERE model_version_id = ANY ($1::bigint[]) AND metric_name = ANY ($2::text[]) AND computed_at >= to_timestamp($3)
"""
_ADD = """
    INSERT INTO predictionmetric AS known (model_version_id, metric_name, value, computed_at)
    SELECT version_id, name, value, to_timestamp(at)
    FROM unnest($1::bigint[], $2::text[], $3::float8[], $4::bigint[]) AS given (version_id, name, value, at)
    ON CONFLICT (model_version_id, metric_name, computed_at) DO UPDATE SET value = excluded.value
    WHERE known.value IS DISTINCT FROM excluded.value
"""


async def read_points(connection: asyncpg.Connection, record: RolloutRecord, since: float) -> list[MetricPoint]:
    """Return what is stored of a rollout's metrics from a moment on, in whatever order."""
    names = {_name(record.id, number): number for number in range(MAX_METRICS)}
    versions = [record.champion_id, record.challenger_id]
    rows = await connection.fetch(_POINTS, versions, [*names, *(name + _PROBLEM for name in names)], since)
    return [
        MetricPoint(
            names[row["metric_name"].removesuffix(_PROBLEM)],
            row["at"],
            row["value"],
            is_challenger=row["model_version_id"] == record.challenger_id,
            is_problem=row["metric_name"].endswith(_PROBLEM),
        )
        for row in rows
    ]


async def add_points(connection: asyncpg.Connection, record: RolloutRecord, points: Sequence[MetricPoint]) -> None:
    """Store values; one of the same minute is replaced."""
    # A statement cannot change a row twice: of two values of a minute the later one counts.
    newest = {
        (
            record.challenger_id if point.is_challenger else record.champion_id,
            _name(record.id, point.number) + _PROBLEM * point.is_problem,
            point.at,
        ): point.value
        for point in points
    }
    columns = list(zip(*((version, name, value, at) for (version, name, at), value in newest.items()), strict=True))
    if columns:
        await connection.execute(_ADD, *map(list, columns))


def _name(rollout_id: int, number: int) -> str:
    return f"rollout_{rollout_id}_metric_{number + 1}"
