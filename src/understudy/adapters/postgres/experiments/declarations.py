"""``ExperimentStore`` over the table ``Experiment``."""

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import orjson

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.adapters.postgres.connections.signing import sign
from understudy.ports.experiments.experiment_store import ExperimentRecord, NewExperiment
from understudy.ports.registry.registry import Actor

_MAX_JSON_BYTES = 65_536
_COLUMNS = f"""
    id, model_name, metric, champion_version, challenger_version, extract(epoch FROM started_at)::float8 AS started_at,
    CASE WHEN octet_length(plan::text) > {_MAX_JSON_BYTES} THEN '"too long"' ELSE plan END AS plan,
    CASE WHEN octet_length(result::text) > {_MAX_JSON_BYTES} THEN '"too long"' ELSE result END AS result,
    left(created_by, 255) AS created_by, extract(epoch FROM ended_at)::float8 AS ended_at,
    left(to_jsonb(experiment) ->> 'ended_by', 255) AS ended_by
"""
# By its name in a document: the schema of the release before has no such column.
_LATEST = f"""
    SELECT {_COLUMNS} FROM experiment
    WHERE model_name = $1 AND metric = $2
      AND ($3::bigint IS NULL OR (champion_version = $3 AND challenger_version = $4)) ORDER BY id DESC LIMIT 1
"""  # noqa: S608 - constants
_NEWEST = f"SELECT {_COLUMNS} FROM experiment WHERE $1::text IS NULL OR model_name = $1 ORDER BY id DESC LIMIT $2"  # noqa: S608 - constants
# A table's lock, which asks for the right to write, and no advisory one, which any login may take and keep. The release
# before takes an advisory one: its insert waits for this lock, and this lock for its insert.
_LOCK = "LOCK TABLE experiment IN SHARE ROW EXCLUSIVE MODE"
_DECLARE = f"""
    INSERT INTO experiment
        (model_name, metric, champion_version, challenger_version, plan, created_by, started_at, name)
    SELECT model_name, metric, champion_id, challenger_id, plan, created_by, started_at,
           left(metric, 60) || ' ' || champion_id || '-' || challenger_id || ' '
           || (SELECT coalesce(max(id), 0) + 1 FROM experiment)
    FROM (SELECT $1::text, $2::text, $3::bigint, $4::bigint, $5::jsonb, $6::text, to_timestamp($7))
        AS new (model_name, metric, champion_id, challenger_id, plan, created_by, started_at)
    WHERE NOT EXISTS (
        SELECT FROM experiment AS known
        WHERE known.model_name = new.model_name AND known.metric = new.metric AND known.ended_at IS NULL
          AND known.champion_version = champion_id AND known.challenger_version = challenger_id)
    RETURNING {_COLUMNS}
"""  # noqa: S608 - constants
_RECORD = """
    UPDATE experiment SET result = $2::jsonb, ended_at = CASE WHEN $4 THEN now() END
    WHERE id = $1 AND ended_at IS NULL AND result IS NOT DISTINCT FROM $3::jsonb RETURNING id
"""


class PostgresExperimentStore(SessionPerCall):
    """Implements ``ports.ExperimentStore``; the role may select, insert and update in ``Experiment``."""

    async def latest(
        self, model_name: str, metric: str, versions: tuple[int, int] | None = None
    ) -> ExperimentRecord | None:
        champion_id, challenger_id = versions or (None, None)
        rows = await self._fetch([], _LATEST, model_name, metric, champion_id, challenger_id)
        return _record(rows[0]) if rows else None

    async def newest(self, model_name: str | None, at_most: int) -> Sequence[ExperimentRecord]:
        return [_record(row) for row in await self._fetch([], _NEWEST, model_name, at_most)]

    async def declare(self, new: NewExperiment) -> ExperimentRecord | None:
        rows = await self._fetch(
            [_LOCK],
            _DECLARE,
            new.model_name,
            new.metric,
            new.champion_id,
            new.challenger_id,
            orjson.dumps(new.plan).decode(),
            new.created_by,
            new.started_at,
        )
        return _record(rows[0]) if rows else None

    async def record(
        self, before: ExperimentRecord, result: Mapping[str, Any], *, ends: bool, by: Actor | None = None
    ) -> bool:
        old = None if before.result is None else orjson.dumps(before.result).decode()
        return bool(await self._fetch([], _RECORD, before.id, orjson.dumps(result).decode(), old, ends, by=by))

    async def _fetch(
        self, first: Sequence[str], statement: str, *arguments: object, by: Actor | None = None
    ) -> list[asyncpg.Record]:
        opened = self._session("declared tests", "understudy-experiments")
        async with opened as connection, connection.transaction():
            if by is not None:
                await sign(connection, by)
            for step in first:
                await connection.execute(step)
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
        return rows


def _record(row: asyncpg.Record) -> ExperimentRecord:
    values = dict(zip(ExperimentRecord._fields, row, strict=True))
    result = values["result"]
    return ExperimentRecord(
        **{**values, "plan": _document(values["plan"]), "result": None if result is None else _document(result)}
    )


def _document(text: str) -> object:
    """Return stored JSON; as its text where Python has no value for it, which no reader takes for a document."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:  # too deep, or a number outside of a float's range
        return text
    return text if document is None else document
