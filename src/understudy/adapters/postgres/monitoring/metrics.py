"""``MetricStore`` in Postgres: ``PredictionMetric``, ``DriftHour``, and alerts of drift."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import asyncpg
import orjson

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.adapters.postgres.monitoring.lease import fenced
from understudy.adapters.postgres.monitoring.outbox import add_alert
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind, dedup_key
from understudy.core.drift.hours import HOUR_SECONDS, hour_from_json, hour_to_json
from understudy.core.drift.subject_window import PREDICTION, SubjectWindow
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.routing.policy import Role
from understudy.errors import NotRegistered
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.metric_store import ActiveVersion, ActiveVersions, DriftFacts, MetricValue, ServedCall

_MINUTES = 60
_NOW = "SELECT extract(epoch FROM now())::float8"
_ACTIVE = f"""
    SELECT v.id, v.model_name, v.version,
           CASE WHEN v.status IN ('champion', 'challenger', 'shadow') THEN v.status END AS role,
           md5(coalesce(v.metrics::text, '')) AS metrics_digest,
           (SELECT extract(epoch FROM max(computed_at))::float8 FROM predictionmetric
            WHERE model_version_id = v.id AND metric_name = 'volume') AS measured_until,
           (SELECT extract(epoch FROM max(hour_start))::float8 + {HOUR_SECONDS} FROM drifthour
            WHERE model_version_id = v.id AND subject = '{PREDICTION}') AS summed_until,
           CASE WHEN jsonb_typeof(v.output_schema -> 'threshold') = 'number'
                THEN CASE WHEN abs((v.output_schema ->> 'threshold')::numeric) BETWEEN 1e-300 AND 1e300
                               OR (v.output_schema ->> 'threshold')::numeric = 0
                          THEN (v.output_schema ->> 'threshold')::float8 END END AS threshold,
           coalesce(v.output_schema ->> 'dtype' IN ('string', 'str', 'BYTES')
                    OR jsonb_path_exists(v.output_schema, '$.labels[*]')
                    OR (NOT v.output_schema ? 'score_index'
                        AND jsonb_path_exists(v.output_schema, '$.shape[*] ? (@ > 1)')),
                    FALSE) AS has_classes
    FROM modelversion v
    WHERE ($1::text IS NULL OR v.model_name = $1)
      AND (v.status IN ('champion', 'challenger', 'shadow')
           OR v.id IN (SELECT unnest(ARRAY[champion_version, challenger_version]) FROM rollout
                       WHERE phase IN ('PROGRESSING', 'WAITING', 'PROMOTING')))
    ORDER BY v.model_name, v.id
"""  # noqa: S608 - constants
# By the index on received_at, and bounded, so that the cost does not grow with the number of outcomes.
_NEWEST_OUTCOMES = """
    SELECT model_name, extract(epoch FROM max(received_at))::float8 AS received_at
    FROM (SELECT model_name, received_at FROM outcomeevent ORDER BY received_at DESC LIMIT 10000) AS newest
    GROUP BY model_name
"""
_METRICS = "SELECT metrics FROM modelversion WHERE id = $1"
_HOURS = """
    SELECT subject, extract(epoch FROM hour_start)::float8 AS start, sums FROM drifthour
    WHERE model_version_id = $1 AND hour_start >= to_timestamp($2) AND row_count > 0
      AND ($3::text[] IS NULL OR subject = ANY ($3))
    ORDER BY subject, hour_start
"""
# The expressions are those of the index predictionlog_inputs_of_hour. The bounds of predicted_at prune the other
# months. They are values, not expressions: only then the planner knows that one month's index has the order.
_HOUR = "date_trunc('hour', predicted_at AT TIME ZONE 'UTC')"
INPUT_SAMPLES = f"""
    SELECT entity_id, inputs FROM predictionlog
    WHERE model_version_id = $1 AND {_HOUR} = $2::timestamptz AT TIME ZONE 'UTC' AND inputs IS NOT NULL
      AND predicted_at >= $2::timestamptz AND predicted_at < $3::timestamptz
    ORDER BY hashtextextended(entity_id, 30) LIMIT $4
"""  # noqa: S608 - a constant
_CLASSES = """
    SELECT near.entity_id, near.label FROM generate_series(0, 59) AS minute CROSS JOIN LATERAL (
        SELECT entity_id, prediction ->> 'label' AS label FROM predictionlog
        WHERE model_version_id = $1 AND predicted_at >= $2::timestamptz + minute * INTERVAL '1 minute'
          AND predicted_at < $2::timestamptz + (minute + 1) * INTERVAL '1 minute'
          AND predicted_at >= $2::timestamptz AND predicted_at < $3::timestamptz
          AND status = 'ok' AND NOT cache_hit AND reason NOT IN ('forced', 'category')
        ORDER BY predicted_at DESC LIMIT $4
    ) AS near
"""
# By the index on the version and the time; the bounds are values, so that other months are pruned.
SERVED_CALLS = """
    SELECT entity_id, extract(epoch FROM predicted_at)::float8 AS at, inputs, defaulted FROM predictionlog
    WHERE model_version_id = $1 AND predicted_at >= $2 AND predicted_at < $3 AND inputs IS NOT NULL AND NOT cache_hit
    ORDER BY predicted_at DESC LIMIT $4
"""
# One hour at a time, so that the planner scans one month and little of it: the whole history lies before the bound.
OLDEST_INPUTS = f"""
    SELECT {_HOUR} AT TIME ZONE 'UTC' FROM predictionlog
    WHERE inputs IS NOT NULL AND {_HOUR} < date_trunc('hour', $1::timestamptz AT TIME ZONE 'UTC')
      AND predicted_at < $1::timestamptz
    ORDER BY {_HOUR} LIMIT 1
"""  # noqa: S608 - a constant
FORGET_INPUTS = f"""
    WITH old AS (
        SELECT id, predicted_at FROM predictionlog
        WHERE inputs IS NOT NULL AND {_HOUR} = $1::timestamptz AT TIME ZONE 'UTC'
          AND predicted_at >= $1::timestamptz AND predicted_at < $2::timestamptz
        LIMIT $3)
    UPDATE predictionlog log SET inputs = NULL FROM old
    WHERE log.id = old.id AND log.predicted_at = old.predicted_at
      AND log.predicted_at >= $1::timestamptz AND log.predicted_at < $2::timestamptz
"""  # noqa: S608 - a constant
_ADD = """
    INSERT INTO predictionmetric AS known (model_version_id, metric_name, value, computed_at)
    SELECT version_id, name, value, to_timestamp(at)
    FROM unnest($1::bigint[], $2::text[], $3::float8[], $4::float8[]) AS given (version_id, name, value, at)
    WHERE EXISTS (SELECT FROM modelversion WHERE id = version_id)
    ON CONFLICT (model_version_id, metric_name, computed_at) DO UPDATE SET value = excluded.value
    WHERE known.value IS DISTINCT FROM excluded.value
"""
_ADD_HOUR = """
    INSERT INTO drifthour AS known (model_version_id, subject, hour_start, row_count, sums)
    SELECT $1, subject, to_timestamp($2), row_count, sums::jsonb
    FROM unnest($3::text[], $4::bigint[], $5::text[]) AS given (subject, row_count, sums)
    WHERE EXISTS (SELECT FROM modelversion WHERE id = $1)
    ON CONFLICT (model_version_id, subject, hour_start) DO UPDATE
    SET row_count = excluded.row_count, sums = excluded.sums WHERE known.sums IS DISTINCT FROM excluded.sums
"""
_TOLD = """
    SELECT action FROM alertoutbox WHERE dedup_key = $1 AND action <> 'change' ORDER BY id DESC LIMIT 1
"""
# By the index alertoutbox_of_incident, which has the newest row of each incident last.
_OPEN_INCIDENTS = """
    SELECT dedup_key, model_name, version FROM (
        SELECT DISTINCT ON (dedup_key) dedup_key, model_name, action, payload ->> 'version' AS version FROM alertoutbox
        WHERE action <> 'change' ORDER BY dedup_key, id DESC) AS newest
    WHERE action <> 'resolve' AND model_name IS NOT NULL
"""
_FORGET_METRICS = """
    DELETE FROM predictionmetric WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM predictionmetric WHERE computed_at < to_timestamp($1) ORDER BY computed_at LIMIT $2))
"""
_FORGET_HOURS = "DELETE FROM drifthour WHERE hour_start < to_timestamp($1)"


class PostgresMetricStore(SessionPerCall):
    """Implements ``ports.MetricStore``; every write is fenced with the monitor's epoch."""

    async def active(self, model_name: str | None = None) -> ActiveVersions:
        async with self._connection() as connection:
            rows = await connection.fetch(_ACTIVE, model_name)
            now: float = await connection.fetchval(_NOW)
        return ActiveVersions(now, [_active_version(row) for row in rows])

    async def newest_outcomes(self) -> Mapping[str, float]:
        async with self._connection() as connection:
            return {row["model_name"]: row["received_at"] for row in await connection.fetch(_NEWEST_OUTCOMES)}

    async def drift_facts(self, version_id: int, since: float, subjects: Sequence[str] | None = None) -> DriftFacts:
        async with self._connection() as connection:
            row = await connection.fetchrow(_METRICS, version_id)
            hours = await connection.fetch(_HOURS, version_id, since, subjects)
        if row is None:
            raise NotRegistered(f"there is no model version with the id {version_id}")
        found: dict[str, list[SubjectWindow]] = {}
        for hour in hours:
            found.setdefault(hour["subject"], []).append(hour_from_json(hour["start"], hour["sums"]))
        return DriftFacts(None if row["metrics"] is None else orjson.loads(row["metrics"]), found)

    async def input_samples(self, version_id: int, hour_start: float, limit: int) -> Sequence[InputSample]:
        async with self._connection() as connection:
            hour = [datetime.fromtimestamp(at, UTC) for at in (hour_start, hour_start + HOUR_SECONDS)]
            rows = await connection.fetch(INPUT_SAMPLES, version_id, *hour, limit)
        return [InputSample(row["entity_id"], row["inputs"]) for row in rows]

    async def answered_classes(
        self, version_id: int, hour_start: float, limit: int
    ) -> Sequence[tuple[str, str | None]]:
        async with self._connection() as connection:
            hour = [datetime.fromtimestamp(at, UTC) for at in (hour_start, hour_start + HOUR_SECONDS)]
            rows = await connection.fetch(_CLASSES, version_id, *hour, limit // _MINUTES)
        return [(row["entity_id"], row["label"]) for row in rows]

    async def served_calls(self, version_id: int, since: float, until: float, limit: int) -> Sequence[ServedCall]:
        async with self._connection() as connection:
            between = [datetime.fromtimestamp(at, UTC) for at in (since, until)]
            rows = await connection.fetch(SERVED_CALLS, version_id, *between, limit)
        return [ServedCall(row["entity_id"], row["at"], row["inputs"], _names(row["defaulted"])) for row in rows]

    async def add(self, values: Sequence[MetricValue], *, epoch: Epoch) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await _add(connection, values)

    async def add_hours(self, version_id: int, hours: Mapping[str, SubjectWindow], *, epoch: Epoch) -> None:
        (start,) = {hour.start_seconds for hour in hours.values()}
        subjects, rows = list(hours), [sum(hour.bucket_rows) for hour in hours.values()]
        async with self._connection() as connection, fenced(connection, epoch):
            texts = [hour_to_json(hour) for hour in hours.values()]
            await connection.execute(_ADD_HOUR, version_id, start, subjects, rows, texts)

    async def tell_drift(self, values: Sequence[MetricValue], event: AlertEvent, *, epoch: Epoch) -> bool:
        async with self._connection() as connection, fenced(connection, epoch):
            await _add(connection, values)
            told = await connection.fetchval(_TOLD, event.dedup_key)
            is_open = told not in (None, AlertAction.RESOLVE)
            is_news = is_open != (event.action is AlertAction.TRIGGER)
            if is_news:
                await add_alert(connection, event)
        return is_news

    async def open_incidents(self, kind: AlertKind, environment: str, topic: str | None = None) -> Collection[str]:
        async with self._connection() as connection:
            rows = await connection.fetch(_OPEN_INCIDENTS)
        named = [(row["dedup_key"], row["model_name"]) for row in rows]
        return {model_name for key, model_name in named if key == dedup_key(environment, model_name, kind, None, topic)}

    async def open_incidents_of_versions(self, kind: AlertKind, environment: str) -> Collection[tuple[str, str]]:
        async with self._connection() as connection:
            rows = await connection.fetch(_OPEN_INCIDENTS)
        named = [(row["dedup_key"], row["model_name"], row["version"]) for row in rows if row["version"] is not None]
        return {
            (model, version) for key, model, version in named if key == dedup_key(environment, model, kind, version)
        }

    async def forget_hours(self, before: float, *, epoch: Epoch) -> int:
        async with self._connection() as connection, fenced(connection, epoch):
            done: str = await connection.execute(_FORGET_HOURS, before)
        return int(done.rpartition(" ")[2])

    async def forget_metrics(self, before: float, at_most: int, *, epoch: Epoch) -> int:
        async with self._connection() as connection, fenced(connection, epoch):
            done: str = await connection.execute(_FORGET_METRICS, before, at_most)
        return int(done.rpartition(" ")[2])

    async def forget_inputs(self, before: float, at_most: int, *, epoch: Epoch) -> int:
        async with self._connection() as connection, fenced(connection, epoch):
            oldest = await connection.fetchval(OLDEST_INPUTS, datetime.fromtimestamp(before, UTC))
            if oldest is None:
                return 0
            end = oldest + timedelta(seconds=HOUR_SECONDS)
            done: str = await connection.execute(FORGET_INPUTS, oldest, end, at_most)
        return int(done.rpartition(" ")[2])

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("metrics", "understudy-metrics")


async def _add(connection: asyncpg.Connection, values: Sequence[MetricValue]) -> None:
    if values:
        await connection.execute(_ADD, *map(list, zip(*values, strict=True)))


def _names(defaulted: str | None) -> Sequence[str]:
    found = None if defaulted is None else orjson.loads(defaulted)
    return found if isinstance(found, list) else ()


def _active_version(row: asyncpg.Record) -> ActiveVersion:
    return ActiveVersion(**{**row, "role": None if row["role"] is None else Role(row["role"])})
