"""Questions to a rollout's judge, as rows of ``JudgeQuestion``: each is stored with its cost before it is asked."""

import asyncpg

from understudy.core.canary.judge_limits import MAX_JUDGEMENTS, BudgetStop, JudgeLimit, budget_stop
from understudy.core.canary.judgement_records import JudgeOutcome, JudgeQuestion, JudgeRecord, outcome_of
from understudy.ports.rollout.rollout_store import NewQuestion, RolloutRecord

_IDLE_PAIR = ""
"""Of the one row of a rollout that says why there is nothing to ask."""
_RECORD = """
    SELECT id, pair, challenger_first, entity_bucket, extract(epoch FROM asked_at)::float8 AS asked_at, cost_micros,
           outcome, extract(epoch FROM answered_at)::float8 AS answered_at, difference
    FROM judgequestion WHERE rollout_id = $1 ORDER BY id
"""
# Two questions of one leader, or of the last and the next one, must not both take the last of the money.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('judge:' || $1 || ':' || $2, 0))"
_SPENT = """
    SELECT count(*) FILTER (WHERE asked_at > clock_timestamp() - INTERVAL '60 seconds') AS lately,
           coalesce(sum(cost_micros) FILTER (WHERE asked_at >= today.began), 0)::bigint AS day_micros,
           (SELECT count(*) FROM judgequestion WHERE rollout_id = $3) AS rows
    FROM (SELECT date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS began) AS today
    LEFT JOIN (judgequestion q JOIN rollout r ON r.id = q.rollout_id)
      ON r.model_name = $1 AND q.judge = $2 AND asked_at >= today.began - INTERVAL '60 seconds'
         AND pair <> '' AND outcome IS DISTINCT FROM 'equal'
"""
_ADD = """
    INSERT INTO judgequestion (rollout_id, judge, pair, challenger_first, entity_bucket, prediction_id, cost_micros,
                               asked_at, outcome, answered_at, difference)
    SELECT $1::bigint, $2::text, $3::text, $4::boolean, $5::smallint, $6::uuid, $7::bigint, moment, $8::text,
           CASE WHEN $8::text IS NOT NULL THEN moment END, $9::float8
    FROM (SELECT clock_timestamp() AS moment) AS now
    ON CONFLICT (rollout_id, pair, challenger_first) DO NOTHING
    RETURNING id, extract(epoch FROM asked_at)::float8 AS asked_at
"""
_COUNT = "SELECT count(*) FROM judgequestion WHERE rollout_id = $1"
_SETTLE = """
    UPDATE judgequestion SET outcome = $2, difference = $3, answered_at = clock_timestamp()
    WHERE id = $1 AND outcome IS NULL RETURNING extract(epoch FROM answered_at)::float8
"""
_SET_IDLE = """
    INSERT INTO judgequestion AS known (rollout_id, judge, pair, challenger_first, entity_bucket, cost_micros, outcome)
    VALUES ($1, $2, '', FALSE, 0, 0, $3)
    ON CONFLICT (rollout_id, pair, challenger_first) DO UPDATE SET outcome = excluded.outcome
    WHERE known.outcome IS DISTINCT FROM excluded.outcome
"""


async def read_record(connection: asyncpg.Connection, record: RolloutRecord) -> JudgeRecord:
    """Return what is stored of a rollout's judge."""
    rows = await connection.fetch(_RECORD, record.id)
    idle = next((outcome_of(row["outcome"]) for row in rows if row["pair"] == _IDLE_PAIR), None)
    return JudgeRecord([_question_of(row) for row in rows if row["pair"] != _IDLE_PAIR], idle)


async def read_budget(connection: asyncpg.Connection, record: RolloutRecord, limit: JudgeLimit) -> BudgetStop | None:
    """Return why a rollout's judge may not be asked now."""
    spent = await connection.fetchrow(_SPENT, record.state.model_name, limit.name, record.id)
    assert spent is not None
    return budget_stop(limit, spent["lately"], spent["day_micros"], spent["rows"])


async def reserve(
    connection: asyncpg.Connection, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion
) -> JudgeQuestion | BudgetStop:
    """Store a question, where the budget has room for it; in a transaction."""
    await connection.execute(_LOCK, record.state.model_name, limit.name)
    stop = await read_budget(connection, record, limit)
    if stop is not None:
        return stop
    return await _add(connection, record, limit, new, is_tie=False) or BudgetStop.KNOWN


async def add_tie(
    connection: asyncpg.Connection, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion
) -> JudgeQuestion | None:
    """Store a pair of equal answers, where the rollout has room for it and it is not known."""
    if await connection.fetchval(_COUNT, record.id) >= MAX_JUDGEMENTS:
        return None
    return await _add(connection, record, limit, new, is_tie=True)


async def settle(
    connection: asyncpg.Connection, question_id: int, outcome: JudgeOutcome, difference: float | None
) -> float | None:
    """Store what came of a question, and return when."""
    at: float | None = await connection.fetchval(_SETTLE, question_id, outcome.value, difference)
    return at


async def set_idle(
    connection: asyncpg.Connection, record: RolloutRecord, limit: JudgeLimit, idle: JudgeOutcome | None
) -> None:
    """Store why there is nothing to ask, or that there is."""
    await connection.execute(_SET_IDLE, record.id, limit.name, None if idle is None else idle.value)


async def _add(
    connection: asyncpg.Connection, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion, *, is_tie: bool
) -> JudgeQuestion | None:
    cost_micros = 0 if is_tie else limit.cost_micros
    outcome, difference = (JudgeOutcome.EQUAL if is_tie else None), (0.0 if is_tie else None)
    known = (new.pair, new.is_challenger_first, new.entity_bucket)
    word = None if outcome is None else outcome.value
    values = (record.id, limit.name, *known, new.prediction_id, cost_micros, word, difference)
    added = await connection.fetchrow(_ADD, *values)
    if added is None:
        return None
    answered_at = None if outcome is None else added["asked_at"]
    return JudgeQuestion(added["id"], *known, added["asked_at"], cost_micros, outcome, answered_at, difference)


def _question_of(row: asyncpg.Record) -> JudgeQuestion:
    return JudgeQuestion(
        row["id"],
        row["pair"],
        row["challenger_first"],
        row["entity_bucket"],
        row["asked_at"],
        row["cost_micros"],
        outcome_of(row["outcome"]),
        row["answered_at"],
        row["difference"],
    )
