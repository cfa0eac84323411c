"""``ReceiptLog`` over ``PredictionLog``: by version and time, or by the index of entities where there is one."""

from collections.abc import Sequence

import asyncpg
import orjson

from understudy.adapters.postgres.connections.long_reads import LongReads
from understudy.adapters.postgres.prediction_log.entity_index import found_by_index
from understudy.ports.prediction_log.receipts import (
    EARLY_SECONDS,
    LATE_SECONDS,
    MAX_DEFAULTED,
    MAX_LABEL,
    MAX_OF_PREDICTION,
    EntityAsked,
    Receipt,
)

_COLUMNS = f"""
    p.prediction_id::text AS prediction_id, extract(epoch FROM p.predicted_at)::float8 AS predicted_at, v.model_name,
    v.version, (SELECT version FROM modelversion WHERE id = p.assigned_version_id) AS assigned, p.entity_id, p.role,
    p.reason, p.status, p.error_code, p.score,
    CASE WHEN jsonb_typeof(p.prediction) = 'object' AND octet_length((p.prediction -> 'label')::text) <= {MAX_LABEL}
         THEN (p.prediction -> 'label')::text END AS label,
    p.latency_us, p.bucket, p.policy_generation AS generation, p.rollout_id, p.cache_hit AS is_cache_hit,
    CASE WHEN octet_length(p.defaulted::text) <= {MAX_DEFAULTED} THEN p.defaulted END AS defaulted
"""  # noqa: S608 - constants
# Version by version, each by its own stretch of the index: OFFSET 0 keeps Postgres from joining otherwise.
_OF_PREDICTION = f"""
    SELECT {_COLUMNS}
    FROM modelversion AS v CROSS JOIN LATERAL (
        SELECT * FROM predictionlog
        WHERE model_version_id = v.id AND predicted_at >= to_timestamp($2) AND predicted_at < to_timestamp($3)
          AND prediction_id = $1::text::uuid
        OFFSET 0
    ) AS p
    ORDER BY p.role = 'shadow', p.predicted_at, p.id LIMIT {MAX_OF_PREDICTION}
"""  # noqa: S608 - constants
_BY_INDEX = found_by_index("to_timestamp($3)", "to_timestamp($4)", "$2")
"""Without an index by entity it is computed of the rows found."""
OF_ENTITY = f"""
    SELECT {_COLUMNS}
    FROM modelversion AS v CROSS JOIN LATERAL (
        SELECT * FROM predictionlog
        WHERE model_version_id = v.id AND predicted_at >= to_timestamp($3) AND predicted_at < to_timestamp($4)
          AND entity_id = $2 AND {_BY_INDEX}
          AND role IS DISTINCT FROM 'shadow'
        ORDER BY predicted_at DESC, id DESC LIMIT $5
    ) AS p
    WHERE v.model_name = $1
    ORDER BY p.predicted_at DESC, p.id DESC LIMIT $5
"""  # noqa: S608 - constants
_WHAT, _NAME = "logged calls", "understudy-receipts"


class PostgresReceiptLog(LongReads):
    """Implements ``ports.ReceiptLog``; the role may select in ``PredictionLog`` and ``ModelVersion``."""

    _WHEN_LATE = "Try again in a moment; understudy log query asks the archive, too."

    async def of_prediction(self, prediction_id: str, at: float) -> Sequence[Receipt]:
        async with self._read(_WHAT, _NAME) as connection:
            rows = await connection.fetch(_OF_PREDICTION, prediction_id, at - EARLY_SECONDS, at + LATE_SECONDS)
        return [_receipt(row) for row in rows]

    async def of_entity(self, asked: EntityAsked, timeout_seconds: float) -> Sequence[Receipt]:
        async with self._read(_WHAT, _NAME, timeout_seconds) as connection:
            rows = await connection.fetch(OF_ENTITY, *asked)
        return [_receipt(row) for row in rows]


def _receipt(row: asyncpg.Record) -> Receipt:
    found = orjson.loads(row["defaulted"]) if row["defaulted"] is not None else ()
    names = tuple(str(name) for name in found) if isinstance(found, list) else ()
    return Receipt(**{**row, "defaulted": names})
