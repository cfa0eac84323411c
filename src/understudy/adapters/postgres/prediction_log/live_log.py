"""``LiveLog`` over ``PredictionLog``: a person's SELECT as a subquery of ours, and the newest calls by the index."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.errors import RegistryUnavailable
from understudy.ports.prediction_log.live_log import CallLine, LiveResult, NewestAsked
from understudy.ports.prediction_log.log_archive import QueryRefused, WantedRows

BATCH_ROWS = 2_000
_OF_THE_STATEMENT = ("0A", "21", "22", "25", "42")
"""Classes of SQLSTATE that the statement itself is to blame for: syntax, names, values, writing, what is not supported.

Source:
    PostgreSQL, Appendix A: error codes.
"""
# The columns of archived files, in their order (adapters/archive/parquet_log.py): questions read alike over both.
_ROWS = """
    SELECT p.id, p.model_version_id, v.version, p.entity_id, p.input_hash, p.prediction, p.latency_ms, p.predicted_at,
           p.prediction_id, p.assigned_version_id, p.score, p.latency_us, p.role, p.reason, p.status, p.error_code,
           p.bucket, p.policy_generation, p.rollout_id, p.cache_hit, p.defaulted,
           (p.predicted_at AT TIME ZONE 'UTC')::date AS day, v.model_name AS model
    FROM predictionlog AS p JOIN modelversion AS v ON v.id = p.model_version_id
    WHERE p.predicted_at >= to_timestamp($1) AND p.predicted_at < to_timestamp($2)
      AND ($3::text[] IS NULL OR v.model_name = ANY ($3::text[]))
"""
_UNSEEN = """
    SELECT coalesce(sum(file.row_count), 0)::bigint
    FROM logarchive JOIN logarchivefile AS file ON archive_id = id
    WHERE state IN ('detached', 'archived')
      AND day BETWEEN (to_timestamp($1) AT TIME ZONE 'UTC')::date AND (to_timestamp($2) AT TIME ZONE 'UTC')::date
      AND ($3::text[] IS NULL OR file.model_name = ANY ($3::text[]))
"""
# Version by version, so that each is read from its newest call on by the index of version and time.
_NEWEST = """
    SELECT newest.id, newest.prediction_id::text, extract(epoch FROM newest.predicted_at)::float8 AS predicted_at,
           v.model_name, v.version, newest.role, newest.status, newest.error_code, newest.score, newest.latency_us,
           newest.cache_hit, newest.entity_id
    FROM modelversion AS v CROSS JOIN LATERAL (
        SELECT * FROM predictionlog
        WHERE model_version_id = v.id AND predicted_at >= to_timestamp($1)
          AND ($5::boolean IS NOT TRUE OR error_code IS NOT NULL)
        ORDER BY predicted_at DESC, id DESC LIMIT $2
    ) AS newest
    WHERE ($3::text IS NULL OR v.model_name = $3) AND ($4::text IS NULL OR v.version = $4)
    ORDER BY newest.predicted_at DESC, newest.id DESC LIMIT $2
"""


class PostgresLiveLog:
    """Opens a connection for each question.

    Args:
        database_url: With a role that may read ``PredictionLog``, ``ModelVersion``, ``LogArchive`` and its files.
        timeout_seconds: Longest time of connecting.
        answer_seconds: Longest time of a question, and of each further batch of its rows.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float, answer_seconds: float) -> None:
        self._database_url = database_url
        self._timeout_seconds = timeout_seconds
        self._answer_seconds = answer_seconds

    @asynccontextmanager
    async def ask(self, statement: str, wanted: WantedRows) -> AsyncIterator[LiveResult]:
        models = None if wanted.models is None else list(wanted.models)
        given = (wanted.since, wanted.until, models)
        async with self._reading() as connection:
            unseen = await connection.fetchval(_UNSEEN, *given, timeout=self._answer_seconds)
            with _statement_refused():
                prepared = await connection.prepare(_asked(statement), timeout=self._answer_seconds)
                columns = tuple(attribute.name for attribute in prepared.get_attributes())
                found = prepared.cursor(*given, prefetch=BATCH_ROWS, timeout=self._answer_seconds)
                yield LiveResult(columns, _rows_of(found), unseen)

    async def newest(self, asked: NewestAsked) -> Sequence[CallLine]:
        given = (asked.since, asked.at_most, asked.model_name, asked.version, asked.only_failed)
        async with self._reading() as connection:
            found = await connection.fetch(_NEWEST, *given, timeout=self._answer_seconds)
        return [CallLine(*row) for row in reversed(found)]

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await connect(
            self._database_url, timeout_seconds=self._timeout_seconds, application_name="understudy-query"
        )
        try:
            async with translated("the log cannot be read"), connection.transaction(readonly=True):
                await connection.execute(
                    "SELECT set_config('statement_timeout', $1, TRUE), set_config('TimeZone', 'UTC', TRUE)",
                    f"{int(self._answer_seconds * 900)}",
                )
                yield connection
        except RegistryUnavailable as problem:
            if isinstance(problem.__cause__, asyncpg.QueryCanceledError):
                took = f"Postgres did not find the answer within {self._answer_seconds:g} s"
                raise RegistryUnavailable(took, hint="Ask for less, with a later --since.") from problem
            raise
        finally:
            connection.terminate()


def _asked(statement: str) -> str:
    """Return a question with ``predictionlog`` as its table; its own line keeps a comment at its end from ours."""
    asked = statement.rstrip().rstrip(";")
    return f"WITH predictionlog AS NOT MATERIALIZED ({_ROWS}) SELECT * FROM (\n{asked}\n) AS asked"  # noqa: S608 - the asker's own login, and it can only read


async def _rows_of(found: Any) -> AsyncIterator[Sequence[Any]]:
    async for row in found:
        yield tuple(row)


@contextmanager
def _statement_refused() -> Iterator[None]:
    try:
        yield
    except asyncpg.InsufficientPrivilegeError:
        raise
    except UnicodeEncodeError:
        raise QueryRefused("the statement has half a surrogate pair in it, which is no text") from None
    except asyncpg.PostgresError as problem:
        if (problem.sqlstate or "")[:2] in _OF_THE_STATEMENT:
            raise QueryRefused(f"{problem}; one SELECT over predictionlog can run, in Postgres' SQL") from None
        raise
