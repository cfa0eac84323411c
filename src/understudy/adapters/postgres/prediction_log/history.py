"""What ``PredictionLog`` remembers of calls: bounded answers, each within a time-out."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import asyncpg
import orjson

from understudy.adapters.postgres.connections.long_reads import LongReads
from understudy.core.canary.entities.entity_tally import Before, EntityCalls
from understudy.core.prediction_log.call_slices import Slice
from understudy.core.prediction_log.hash_sample import largest_hash
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.ports.prediction_log.prediction_history import (
    Draw,
    LoggedCall,
    LoggedEntity,
    LoggedFailures,
    LoggedScores,
    TrialAsked,
)

# The rows that core.windows.builder takes scores from, so that a baseline and the hours it is compared with are alike.
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
# $1 versions, $2 since, $3 until, $4 at most, $5 longest answer. Version by version, so that each is read from its
# newest call on; the hour is an index's own first column, for a log of which few calls have inputs. An answer's list of
# scores may be a megabyte long, so answers are read only of the chosen calls.
_CALLS = """
    SELECT prediction_id::text AS prediction_id, extract(epoch FROM predicted_at)::float8 AS predicted_at, entity_id,
           model_version_id AS version_id, inputs, CASE WHEN octet_length(answer) <= $5 THEN answer END AS answer,
           score, CASE WHEN status = 'ok' AND NOT cache_hit THEN latency_us END AS latency_us
    FROM (
        SELECT newest.* FROM unnest($1::bigint[]) AS asked (version_id) CROSS JOIN LATERAL (
            SELECT * FROM predictionlog
            WHERE model_version_id = asked.version_id AND inputs IS NOT NULL AND prediction_id IS NOT NULL
              AND status IN ('ok', 'fallback') AND predicted_at >= to_timestamp($2) AND predicted_at < to_timestamp($3)
              AND date_trunc('hour', predicted_at AT TIME ZONE 'UTC')
                  >= date_trunc('hour', to_timestamp($2) AT TIME ZONE 'UTC')
            ORDER BY predicted_at DESC, id DESC LIMIT $4
        ) AS newest
        ORDER BY newest.predicted_at DESC, newest.id DESC LIMIT $4
    ) AS call CROSS JOIN LATERAL (
        SELECT CASE WHEN jsonb_typeof(prediction) = 'object' THEN (prediction - 'scores')::text END AS answer
    ) AS kept
    ORDER BY call.predicted_at DESC, call.id DESC
"""
_MAX_ANSWER = 4_096
# $1 version, $2 since, $3 until, $4 key of the draw, $5 entities, $6 longest answer, $7 rows. Of each hour the samples
# of some entities, in the order of their hashes from a random one on: a caller with many calls has no more of them, and
# as few rows are read of a large log as of a small one. A caller could know the seed 30, and does not know the key.
_DRAWN_OF_HOUR = """
    SELECT * FROM predictionlog
    WHERE model_version_id = $1 AND inputs IS NOT NULL
      AND date_trunc('hour', predicted_at AT TIME ZONE 'UTC') = asked.hour
      AND predicted_at >= to_timestamp($2) AND predicted_at < to_timestamp($3)
"""
_DRAWN_CALLS = f"""
    WITH hours AS MATERIALIZED (
        SELECT hour, hashtextextended(hour::text, $4) AS first
        FROM generate_series(date_trunc('hour', to_timestamp($2) AT TIME ZONE 'UTC'),
                             to_timestamp($3) AT TIME ZONE 'UTC', INTERVAL '1 hour') AS asked (hour)
        WHERE EXISTS ({_DRAWN_OF_HOUR})
    ), of_hour AS MATERIALIZED (SELECT ceil($7::float8 / greatest(count(*), 1))::bigint AS rows FROM hours),
    drawn AS (
        SELECT DISTINCT ON (entity_id) near.* FROM hours AS asked CROSS JOIN LATERAL (
            ({_DRAWN_OF_HOUR} AND hashtextextended(entity_id, 30) >= asked.first
             ORDER BY hashtextextended(entity_id, 30) LIMIT (SELECT rows FROM of_hour))
            UNION ALL
            ({_DRAWN_OF_HOUR} AND hashtextextended(entity_id, 30) < asked.first
             ORDER BY hashtextextended(entity_id, 30) LIMIT (SELECT rows FROM of_hour))
        ) AS near
        WHERE status IN ('ok', 'fallback') AND prediction_id IS NOT NULL
        ORDER BY entity_id, predicted_at DESC, id DESC
    )
    SELECT prediction_id::text AS prediction_id, extract(epoch FROM predicted_at)::float8 AS predicted_at, entity_id,
           model_version_id AS version_id, inputs, CASE WHEN octet_length(answer) <= $6 THEN answer END AS answer,
           score, CASE WHEN status = 'ok' AND NOT cache_hit THEN latency_us END AS latency_us
    FROM (SELECT * FROM drawn ORDER BY hashtextextended(entity_id, $4), entity_id LIMIT $5) AS call CROSS JOIN LATERAL (
        SELECT CASE WHEN jsonb_typeof(prediction) = 'object' THEN (prediction - 'scores')::text END AS answer
    ) AS kept
    ORDER BY hashtextextended(entity_id, $4), entity_id
"""  # noqa: S608 - constants
_DRAWN_ROWS = 2_000
# $1 champion, $2 shadow, $3 since, $4 until, $5 key of the draw, $6 entities, $7 rows of the shadow that are read at
# all, $8 seconds by which it may be later than the champion. What the shadow saw up to random moments; its newest rows
# fill up what these lack, as in a log with gaps. There is no index by prediction, so a call of the champion is looked
# for among the rows right before the shadow's. An answer with a class has a score as well, of how sure the class is,
# and is no order of calls.
_IS_SCORED = (
    "{0}status = 'ok' AND {0}score BETWEEN '-1e100' AND '1e100' AND {0}prediction ? 'score' "
    "AND NOT {0}prediction ? 'label'"
)
_SHADOW_IS_SCORED, _ANSWER_IS_SCORED = _IS_SCORED.format("near."), _IS_SCORED.format("answered.")
_MAX_BETWEEN = 2_000
_SHADOW_SCORES = f"""
    WITH ends AS MATERIALIZED (
        SELECT min(predicted_at) AS first, max(predicted_at) AS last FROM predictionlog
        WHERE model_version_id = $2 AND predicted_at >= to_timestamp($3) AND predicted_at < to_timestamp($4)
    ), asked AS (
        SELECT last - (last - first) * ((hashtextextended(number::text, $5) & 1048575) / 1048576.0) AS moment,
               $7::bigint / 400 AS rows, TRUE AS is_drawn
        FROM ends, generate_series(1, 200) AS number
        UNION ALL SELECT last, $7::bigint / 2, FALSE FROM ends
    ), shown AS (
        SELECT DISTINCT ON (entity_id) id, prediction_id, entity_id, predicted_at, score, is_drawn
        FROM asked CROSS JOIN LATERAL (
            SELECT * FROM predictionlog
            WHERE model_version_id = $2 AND predicted_at >= to_timestamp($3) AND predicted_at <= asked.moment
            ORDER BY predicted_at DESC LIMIT asked.rows
        ) AS near
        WHERE role = 'shadow' AND prediction_id IS NOT NULL AND {_SHADOW_IS_SCORED}
        ORDER BY entity_id, is_drawn DESC, predicted_at DESC, id DESC
    )
    SELECT answered.score AS champion, drawn.score AS shadow
    FROM (
        SELECT * FROM shown ORDER BY is_drawn DESC, hashtextextended(entity_id, $5), entity_id LIMIT 2 * $6::bigint
    ) AS drawn CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT prediction_id, score, role, status, prediction FROM predictionlog
            WHERE model_version_id = $1 AND predicted_at <= drawn.predicted_at
              AND predicted_at >= drawn.predicted_at - make_interval(secs => $8)
            ORDER BY predicted_at DESC LIMIT {_MAX_BETWEEN}
        ) AS before WHERE before.prediction_id = drawn.prediction_id LIMIT 1
    ) AS answered
    WHERE answered.role = 'champion' AND {_ANSWER_IS_SCORED}
    ORDER BY drawn.is_drawn DESC, hashtextextended(drawn.entity_id, $5), drawn.entity_id LIMIT $6
"""  # noqa: S608 - constants
_SHADOW_ROWS = 4_000
_SHADOW_SECONDS = 30.0
_CANDIDATES = "SELECT assigned_version_id, rollout_id, role, reason, error_code, deadline_us FROM predictionlog"
_NEWEST = """
    AND predicted_at >= to_timestamp($4) AND predicted_at < to_timestamp($5) ORDER BY predicted_at DESC LIMIT $6
"""
# $1 version, $2 since, $3 until, $4 at most: by the index of version and time, newest first.
_CALL_FREQUENCIES = """
    WITH newest AS (
        SELECT entity_id FROM predictionlog
        WHERE model_version_id = $1 AND role <> 'shadow' AND reason = 'bucket'
          AND predicted_at >= to_timestamp($2) AND predicted_at < to_timestamp($3)
        ORDER BY predicted_at DESC LIMIT $4
    ), met AS (SELECT count(*) AS calls FROM newest GROUP BY entity_id)
    SELECT calls, count(*) AS entities FROM met GROUP BY calls
"""
# There is an index by version and time and none by error, so the number of rows read bounds the work.
_FAILURES = f"""
    WITH of_champion AS MATERIALIZED ({_CANDIDATES} WHERE model_version_id = $2 {_NEWEST}),
         of_challenger AS MATERIALIZED ({_CANDIDATES} WHERE model_version_id = $3 {_NEWEST}),
         failed AS (
             SELECT error_code, count(*) AS calls FROM (TABLE of_champion UNION ALL TABLE of_challenger) AS looked_at
             WHERE rollout_id = $1 AND assigned_version_id = $3 AND error_code IS NOT NULL AND reason = 'bucket'
               AND role <> 'shadow' AND (error_code <> 'E504' OR deadline_us IS NULL)
             GROUP BY error_code)
    SELECT (SELECT coalesce(jsonb_object_agg(error_code, calls), '{{}}') FROM failed)::text AS calls_by_code,
           greatest((SELECT count(*) FROM of_champion), (SELECT count(*) FROM of_challenger)) AS looked_at
"""  # noqa: S608 - constants

# As failures are, version by version from an index; those that the champion answered in its place are its rows. Inputs
# that the champion failed as well each time it was asked in its place say nothing of the challenger.
_ENTITY_CALLS = """
    SELECT start, entity_id, sum(calls)::bigint AS calls, sum(failed)::bigint AS failed, count(*) AS inputs,
           count(*) FILTER (WHERE failed = calls) AS failed_inputs,
           (array_agg(id ORDER BY moment, id) FILTER (WHERE failed > 0))[1:3] AS ids,
           (array_agg(moment ORDER BY moment, id) FILTER (WHERE failed > 0))[1:3] AS moments
    FROM (
        SELECT (floor(extract(epoch FROM predicted_at) / $6) * $6)::bigint AS start, entity_id, count(*) AS calls,
               count(error_code) AS failed, min(id) FILTER (WHERE error_code IS NOT NULL) AS id,
               (array_agg((extract(epoch FROM predicted_at) * 1000000)::bigint ORDER BY id)
                    FILTER (WHERE error_code IS NOT NULL))[1] AS moment
        FROM predictionlog
        WHERE model_version_id = ANY (ARRAY[$2, $3]::bigint[]) AND rollout_id = $1 AND assigned_version_id = $3
          AND reason = 'bucket' AND role <> 'shadow' AND NOT cache_hit
          AND (error_code IS NULL OR error_code <> 'E504' OR deadline_us IS NULL)
          AND predicted_at >= to_timestamp($4) AND predicted_at < to_timestamp($5)
        GROUP BY start, entity_id, input_hash
        HAVING NOT bool_and(model_version_id <> assigned_version_id AND status NOT IN ('ok', 'fallback'))
    ) AS asked
    GROUP BY start, entity_id ORDER BY start LIMIT $7
"""
_ENTITIES_BEFORE = """
    SELECT entity_id, count(*) AS calls, count(error_code) AS failed
    FROM (SELECT entity_id, error_code FROM predictionlog
          WHERE model_version_id = $1 AND assigned_version_id = $1 AND role <> 'shadow'
            AND predicted_at >= to_timestamp($3) AND predicted_at < to_timestamp($4)
          ORDER BY predicted_at DESC LIMIT $5) AS looked_at
    WHERE entity_id = ANY ($2::text[]) GROUP BY entity_id
"""
# As failures are. A slice that few calls have is looked for in the newest rows alone.
_SLICE_EXAMPLES = """
    SELECT prediction_id::text AS prediction_id
    FROM (SELECT id, predicted_at, prediction_id, rollout_id, assigned_version_id, slices, error_code, latency_us
          FROM predictionlog
          WHERE model_version_id = ANY (ARRAY[$2, $3]::bigint[]) AND role <> 'shadow' AND NOT cache_hit
            AND predicted_at >= to_timestamp($4) AND predicted_at < to_timestamp($5)
          ORDER BY predicted_at DESC LIMIT $9) AS looked_at
    WHERE rollout_id = $1 AND assigned_version_id = $3 AND prediction_id IS NOT NULL AND slices ->> $6 = $7
      AND CASE WHEN $8::bigint IS NULL THEN error_code IS NOT NULL
               ELSE error_code IS NULL AND latency_us > $8::bigint END
    ORDER BY predicted_at DESC, id DESC LIMIT 3
"""
_EXAMPLE_ROWS = 200_000
# The times choose the months, and a second more bears how they are rounded.
_ENTITIES_OF = """
    SELECT id, entity_id, prediction_id::text AS prediction_id FROM predictionlog
    WHERE id = ANY ($1::bigint[])
      AND predicted_at BETWEEN to_timestamp($2) - INTERVAL '1 second' AND to_timestamp($3) + INTERVAL '1 second'
"""


class PostgresPredictionHistory(LongReads):
    """Implements the protocols of ``ports.prediction_log.prediction_history``."""

    async def scores(self, version_id: int, since: float, until: float, at_most: int) -> LoggedScores:
        async with self._reading() as connection:
            calls: int = await connection.fetchval(_COUNT, version_id, since, until)
            ratio = at_most / max(calls, at_most)
            rows = await connection.fetch(_SCORES, version_id, since, until, largest_hash(ratio))
        return LoggedScores([row["scores"] for row in rows], calls)

    async def inputs(self, version_id: int, since: float, until: float, at_most: int) -> Sequence[InputSample]:
        async with self._reading() as connection:
            rows = await connection.fetch(_INPUTS, version_id, since, until, at_most)
        return [InputSample(row["entity_id"], row["inputs"]) for row in rows]

    async def call_frequencies(self, version_id: int, since: float, until: float, at_most: int) -> Mapping[int, int]:
        async with self._reading() as connection:
            rows = await connection.fetch(_CALL_FREQUENCIES, version_id, since, until, at_most)
        return {row["calls"]: row["entities"] for row in rows}

    async def calls(self, version_ids: Sequence[int], since: float, until: float, at_most: int) -> Sequence[LoggedCall]:
        async with self._reading() as connection:
            rows = await connection.fetch(_CALLS, list(version_ids), since, until, at_most, _MAX_ANSWER)
        return [LoggedCall(*row) for row in rows]

    async def drawn_calls(self, version_id: int, draw: Draw) -> Sequence[LoggedCall]:
        asked = (version_id, draw.since, draw.until, draw.key, draw.entities, _MAX_ANSWER, _DRAWN_ROWS)
        async with self._reading() as connection:
            rows = await connection.fetch(_DRAWN_CALLS, *asked)
        return [LoggedCall(*row) for row in rows]

    async def shadow_scores(self, champion_id: int, shadow_id: int, draw: Draw) -> Sequence[tuple[float, float]]:
        asked = (champion_id, shadow_id, *draw, _SHADOW_ROWS, _SHADOW_SECONDS)
        async with self._reading() as connection:
            rows = await connection.fetch(_SHADOW_SCORES, *asked)
        return [(row["champion"], row["shadow"]) for row in rows]

    async def failures(self, trial: TrialAsked, at_most: int) -> LoggedFailures:
        async with self._reading() as connection:
            (found,) = await connection.fetch(_FAILURES, *trial, at_most)
        by_frequency = sorted(orjson.loads(found["calls_by_code"]).items(), key=lambda entry: (-entry[1], entry[0]))
        return LoggedFailures(dict(by_frequency), is_whole=found["looked_at"] < at_most)

    async def entity_calls(
        self, trial: TrialAsked, unit_seconds: int, at_most: int
    ) -> Mapping[int, Sequence[EntityCalls]]:
        async with self._reading() as connection:
            rows = await connection.fetch(_ENTITY_CALLS, *trial, unit_seconds, at_most)
        found: dict[int, list[EntityCalls]] = {}
        for row in rows:
            failures = tuple(zip(row["ids"] or (), row["moments"] or (), strict=True))
            counted = (row["calls"], row["failed"], row["inputs"], row["failed_inputs"])
            found.setdefault(row["start"], []).append(EntityCalls(row["entity_id"], *counted, failures))
        return found

    async def entities_before(
        self, champion_id: int, entity_ids: Sequence[str], since: float, until: float, at_most: int
    ) -> Mapping[str, Before]:
        async with self._reading() as connection:
            rows = await connection.fetch(_ENTITIES_BEFORE, champion_id, list(entity_ids), since, until, at_most)
        return {row["entity_id"]: Before(row["calls"], row["failed"]) for row in rows}

    async def entities_of(self, rows: Sequence[tuple[int, int]]) -> Mapping[int, LoggedEntity]:
        if not rows:
            return {}
        moments = [moment / 1e6 for _, moment in rows]
        async with self._reading() as connection:
            found = await connection.fetch(_ENTITIES_OF, [one for one, _ in rows], min(moments), max(moments))
        return {row["id"]: LoggedEntity(row["entity_id"], row["prediction_id"]) for row in found}

    async def slice_examples(self, trial: TrialAsked, one: Slice, slow_us: int | None) -> Sequence[str]:
        async with self._reading() as connection:
            rows = await connection.fetch(_SLICE_EXAMPLES, *trial, *one, slow_us, _EXAMPLE_ROWS)
        return [row["prediction_id"] for row in rows]

    def _reading(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._read("the prediction log", "understudy-history")
