"""``ExperimentLog`` over the lake: calls from its table, policies and outcomes from where they are, in Postgres."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import pyarrow as pa

from understudy.adapters.lake.reading import statements as sql
from understudy.adapters.lake.reading.entries import (
    CALLS,
    CALLS_AND_SCORES,
    exposures_of,
    load_calls,
    load_chosen,
    load_entries,
    load_events,
    load_sample,
    mean_scores,
)
from understudy.adapters.lake.reading.question import Lake, Question, Steps, micros
from understudy.adapters.lake.reading.snapshot import Wanted
from understudy.core.prediction_log.hash_sample import is_whole, largest_hash
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
    ExperimentLog,
    LoggedPair,
    Observed,
    OutcomeEvents,
    OutcomeFacts,
    ShadowQuery,
)

_SECONDS_OF_A_DAY = 86_400.0
_TOLD = pa.schema([
    ("event_id", pa.string()), ("entity_id", pa.string()), ("prediction_id", pa.string()), ("at_us", pa.int64()),
    ("value", pa.float64()),
])  # fmt: skip


class LakeExperimentLog:
    """Implements ``ports.ExperimentLog``.

    Args:
        lake: Has the calls.
        log: Says what the policies were, and which outcomes there are.
        outcomes: Has the outcomes.
    """

    def __init__(self, lake: Lake, log: ExperimentLog, outcomes: OutcomeEvents) -> None:
        self._lake = lake
        self._log = log
        self._outcomes = outcomes

    async def allocations(self, model_name: str) -> Sequence[Allocation]:
        return await self._log.allocations(model_name)

    async def outcome_facts(self, model_name: str, metric: str, since: float, until: float) -> OutcomeFacts:
        return await self._log.outcome_facts(model_name, metric, since, until)

    async def entities(self, query: EntityQuery) -> EntityGroups:
        found, _ = await self._entities(query, None)
        return found

    async def entities_and_scores(self, query: EntityQuery, epoch_of: EpochOf) -> tuple[EntityGroups, ArmScores]:
        return await self._entities(query, epoch_of)

    async def _entities(self, query: EntityQuery, epoch_of: EpochOf | None) -> tuple[EntityGroups, ArmScores]:
        """Return the entities, and with ``epoch_of`` their scores, from one reading of the rows."""
        most = MAX_ENTITIES if query.is_share else MAX_ENTITIES_WITH_SUMS
        met = CALLS if epoch_of is None else CALLS_AND_SCORES

        def asked(question: Question) -> tuple[int, ArmScores, list[tuple[Any, ...]]]:
            total = load_chosen(question, query, most)
            # Before the rows of some entities are read again: then what was met has to be out of memory.
            scores = NO_SCORES if epoch_of is None else mean_scores(question, query, epoch_of, MAX_SCORES)
            load_calls(question, query)
            return total, scores, question.run(sql.ENTITIES, _entity_values(query))

        async with self._lake.open() as steps:
            await steps.do(lambda question: load_entries(question, query, met))
            await self._load_told(steps, query)
            total, scores, rows = await steps.do(asked)
        groups = [EntityGroup(*row) for row in rows]
        return EntityGroups(groups, sum(group.entities for group in groups), total), scores

    async def arm_entries(self, query: EntityQuery, version_ids: Sequence[int]) -> Sequence[ArmEntries]:
        def asked(question: Question) -> list[tuple[Any, ...]]:
            load_entries(question, query, version_ids=version_ids)
            return question.run(sql.ARM_ENTRIES)

        async with self._lake.open() as steps:
            return [ArmEntries(*row) for row in await steps.do(asked)]

    async def entity_values(self, query: EntityQuery, of: Observed) -> Sequence[EntityValues]:
        values: dict[str, object] = {"most_values": MAX_OBSERVED_VALUES, "challenger": query.challenger_id}

        def latencies(question: Question) -> list[tuple[Any, ...]]:
            load_sample(question, query, MAX_OBSERVED_ENTITIES)
            return question.gather(exposures_of(query, sql.LATENCY_COLUMNS), sql.LATENCIES, values)

        def outcomes(question: Question) -> list[tuple[Any, ...]]:
            load_sample(question, query, MAX_OBSERVED_ENTITIES)
            load_events(question, query)
            return question.run(sql.OUTCOMES, values | {"until_us": micros(query.until)})

        async with self._lake.open() as steps:
            if of is Observed.LATENCY:
                return [EntityValues(*row) for row in await steps.do(latencies)]
            await self._load_told(steps, query)
            return [EntityValues(*row) for row in await steps.do(outcomes)]

    async def count_calls(self, query: ShadowQuery) -> int:
        wanted, values = _calls_wanted(query, sql.COUNT_COLUMNS), _asked_values(query)
        async with self._lake.open() as steps:
            ((count,),) = await steps.do(lambda question: question.gather(wanted, sql.COUNT_CALLS, values))
        return int(count)

    async def pairs(self, query: ShadowQuery, ratio: float) -> Sequence[LoggedPair]:
        return await self._pairs(sql.PAIRS, query, ratio, MAX_PAIRS_READ)

    async def disagreements(self, query: ShadowQuery, top: int) -> Sequence[LoggedPair]:
        return await self._pairs(sql.DISAGREEMENTS, query, 1.0, top)

    async def _pairs(self, statement: str, query: ShadowQuery, ratio: float, most: int) -> list[LoggedPair]:
        sampled: dict[str, object] = {"is_whole": is_whole(ratio), "largest": largest_hash(ratio)}
        later = _calls_wanted(query, sql.SEEN_COLUMNS)._replace(
            until_us=micros(query.until + SHADOW_SECONDS), version_ids=[query.shadow_id]
        )

        def paired(question: Question) -> list[tuple[Any, ...]]:
            question.run(sql.CALLS)
            question.gather(_calls_wanted(query, sql.CALL_COLUMNS), sql.ADD_ASKED, _asked_values(query) | sampled)
            question.gather(later, sql.ADD_SEEN, sampled)
            return question.run(statement, {"most": most})

        async with self._lake.open() as steps:
            return [LoggedPair(*row) for row in await steps.do(paired)]

    async def _load_told(self, steps: Steps, query: EntityQuery) -> None:
        await steps.do(lambda question: question.run(sql.TOLD))
        since = query.since - query.within_seconds
        # Closed here: else a question that is given up keeps its transaction until the generator is deleted.
        async with aclosing(self._outcomes.told(query.model_name, query.metric, since, query.until)) as told:
            async for events in told:
                columns = [list(column) for column in zip(*events, strict=True)]
                await steps.do(partial(_add_told, pa.table(columns, schema=_TOLD)))


def _add_told(rows: Any, question: Question) -> None:
    question.over(rows, sql.ADD_TOLD)


def _entity_values(query: EntityQuery) -> dict[str, object]:
    return {
        "since_us": micros(query.since),
        "until_us": micros(query.until),
        "recent_us": micros(query.until - _SECONDS_OF_A_DAY),
        "entering": query.until - query.within_seconds - query.since,
        "slices": query.slices,
        "is_share": query.is_share,
        "per_call": query.per_call,
        "challenger": query.challenger_id,
    }


def _calls_wanted(query: ShadowQuery, columns: Sequence[str]) -> Wanted:
    return Wanted(columns, micros(query.since), micros(query.until), version_ids=[query.champion_id])


def _asked_values(query: ShadowQuery) -> dict[str, object]:
    return {"champion": query.champion_id, "generations": list(query.generations)}
