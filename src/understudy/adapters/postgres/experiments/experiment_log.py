"""``ExperimentLog`` over Postgres: one statement a question, with a time-out and a bounded answer.

Statements are built from this module's constants only; every value is an argument.
"""

from collections.abc import Sequence

import asyncpg
import orjson

from understudy.adapters.postgres.connections.long_reads import LongReads
from understudy.core.prediction_log.hash_sample import largest_hash
from understudy.ports.experiments.experiment_log import (
    MAX_ENTITIES,
    MAX_ENTITIES_WITH_SUMS,
    MAX_OBSERVED_ENTITIES,
    MAX_OBSERVED_VALUES,
    MAX_PAIRS_READ,
    MAX_SCORES,
    NO_SCORES,
    SHADOW_SECONDS,
    Allocation,
    ArmEntries,
    ArmScores,
    EntityGroup,
    EntityGroups,
    EntityQuery,
    EntityValues,
    EpochOf,
    LoggedPair,
    Observed,
    OutcomeFacts,
    ShadowQuery,
)

MAX_GENERATIONS = 10_000
MAX_NAMES = 20
_SECONDS_OF_A_DAY = 86_400.0
# The planner does not know how many rows a common table expression has, and a nested loop over two of them is
# quadratic: 28,000 calls took more than a minute with it.
_PLANNER = "SELECT set_config('enable_nestloop', 'off', TRUE), set_config('work_mem', '64MB', TRUE)"

_ALLOCATIONS = """
    SELECT generation, extract(epoch FROM changed_at)::float8 AS since,
           (after ->> 'champion_version')::bigint AS champion_id,
           (after ->> 'challenger_version')::bigint AS challenger_id,
           coalesce((after ->> 'challenger_weight')::int, 0) AS challenger_weight,
           (after ->> 'shadow_version')::bigint AS shadow_id,
           coalesce((after ->> 'shadow_percent')::int, 0) AS shadow_percent,
           coalesce(after ->> 'salt', model_name) AS bucket_key, (
               SELECT json_object_agg(version_id, percent)::text FROM (
                   SELECT version_id, sum(last - first + 1) AS percent
                   FROM jsonb_to_recordset(after -> 'arms') AS arm (version_id bigint, first int, last int)
                   GROUP BY version_id) AS share) AS arms
    FROM policyaudit WHERE model_name = $1 ORDER BY id DESC LIMIT $2
"""
_FACTS = """
    SELECT count(*) AS events, coalesce(bool_and(value IN (0, 1)), TRUE) AS is_share,
           ARRAY(SELECT DISTINCT name FROM outcomeevent WHERE model_name = $1 ORDER BY name LIMIT $5) AS known_names
    FROM outcomeevent
    WHERE model_name = $1 AND name = $2 AND occurred_at >= to_timestamp($3) AND occurred_at < to_timestamp($4)
"""

# $1 versions, $2 generations, $3 their epochs, $4 since, $5 until. A call that a category or the caller
# routed is not randomised. A bounded answer leaves out entities by a hash that no arm depends on.
_EXPOSURES = """
    WITH epoch AS (
        SELECT * FROM unnest($2::bigint[], $3::int[]) AS given (generation, number)
    ), exposure AS MATERIALIZED (
        SELECT log.id, log.entity_id, log.prediction_id, log.predicted_at, {column}, epoch.number AS epoch,
               log.assigned_version_id AS assigned, log.model_version_id AS served
        FROM predictionlog AS log JOIN epoch ON epoch.generation = log.policy_generation
        WHERE log.model_version_id = ANY ($1::bigint[]) AND log.assigned_version_id = ANY ($1::bigint[])
          AND log.predicted_at >= to_timestamp($4) AND log.predicted_at < to_timestamp($5)
          AND log.role <> 'shadow' AND log.reason = 'bucket'
    ), entry AS (
        SELECT DISTINCT ON (entity_id) entity_id, predicted_at AS entered_at, epoch, assigned
        FROM exposure ORDER BY entity_id, predicted_at, prediction_id, id
    )
"""
_ENTRIES = _EXPOSURES.format(column="log.score")
# Latencies of calls that a model answered: in milliseconds, and none for an answer of the cache or none at all.
_TIMED_ENTRIES = _EXPOSURES.format(
    column="CASE WHEN log.status IN ('ok', 'fallback') AND NOT log.cache_hit THEN log.latency_us / 1e3 END AS millis"
)
# $6 most entities, $7 model, $8 metric, $9 seconds for outcomes, $10 challenger, $11 is a share, $12 per call,
# $13 slices, $14 seconds of a day. An outcome's time may be cut to whole seconds, so it counts from the second on in
# which its entity came.
_ENTITIES = f"""
    {_ENTRIES}, chosen AS MATERIALIZED (
        SELECT *, date_trunc('second', entered_at) AS begins, entered_at + make_interval(secs => $9) AS ends,
               count(*) OVER () AS total
        FROM entry ORDER BY hashtextextended(entity_id, 20) LIMIT $6
    ), called AS (
        SELECT entity_id, count(*) AS calls, count(*) FILTER (WHERE served = chosen.assigned) AS own_calls
        FROM exposure JOIN chosen USING (entity_id) WHERE predicted_at < ends GROUP BY entity_id
    ), event AS (
        SELECT coalesce(told.entity_id, exposure.entity_id) AS entity_id, told.occurred_at, told.value
        FROM outcomeevent AS told LEFT JOIN exposure
          ON told.entity_id IS NULL AND exposure.prediction_id = told.prediction_id
        WHERE told.model_name = $7 AND told.name = $8
          AND told.occurred_at >= to_timestamp($4 - $9) AND told.occurred_at < to_timestamp($5)
    ), outcome AS (
        SELECT entity_id,
               count(*) FILTER (WHERE occurred_at >= begins AND occurred_at < ends) AS events,
               CASE WHEN $11 THEN max(value) FILTER (WHERE occurred_at >= begins AND occurred_at < ends)
                    ELSE sum(value) FILTER (WHERE occurred_at >= begins AND occurred_at < ends) END AS value,
               CASE WHEN $11 THEN max(value) FILTER (WHERE occurred_at < to_timestamp($4))
                    ELSE sum(value) FILTER (WHERE occurred_at < to_timestamp($4)) END AS value_before
        FROM event JOIN chosen USING (entity_id) GROUP BY entity_id
    ), known_before AS (
        SELECT entity_id, count(*) AS calls_before FROM predictionlog
        WHERE model_version_id IN (SELECT id FROM modelversion WHERE model_name = $7)
          AND predicted_at >= to_timestamp($4 - $9) AND predicted_at < to_timestamp($4) AND role <> 'shadow'
        GROUP BY entity_id
    )
    SELECT coalesce(assigned = $10::bigint, FALSE) AS is_b, epoch,
           least(floor(extract(epoch FROM entered_at - to_timestamp($4))::float8 * $13
                       / greatest($5 - $9 - $4, 1e-6)), $13 - 1)::int AS slice,
           ends <= to_timestamp($5) AS is_closed,
           coalesce(value, 0) AS numerator, CASE WHEN $12 THEN calls::float8 ELSE 1 END AS denominator,
           CASE WHEN calls_before > 0 THEN coalesce(value_before, 0) END AS covariate,
           count(*) AS entities, count(*) FILTER (WHERE events > 0) AS with_outcome,
           sum(calls)::bigint AS calls, sum(own_calls)::bigint AS own_calls,
           count(*) FILTER (WHERE entered_at >= to_timestamp($5 - $14)) AS recent,
           CASE WHEN $12 THEN calls_before::float8 END AS covariate_denominator, max(total) AS total
    FROM chosen JOIN called USING (entity_id)
    LEFT JOIN outcome USING (entity_id) LEFT JOIN known_before USING (entity_id)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 13
"""  # noqa: S608 - constants
_ARM_ENTRIES = f"""
    {_ENTRIES} SELECT epoch, assigned AS version_id, count(*) AS entities FROM entry GROUP BY 1, 2
"""  # noqa: S608 - constants
# $6 entities of each arm, $7 values of each entity, $8 seconds for outcomes, $9 challenger. A sample of an entity's
# values is random by a hash, and the entity counts as all of them.
_CHOSEN = """
    chosen AS (
        SELECT * FROM (
            SELECT *, date_trunc('second', entered_at) AS begins, entered_at + make_interval(secs => $8) AS ends,
                   row_number() OVER (PARTITION BY assigned ORDER BY hashtextextended(entity_id, 20)) AS place
            FROM entry) AS placed
        WHERE place <= $6
    )
"""
_VALUES = """
    numbered AS (
        SELECT *, count(*) OVER (PARTITION BY entity_id) AS total,
               row_number() OVER (PARTITION BY entity_id ORDER BY hashtextextended(key, 20)) AS number FROM observed
    )
    SELECT assigned = $9::bigint AS is_b, epoch, max(total) AS total, array_agg(value::float8) AS values
    FROM numbered JOIN chosen USING (entity_id) WHERE number <= $7 GROUP BY entity_id, assigned, epoch
"""
_LATENCIES = f"""
    {_TIMED_ENTRIES}, {_CHOSEN}, observed AS (
        SELECT entity_id, millis AS value, coalesce(prediction_id::text, id::text) AS key
        FROM exposure JOIN chosen USING (entity_id)
        WHERE predicted_at < ends AND millis IS NOT NULL
    ), {_VALUES}
"""  # noqa: S608 - constants
# $10 model, $11 metric.
_OUTCOMES = f"""
    {_ENTRIES}, {_CHOSEN}, told AS (
        SELECT coalesce(told.entity_id, exposure.entity_id) AS entity_id, told.occurred_at, told.value, told.event_id
        FROM outcomeevent AS told LEFT JOIN exposure
          ON told.entity_id IS NULL AND exposure.prediction_id = told.prediction_id
        WHERE told.model_name = $10 AND told.name = $11
          AND told.occurred_at >= to_timestamp($4 - $8) AND told.occurred_at < to_timestamp($5)
    ), observed AS (
        SELECT entity_id, value, event_id AS key FROM told JOIN chosen USING (entity_id)
        WHERE occurred_at >= begins AND occurred_at < ends AND ends <= to_timestamp($5)
    ), {_VALUES}
"""  # noqa: S608 - constants
_MEAN_SCORES = f"""
    {_ENTRIES}, chosen AS (
        SELECT *, row_number() OVER (PARTITION BY assigned ORDER BY hashtextextended(entity_id, 20)) AS place FROM entry
    )
    SELECT chosen.assigned, avg(score) AS score
    FROM chosen JOIN exposure ON exposure.entity_id = chosen.entity_id AND served = chosen.assigned
    WHERE place <= $6 AND score IS NOT NULL GROUP BY chosen.assigned, chosen.entity_id
"""  # noqa: S608 - constants

# $1 champion, $2 generations, $3 since, $4 until.
_ASKED = """
    FROM predictionlog AS call
    WHERE call.model_version_id = $1 AND call.assigned_version_id = $1 AND call.role = 'champion'
      AND call.reason <> 'forced' AND call.policy_generation = ANY ($2::bigint[]) AND call.prediction_id IS NOT NULL
      AND call.predicted_at >= to_timestamp($3) AND call.predicted_at < to_timestamp($4)
"""
_COUNT_CALLS = f"SELECT count(*) {_ASKED}"
# $5 shadow, $6 seconds of patience, $7 the largest hash of a prediction id that is in the sample.
_PAIRED = f"""
    WITH asked AS (
        SELECT call.* {_ASKED} AND hashtextextended(call.prediction_id::text, 0) <= $7
    ), seen AS (
        SELECT prediction_id, status, score, latency_us, cache_hit FROM predictionlog
        WHERE model_version_id = $5 AND role = 'shadow'
          AND predicted_at >= to_timestamp($3) AND predicted_at < to_timestamp($4 + $6)
          AND hashtextextended(prediction_id::text, 0) <= $7
    )
    SELECT asked.prediction_id::text AS prediction_id, extract(epoch FROM asked.predicted_at)::float8 AS predicted_at,
           asked.entity_id, asked.policy_generation AS generation,
           asked.status AS champion_status, seen.status AS shadow_status,
           CASE WHEN NOT asked.cache_hit THEN asked.latency_us END AS champion_us,
           CASE WHEN NOT seen.cache_hit THEN seen.latency_us END AS shadow_us,
           asked.score AS champion_score, seen.score AS shadow_score
    FROM asked LEFT JOIN seen USING (prediction_id)
"""  # noqa: S608 - constants
_PAIRS = f"{_PAIRED} LIMIT $8"
_DISAGREEMENTS = f"""
    {_PAIRED} WHERE asked.score IS NOT NULL AND seen.score IS NOT NULL
    ORDER BY abs(seen.score - asked.score) DESC, asked.prediction_id LIMIT $8
"""


class PostgresExperimentLog(LongReads):
    """Implements ``ports.ExperimentLog``."""

    async def allocations(self, model_name: str) -> Sequence[Allocation]:
        rows = await self._fetch(_ALLOCATIONS, model_name, MAX_GENERATIONS)
        return [_allocation(row) for row in reversed(rows)]

    async def outcome_facts(self, model_name: str, metric: str, since: float, until: float) -> OutcomeFacts:
        (row,) = await self._fetch(_FACTS, model_name, metric, since, until, MAX_NAMES)
        return OutcomeFacts(*row)

    async def entities(self, query: EntityQuery) -> EntityGroups:
        rows = await self._fetch(
            _ENTITIES,
            *_entry_arguments(query),
            MAX_ENTITIES if query.is_share else MAX_ENTITIES_WITH_SUMS,
            query.model_name,
            query.metric,
            query.within_seconds,
            query.challenger_id,
            query.is_share,
            query.per_call,
            query.slices,
            _SECONDS_OF_A_DAY,
        )
        groups = [EntityGroup(*tuple(row)[:-1]) for row in rows]
        return EntityGroups(groups, sum(group.entities for group in groups), rows[0]["total"] if rows else 0)

    async def arm_entries(self, query: EntityQuery, version_ids: Sequence[int]) -> Sequence[ArmEntries]:
        rows = await self._fetch(_ARM_ENTRIES, list(version_ids), *_entry_arguments(query)[1:])
        return [ArmEntries(*row) for row in rows]

    async def entity_values(self, query: EntityQuery, of: Observed) -> Sequence[EntityValues]:
        arguments = (
            *_entry_arguments(query),
            MAX_OBSERVED_ENTITIES,
            MAX_OBSERVED_VALUES,
            query.within_seconds,
            query.challenger_id,
        )
        if of is Observed.LATENCY:
            rows = await self._fetch(_LATENCIES, *arguments)
        else:
            rows = await self._fetch(_OUTCOMES, *arguments, query.model_name, query.metric)
        return [EntityValues(*row) for row in rows]

    async def entities_and_scores(self, query: EntityQuery, epoch_of: EpochOf) -> tuple[EntityGroups, ArmScores]:
        found = await self.entities(query)
        if not found.groups:
            return found, NO_SCORES
        epoch = epoch_of(found.groups)
        of_epoch = query._replace(epochs={one: number for one, number in query.epochs.items() if number == epoch})
        rows = await self._fetch(_MEAN_SCORES, *_entry_arguments(of_epoch), MAX_SCORES)
        a, b = (
            [row["score"] for row in rows if row["assigned"] == version_id]
            for version_id in (query.champion_id, query.challenger_id)
        )
        return found, ArmScores(a, b)

    async def count_calls(self, query: ShadowQuery) -> int:
        (row,) = await self._fetch(_COUNT_CALLS, *_call_arguments(query))
        return int(row["count"])

    async def pairs(self, query: ShadowQuery, ratio: float) -> Sequence[LoggedPair]:
        return await self._pairs(_PAIRS, query, ratio, MAX_PAIRS_READ)

    async def disagreements(self, query: ShadowQuery, top: int) -> Sequence[LoggedPair]:
        return await self._pairs(_DISAGREEMENTS, query, 1.0, top)

    async def _pairs(self, statement: str, query: ShadowQuery, ratio: float, at_most: int) -> list[LoggedPair]:
        arguments = (*_call_arguments(query), query.shadow_id, SHADOW_SECONDS, largest_hash(ratio), at_most)
        return [LoggedPair(*row) for row in await self._fetch(statement, *arguments)]

    async def _fetch(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        async with self._read("the experiments' log", "understudy-experiments") as connection:
            await connection.execute(_PLANNER)
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
        return rows


def _allocation(row: asyncpg.Record) -> Allocation:
    arms: dict[str, int] = orjson.loads(row["arms"] or "{}")
    return Allocation(**{**row, "arms": {int(version_id): percent for version_id, percent in arms.items()}})


def _entry_arguments(query: EntityQuery) -> tuple[object, ...]:
    versions = [version for version in (query.champion_id, query.challenger_id) if version is not None]
    return versions, list(query.epochs.keys()), list(query.epochs.values()), query.since, query.until


def _call_arguments(query: ShadowQuery) -> tuple[object, ...]:
    return query.champion_id, list(query.generations), query.since, query.until
