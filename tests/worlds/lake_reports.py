"""The world of ``experiment_world`` with both logs: each call goes through a spool to Postgres and to a lake."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import asyncpg
import numpy as np

from understudy.adapters.lake.reading.experiment_log import LakeExperimentLog
from understudy.adapters.lake.reading.history import LakeHistory
from understudy.adapters.lake.reading.question import Lake as LakeQuestions
from understudy.adapters.lake.reading.receipts import LakeReceiptLog
from understudy.adapters.lake.reading.snapshot import LakeReader
from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.adapters.postgres.experiments.outcome_events import PostgresOutcomeEvents
from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
from understudy.adapters.postgres.prediction_log.receipts import PostgresReceiptLog
from understudy.core.prediction_log.row import PredictionRow, Status
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason, bucket_of
from understudy.ports.experiments.experiment_log import ExperimentLog
from understudy.ports.prediction_log.prediction_history import PredictionHistory
from understudy.ports.prediction_log.receipts import ReceiptLog
from worlds.experiment import DAY, MODEL, Call, Told, World, arm_by_bucket
from worlds.lake import Lake, ship_both

SECONDS = 30.0


class Readers(NamedTuple):
    """What reads one of the two logs."""

    log: ExperimentLog
    history: PredictionHistory
    receipts: ReceiptLog


class LoggedWorld(World):
    """Its calls are rows of a proxy's spool, shipped to both logs and committed."""

    def __init__(self, database: asyncpg.Connection, lake: Lake) -> None:
        super().__init__(database)
        self._lake = lake

    async def call(self, calls: Iterable[Call]) -> list[Call]:
        named = [call._replace(prediction_id=call.prediction_id or self.new_id(call.at)) for call in calls]
        spool = self._lake.spool(segment_bytes=1 << 22)
        spool.append_all([row_of_call(call) for call in named])
        await ship_both(self._lake, spool)
        spool.close()
        await self._lake.commit()
        return named


def row_of_call(call: Call) -> PredictionRow:
    assert call.prediction_id is not None
    status = Status(call.status)
    return PredictionRow(
        prediction_id=call.prediction_id,
        predicted_at=call.at,
        model_version_id=call.served or call.assigned,
        assigned_version_id=call.assigned,
        entity_id=call.entity_id,
        input_hash="0" * 64,
        prediction=b'{"score": 0.5, "label": "ye\\u0073"}' if status in (Status.OK, Status.FALLBACK) else b"null",
        score=call.score,
        latency_us=call.latency_us,
        role=Role(call.role),
        reason=Reason(call.reason),
        bucket=bucket_of(MODEL, call.entity_id),
        policy_generation=call.generation,
        rollout_id=None,
        cache_hit=call.cache_hit,
        status=status,
        error_code=None if status in (Status.OK, Status.FALLBACK) else "E504",
        defaulted=("age",) if call.entity_id == "cust-3" else (),
    )


def readers_of(lake: Lake) -> tuple[Readers, Readers]:
    """Return what reads Postgres, and what reads the lake."""
    reader = LakeReader(lake.url, lake.location, endpoint=lake.endpoint, timeout_seconds=SECONDS)
    questions = LakeQuestions(reader, timeout_seconds=SECONDS)
    postgres = Readers(
        PostgresExperimentLog(lake.url, timeout_seconds=SECONDS),
        PostgresPredictionHistory(lake.url, timeout_seconds=SECONDS),
        PostgresReceiptLog(lake.url, timeout_seconds=SECONDS),
    )
    outcomes = PostgresOutcomeEvents(lake.url, timeout_seconds=SECONDS)
    return postgres, Readers(
        LakeExperimentLog(questions, postgres.log, outcomes),
        LakeHistory(questions, postgres.history),
        LakeReceiptLog(questions, lake.ledger),
    )


def _tied(world: World, at: float, generations: Mapping[int, int]) -> list[Call]:
    """Return entities whose first two calls are of the same microsecond: to two arms in two epochs, or in one."""
    calls = []
    for number in range(8):
        # Only in the second epoch, which is not the one that the entity came in.
        entity, arms = f"tied-later-{number}", ("6", "7") if number % 2 else ("7", "6")
        came = at if number < 4 else at - 60
        calls += [
            Call(entity, came, world.versions["6"], generations[20], score=0.125, prediction_id=world.new_id(came))
        ]
        ids = [world.new_id(at), world.new_id(at)]
        calls += [
            Call(
                entity, at, world.versions[label], generations[50],
                role="champion" if label == "6" else "challenger", score=0.25 + number, prediction_id=prediction_id,
            )
            for label, prediction_id in zip(arms, ids, strict=True)
        ]  # fmt: skip
    for number in range(8):
        ids = [world.new_id(at), world.new_id(at)]
        for label, weight in (("6", 20), ("7", 50)):
            prediction_id = ids.pop(number % len(ids))
            role = "champion" if label == "6" else "challenger"
            calls.append(
                Call(
                    f"tied-{number}", at, world.versions[label], generations[weight], role=role, score=0.25,
                    prediction_id=prediction_id,
                )
            )  # fmt: skip
    return calls


async def a_month_of_everything(world: World, began: float, entities: int) -> list[Call]:
    """Write calls, outcomes and a shadow's rows with all that a report has to leave out, or to look at twice."""
    rng = np.random.default_rng(8)
    versions = world.versions
    await world.set_policy("6")
    generations = {weight: await world.set_policy("6", "7", weight, "8", 70) for weight in (20, 50)}
    calls, told = list[Call](), list[Told]()
    for number in range(entities):
        entity = f"cust-{number}" if number % 9 else f"ключ-{number}"
        # A few hours of a month: each is a file of its own.
        first = began + 4 * DAY * int(rng.integers(5)) + float(rng.uniform(0, 1_800))
        times = [first, *(first + 4 * DAY * int(later) for later in sorted(rng.integers(0, 3, rng.integers(0, 4))))]
        times += [first + 6.0 * again for again in range(70)] if number == 5 else []
        for at in times:
            weight = 20 if first < began + 10 * DAY else 50
            arm = arm_by_bucket(versions, entity, weight, ("6", "7"))
            fell_back = arm == versions["7"] and rng.random() < 0.1
            calls.append(
                Call(
                    entity, at, arm, generations[weight], served=versions["6"] if fell_back else arm,
                    role="champion" if fell_back or arm == versions["6"] else "challenger",
                    status="fallback" if fell_back else "ok" if rng.random() < 0.97 else "timeout",
                    score=float(rng.uniform()), latency_us=int(rng.uniform(2_000, 90_000)),
                    cache_hit=bool(rng.random() < 0.05),
                )
            )  # fmt: skip
        past = began - DAY - float(rng.uniform(0, 1_800))
        calls += [Call(entity, past, versions["6"], generations[20] - 1, score=0.5)] if rng.random() < 0.5 else []
        told += [Told(past + 5, entity, 2.0)] if rng.random() < 0.3 else []
        told += [Told(first + float(rng.uniform(0, 4 * DAY)), entity, float(rng.integers(1, 4)))] * bool(number % 3)
        told += [Told(first + 9, entity, name="converted2")] if number % 4 == 0 else []
    calls += [
        Call("cust-1", began + 1, versions["7"], generations[20], reason="forced", role="challenger"),
        Call("vip", began + 1, versions["6"], generations[20], reason="category"),
    ]
    calls += _tied(world, began + 2 * DAY, generations)
    named = await world.call(calls)
    asked = [call for call in named if call.role == "champion" and call.at >= began and rng.random() < 0.8]
    await world.call(
        call._replace(
            assigned=versions["8"], served=versions["8"], role="shadow", at=call.at + 0.2, score=(call.score or 0) / 2
        )
        for call in asked
    )
    told += [Told(call.at + 30, prediction_id=call.prediction_id) for call in named[::11]]
    await world.tell(told)
    return named
