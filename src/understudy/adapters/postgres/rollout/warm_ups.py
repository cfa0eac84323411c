"""``WarmUpRequests`` and ``WarmUpInbox`` in Postgres: the tables ``WarmUpRequest`` and ``WarmUpAnswer``.

A role that asks writes no answer, and a proxy's writes nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.adapters.postgres.connections.proxy_reports import ProxyReports
from understudy.adapters.postgres.monitoring.lease import fenced
from understudy.adapters.postgres.rollout.rollout_rows import IS_USABLE_REPORT
from understudy.core.rollout.proxy_warm_up import MAX_INSTANCES, LiveProxy, ProxyAnswer, is_possible
from understudy.core.routing.proxy_liveness import LIVE_SECONDS
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.warm_up import NewWarmUp, WarmUpAsked

_LIVE = f"""
    SELECT instance, answers_warm_ups FROM proxyinstance
    WHERE seen_at > now() - INTERVAL '{LIVE_SECONDS:.0f} seconds' AND {IS_USABLE_REPORT}
    ORDER BY instance LIMIT {MAX_INSTANCES}
"""  # noqa: S608 - constants
_ASK = """
    INSERT INTO warmuprequest
        (version_id, instances, example_calls, champion_id, prediction_ids, predicted_at, deadline)
    VALUES ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7)) RETURNING id
"""
_COUNT = "SELECT count(*) FROM warmupanswer WHERE request_id = $1"
_ANSWERS = """
    SELECT instance, answered, seconds, problem, scores, example_calls, cardinality(prediction_ids) AS logged_calls,
           extract(epoch FROM deadline - asked_at)::float8 AS most_seconds
    FROM warmupanswer JOIN warmuprequest ON id = request_id WHERE request_id = $1
"""
_OPEN = """
    SELECT asked.id, model_name, version_id, champion_id, example_calls, cardinality(prediction_ids) AS logged_calls,
           extract(epoch FROM deadline - now())::float8 AS left_seconds
    FROM warmuprequest AS asked JOIN modelversion ON modelversion.id = version_id
    WHERE deadline > now() AND $1 = ANY (instances) AND NOT EXISTS (
        SELECT FROM warmupanswer AS answered WHERE answered.request_id = asked.id AND answered.instance = $1)
    ORDER BY asked.id LIMIT $2
"""
_INPUTS = "SELECT place - 1 AS place, inputs::text AS inputs FROM understudy_warm_up_inputs($1)"
_ANSWER = """
    INSERT INTO warmupanswer (request_id, instance, answered, seconds, problem, scores) VALUES ($1, $2, $3, $4, $5, $6)
"""


class PostgresWarmUpRequests(SessionPerCall):
    """Implements ``ports.WarmUpRequests``."""

    def __init__(
        self, database_url: str, *, timeout_seconds: float, on_unusable: Callable[[str, int], None] | None = None
    ) -> None:
        super().__init__(database_url, timeout_seconds=timeout_seconds, on_unusable=on_unusable)
        self._proxy_reports = ProxyReports()

    async def live_proxies(self) -> Sequence[LiveProxy] | None:
        async with self._connection() as connection, connection.transaction():
            if not await self._proxy_reports.can_be_read(connection):
                return None
            return [LiveProxy(*row) for row in await connection.fetch(_LIVE)]

    async def ask(self, new: NewWarmUp, *, epoch: Epoch | None = None) -> int:
        asked = (
            new.version_id,
            list(new.instances),
            new.example_calls,
            new.champion_id,
            [UUID(call.prediction_id) for call in new.logged],
            [datetime.fromtimestamp(call.predicted_at, UTC) for call in new.logged],
            new.seconds,
        )
        async with self._connection() as connection, fenced(connection, epoch):
            request_id: int = await connection.fetchval(_ASK, *asked)
        return request_id

    async def count_answers(self, request_id: int) -> int:
        async with self._connection() as connection:
            count: int = await connection.fetchval(_COUNT, request_id)
        return count

    async def answers(self, request_id: int) -> Mapping[str, ProxyAnswer | None]:
        async with self._connection() as connection:
            rows = await connection.fetch(_ANSWERS, request_id)
        found = {row["instance"]: _answer_of(row) for row in rows}
        self._left_out("WarmUpAnswer", sum(answer is None for answer in found.values()))
        return found

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("warm-ups through proxies", "understudy-warm-ups")


class PostgresWarmUpInbox(SessionPerCall):
    """Implements ``ports.WarmUpInbox``; no connection is kept: requests are rare."""

    async def open(self, instance: str, at_most: int) -> Sequence[WarmUpAsked]:
        async with self._connection() as connection:
            return [WarmUpAsked(*row) for row in await connection.fetch(_OPEN, instance, at_most)]

    async def inputs(self, request_id: int) -> Mapping[int, str]:
        async with self._connection() as connection:
            return {row["place"]: row["inputs"] for row in await connection.fetch(_INPUTS, request_id)}

    async def answer(self, request_id: int, instance: str, answer: ProxyAnswer) -> None:
        async with self._connection() as connection:
            await connection.execute(_ANSWER, request_id, instance, *answer)

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("warm-ups that proxies are asked for", "understudy-warm-ups")


def _answer_of(row: asyncpg.Record) -> ProxyAnswer | None:
    seconds, scores = tuple(row["seconds"]), tuple(row["scores"])
    if None in seconds:
        return None
    answer = ProxyAnswer(row["answered"], seconds, row["problem"], scores)
    return answer if is_possible(answer, row["example_calls"], row["logged_calls"], row["most_seconds"]) else None
