"""``PredictionHistory`` over ``PredictionLog``: bounded answers, each within a time-out."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from understudy.adapters.postgres_connection import connect, translated
from understudy.core.sampling import InputSample
from understudy.core.windows import ANALYSIS_BUCKETS
from understudy.errors import RegistryUnavailable
from understudy.ports.prediction_history import LoggedScores

# The rows that core.window_builder takes scores from, so that a baseline and the hours it is compared with are alike.
_SCORED = """
    FROM predictionlog
    WHERE model_version_id = $1 AND assigned_version_id = $1 AND status = 'ok' AND NOT cache_hit
      AND score BETWEEN '-1e100' AND '1e100' AND reason <> 'forced' AND (reason <> 'category' OR role = 'shadow')
      AND predicted_at >= to_timestamp($2) AND predicted_at < to_timestamp($3)
"""
_COUNT = f"SELECT count(*) {_SCORED}"
_SCORES = f"""
    SELECT array_agg(score) AS scores {_SCORED} AND hashtextextended(coalesce(prediction_id::text, id::text), 0) <= $4
    GROUP BY hashtextextended(entity_id, 0) & {ANALYSIS_BUCKETS - 1}
"""
_INPUTS = """
    SELECT entity_id, inputs FROM predictionlog
    WHERE model_version_id = $1 AND inputs IS NOT NULL
      AND predicted_at >= to_timestamp($2) AND predicted_at < to_timestamp($3)
    ORDER BY hashtextextended(entity_id, 30), id LIMIT $4
"""
_SMALLEST_HASH, _LARGEST_HASH, _HASHES = -(2**63), 2**63 - 1, 2**64


class PostgresPredictionHistory:
    """Asks over a connection for each question, in a transaction that can only read.

    Args:
        database_url: Of the registry.
        timeout_seconds: Longest time of one question, connecting included; Postgres itself gives up a little earlier.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float) -> None:
        self._database_url = database_url
        self._timeout_seconds = timeout_seconds

    async def scores(self, version_id: int, since: float, until: float, at_most: int) -> LoggedScores:
        """See :class:`understudy.ports.prediction_history.PredictionHistory`."""
        async with self._reading() as connection:
            calls: int = await connection.fetchval(_COUNT, version_id, since, until)
            ratio = at_most / max(calls, at_most)
            largest_hash = min(_SMALLEST_HASH + round(ratio * _HASHES), _LARGEST_HASH)
            rows = await connection.fetch(_SCORES, version_id, since, until, largest_hash)
        return LoggedScores([row["scores"] for row in rows], calls)

    async def inputs(self, version_id: int, since: float, until: float, at_most: int) -> Sequence[InputSample]:
        """See :class:`understudy.ports.prediction_history.PredictionHistory`."""
        async with self._reading() as connection:
            rows = await connection.fetch(_INPUTS, version_id, since, until, at_most)
        return [InputSample(row["entity_id"], row["inputs"]) for row in rows]

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[asyncpg.Connection]:
        async with translated("the prediction log", self._timeout_seconds):
            connection = await connect(
                self._database_url, timeout_seconds=self._timeout_seconds, application_name="understudy-history"
            )
            try:
                async with connection.transaction(readonly=True):
                    await connection.execute(
                        "SELECT set_config('statement_timeout', $1, TRUE)", f"{int(self._timeout_seconds * 900)}"
                    )
                    yield connection
            except asyncpg.QueryCanceledError as problem:
                took = f"Postgres did not find the answer within {self._timeout_seconds:g} s"
                raise RegistryUnavailable(took, hint="Ask for less, with a later --since.") from problem
            finally:
                connection.terminate()
