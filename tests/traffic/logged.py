"""Calls of a version, written to the log with their windows as the shipper does."""

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import numpy as np
import orjson

from traffic.spooled_rows import a_row, new_windows, no_threshold
from understudy.adapters.postgres.monitoring.metrics import PostgresMetricStore
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.drift.baseline import FloatArray
from understudy.core.prediction_log.row import COLUMNS, PredictionRow
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.routing.policy import Role
from understudy.ports.monitoring.metric_store import ActiveVersions
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome

SPOOL = "00000000-0000-4000-8000-000000000009"
ENTITIES = 400


class LoggedTraffic:
    """Ships rows to a database."""

    def __init__(self, database_url: str) -> None:
        self._store = PostgresPredictionStore(database_url, timeout_seconds=20)
        self._builder = new_windows()
        self._end = 0

    async def ship(self, rows: Sequence[PredictionRow]) -> None:
        """Write rows and their windows in one batch."""
        encoded = [
            encode_line(row._replace(prediction_id=str(UUID(int=self._end + place)))) for place, row in enumerate(rows)
        ]
        staged = self._builder.stage(encoded, COLUMNS, no_threshold)
        batch = SpooledBatch(SPOOL, 1, self._end, self._end + len(encoded), encoded)
        assert (await self._store.write(batch, staged.windows)).outcome is WriteOutcome.WRITTEN
        self._builder.commit(staged)
        self._end += len(encoded)

    async def close(self) -> None:
        await self._store.close()


class StoreAsOf(PostgresMetricStore):
    """The real store, at a time of the test's choice."""

    now = 0.0

    async def active(self, model_name: str | None = None) -> ActiveVersions:
        return (await super().active(model_name))._replace(now=self.now)


def scored_rows(
    scores: FloatArray, start: float, version_id: int = 1, role: Role = Role.CHAMPION
) -> list[PredictionRow]:
    """Return one call for each score, of ever the same entities, in the four windows from a time on."""
    places = np.arange(len(scores))
    return [
        a_row(int(place), version_id=version_id)._replace(
            predicted_at=start + float(place % 60),
            entity_id=f"user-{place % ENTITIES}",
            score=float(score),
            role=role,
            latency_us=10_000 + 10 * int(place % 997),
        )
        for place, score in zip(places, scores, strict=True)
    ]


async def register(
    database: asyncpg.Connection, model: str, version: str, metrics: object = None, *, output: object = None
) -> int:
    """Register a version with these metrics and this ``output_schema``, and return its id."""
    made: int = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, metrics, output_schema)"
        " VALUES ($1, $2, 'file:///m', 'sklearn', '{}', $3, $4) RETURNING id",
        model,
        version,
        None if metrics is None else orjson.dumps(metrics).decode(),
        orjson.dumps(output or {}).decode(),
    )
    return made


async def lead(database_url: str) -> int:
    """Take the monitor's lease and return its epoch."""
    connection = await asyncpg.connect(database_url)
    epoch: int = await connection.fetchval(
        "INSERT INTO MonitorLease (name, holder, epoch) VALUES ('monitor', 'test', 1)"
        " ON CONFLICT (name) DO UPDATE SET epoch = MonitorLease.epoch + 1 RETURNING epoch"
    )
    await connection.close()
    return epoch
