"""``ExperimentLog`` over the lake: calls from its table, policies and outcomes from where they are, in Postgres."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import pyarrow as pa

from understudy.adapters.lake.reading import statements as sql
from understudy.adapters.lake.reading.question import Lake, Question, Steps, ids_of, micros, span_us
from understudy.adapters.lake.reading.snapshot import Wanted
from understudy.core.prediction_log.hash_sample import is_whole, largest_hash
from understudy.ports.experiments.experiment_log import (
    MAX_ENTITIES,
    MAX_ENTITIES_WITH_SUMS,
    MAX_OBSERVED_ENTITIES,
    MAX_OBSERVED_VALUES,
    MAX_PAIRS_READ,
    MAX_SCORES,
    SHADOW_SECONDS,
    Allocation,
    ArmEntries,
    EntityGroup,
    EntityGroups,
    EntityQuery,
    EntityValues,
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
        most = MAX_ENTITIES if query.is_share else MAX_ENTITIES_WITH_SUMS
        async with self._lake.open() as steps:
            await self._load_entries(steps, query)
            await self._load_told(steps, query)
            await steps.do(lambda question: _load_before(question, query))

            def asked(question: Question) -> tuple[int, list[tuple[Any, ...]]]:
                ((total,),) = question.run(sql.COUNT_ENTRIES)
                values = _entity_values(query) | ({"most": most} if total > most else {})
                statement = sql.ENTITIES.format(sample=sql.SAMPLE if total > most else "")
                return total, question.run(statement, values)

            total, rows = await steps.do(asked)
        groups = [EntityGroup(*row) for row in rows]
        return EntityGroups(groups, sum(group.entities for group in groups), total)

    async def arm_entries(self, query: EntityQuery, version_ids: Sequence[int]) -> Sequence[ArmEntries]:
        async with self._lake.open() as steps:
            await self._load_entries(steps, query, version_ids)
            rows = await steps.do(lambda question: question.run(sql.ARM_ENTRIES))
        return [ArmEntries(*row) for row in rows]

    async def entity_values(self, query: EntityQuery, of: Observed) -> Sequence[EntityValues]:
        values: dict[str, object] = {
            "most": MAX_OBSERVED_ENTITIES,
            "most_values": MAX_OBSERVED_VALUES,
            "within_us": span_us(query.within_seconds),
            "challenger": query.challenger_id,
        }
        async with self._lake.open() as steps:
            await self._load_entries(steps, query)
            if of is Observed.LATENCY:
                rows = await steps.do(lambda question: question.run(sql.LATENCIES, values))
            else:
                await self._load_told(steps, query)
                values["until_us"] = micros(query.until)
                rows = await steps.do(lambda question: question.run(sql.OUTCOMES, values))
        return [EntityValues(*row) for row in rows]

    async def mean_scores(self, query: EntityQuery) -> tuple[Sequence[float], Sequence[float]]:
        async with self._lake.open() as steps:
            await self._load_entries(steps, query)
            rows = await steps.do(lambda question: question.run(sql.MEAN_SCORES, {"most": MAX_SCORES}))
        a, b = (
            [score for assigned, score in rows if assigned == version_id]
            for version_id in (query.champion_id, query.challenger_id)
        )
        return a, b

    async def count_calls(self, query: ShadowQuery) -> int:
        wanted = _calls_wanted(query, sql.COUNT_COLUMNS)
        async with self._lake.open() as steps:
            counts = await steps.do(lambda question: question.gather(wanted, sql.COUNT_CALLS, _asked_values(query)))
        return sum(count for (count,) in counts)

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

    async def _load_entries(self, steps: Steps, query: EntityQuery, version_ids: Sequence[int] | None = None) -> None:
        versions = ids_of((query.champion_id, query.challenger_id)) if version_ids is None else version_ids

        def loaded(question: Question) -> None:
            question.run(sql.EXPOSURES)
            epochs = {"generations": list(query.epochs.keys()), "numbers": list(query.epochs.values())}
            question.run(sql.ADD_EPOCHS, epochs)
            wanted = Wanted(
                sql.EXPOSURE_COLUMNS,
                micros(query.since),
                micros(query.until),
                version_ids=versions,
                equal=(("reason", "bucket"),),
            )
            question.gather(wanted, sql.ADD_EXPOSURES, {"versions": list(versions)})
            question.run(sql.ENTRY)

        await steps.do(loaded)

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


def _load_before(question: Question, query: EntityQuery) -> None:
    question.run(sql.BEFORE)
    since = micros(query.since - query.within_seconds)
    wanted = Wanted(sql.BEFORE_COLUMNS, since, micros(query.since), models=[query.model_name])
    question.gather(wanted, sql.ADD_BEFORE)


def _entity_values(query: EntityQuery) -> dict[str, object]:
    return {
        "within_us": span_us(query.within_seconds),
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
