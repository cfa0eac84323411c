"""The demo's trained models behind real gRPC servers, with changed scores; and the champion's logged calls."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import numpy as np
import orjson
from e2e.stack import register
from numpy.typing import NDArray
from traffic.logged import LoggedTraffic
from traffic.spooled_rows import a_row

from understudy.adapters.dev_server.catalog import ModelCatalog, ServedModel, ServeSpec, Tensors
from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.dev_server.onnx import OnnxModel
from understudy.adapters.dev_server.server import InferenceServer
from understudy.adapters.model_servers.connect import PROTOCOLS, connect
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.rollout.guard_limits import GuardSettings
from understudy.core.rollout.plan import NAMED_PLANS, RolloutPlan
from understudy.core.routing.policy import Role
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, RolloutEventRecord, RolloutView
from understudy.rollout.executor import RolloutExecutor
from understudy.rollout.warm_up.score_comparison import ScoreComparison
from understudy.rollout.warm_up.warm_up import WarmUpProbe

ROWS = example_rows()
Scores = NDArray[np.float32]
Change = Callable[[Scores], Scores]
"""From a version's scores to what its server answers instead."""
_SHADOW_ROWS = """
    INSERT INTO PredictionLog (model_version_id, assigned_version_id, entity_id, input_hash, prediction, latency_ms,
                               predicted_at, prediction_id, score, role, reason, status)
    SELECT $1, $1, call.entity_id, call.input_hash, jsonb_build_object('score', seen.score), 1,
           call.predicted_at + INTERVAL '1 second', call.prediction_id, seen.score, 'shadow', 'bucket', 'ok'
    FROM PredictionLog call JOIN unnest($2::text[], $3::float8[]) AS seen (entity_id, score) USING (entity_id)
    WHERE call.role = 'champion'
"""


class ChangedModel(ServedModel):
    """A served version whose probabilities another hand has changed, and how often it was called."""

    def __init__(self, spec: ServeSpec) -> None:
        super().__init__(spec)
        self.change: Change = np.asarray
        self.calls = 0

    async def answer(self, inputs: Tensors) -> dict[str, NDArray[Any]]:
        self.calls += 1
        outputs = await super().answer(inputs)
        scores = self.change(outputs["probabilities"][:, 1])
        return {**outputs, "probabilities": np.stack([1 - scores, scores], axis=1).astype(np.float32)}


@asynccontextmanager
async def serving(version: int, change: Change = np.asarray) -> AsyncIterator[tuple[ChangedModel, int]]:
    """Serve an example version of ``visits`` and yield it with its port."""
    model = ChangedModel(ServeSpec("visits", version))
    model.change = change
    async with InferenceServer(ModelCatalog([model])) as server:
        yield model, server.port


def scores_of(version: int, rows: int) -> list[float]:
    """Return what a trained version of ``visits`` says of the first held-out rows."""
    example = example_version("visits", version)
    features = example.input_schema["tensors"][0]["features"]
    inputs = np.array([[row.inputs[name] for name in features] for row in ROWS[:rows]], np.float32)
    if not rows:
        return []
    answers = OnnxModel(example.read(), example.label).run({"input": inputs})
    found: list[float] = answers["probabilities"][:, 1].astype(float).tolist()
    return found


class WarmUps:
    """A champion, ``visits`` 1, whose calls were logged, and a monitor that leads.

    Args:
        database: Where all of it is.
        database_url: The same.
        epoch: The monitor's.
    """

    def __init__(self, database: asyncpg.Connection, database_url: str, epoch: Epoch) -> None:
        self.database = database
        self.url = database_url
        self.epoch = epoch
        self.store = PostgresRolloutStore(database_url, timeout_seconds=5)
        self.telemetry = PrometheusTelemetry()
        self._policies = policies = PostgresPolicySource(database_url, timeout_seconds=5)
        history = PostgresPredictionHistory(database_url, timeout_seconds=5)
        windows = PostgresWindowLog(database_url, timeout_seconds=5)
        self._scores = ScoreComparison(policies, connect, PROTOCOLS, history, windows)
        self._probe = WarmUpProbe(policies, connect, PROTOCOLS)
        self.judgements_of: Callable[[int], Judgements] = lambda _: NO_JUDGEMENTS
        self.guard_settings = GuardSettings()
        self.executor = self.new_executor()
        self.traffic = LoggedTraffic(database_url)
        self.versions: dict[int, int] = {}

    def new_executor(self) -> RolloutExecutor:
        """Return the executor of a monitor that has just started."""
        windows = PostgresWindowLog(self.url, timeout_seconds=5)
        return RolloutExecutor(
            self.store,
            windows,
            lambda _: (),
            self._probe,
            self.telemetry,
            scores=self._scores,
            judgements_of=self._judgements_of,
            guard_settings=self.guard_settings,
            environment="test",
        )

    def _judgements_of(self, rollout_id: int) -> Judgements:
        return self.judgements_of(rollout_id)

    async def add(self, version: int, port: int, **columns: Any) -> int:
        self.versions[version] = await register(self.url, version, [port], **columns)
        return self.versions[version]

    async def begin(self) -> None:
        """Make ``visits`` 1 the champion."""
        await self.database.execute(
            "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", await self.add(1, 1)
        )

    async def log(self, calls: int, *, entities: int = 10_000, with_inputs: bool = True) -> None:
        """Log calls of the champion, of the newest ten minutes, with what its model says to them."""
        now: float = await self.database.fetchval("SELECT extract(epoch FROM now())::float8")
        rows = [
            a_row(version_id=self.versions[1], prediction=orjson.dumps({"score": score}))._replace(
                predicted_at=now - 600 + place,
                entity_id=f"person-{place % entities}",
                score=score,
                inputs=orjson.dumps(ROWS[place].inputs) if with_inputs else None,
            )
            for place, score in enumerate(scores_of(1, calls))
        ]
        await self.traffic.ship(rows)

    async def shadow(self, version: int, scores: Sequence[float]) -> None:
        """Log that a version saw the logged calls as the shadow, and what it said."""
        entities = [f"person-{place}" for place in range(len(scores))]
        await self.database.execute(_SHADOW_ROWS, self.versions[version], entities, list(scores))

    async def serve(self, rollout_id: int, version: int, scores: Sequence[float], role: Role) -> None:
        """Ship calls of as many entities, of the last minute, with their windows."""
        now: float = await self.database.fetchval("SELECT extract(epoch FROM now())::float8")
        rows = [
            a_row(version_id=self.versions[version], prediction=orjson.dumps({"score": score}))._replace(
                predicted_at=now - 60, entity_id=f"{role}-{place}", score=score, role=role, rollout_id=rollout_id
            )
            for place, score in enumerate(scores)
        ]
        await self.traffic.ship(rows)

    async def start(self, version: int, plan: RolloutPlan = NAMED_PLANS["default"]) -> int:
        new = NewRollout("visits", str(version), plan, "fresh", 12_000)
        return (await self.store.start(new, Actor("dana", "cli"))).id

    async def tick(self) -> RolloutView:
        await self.executor.tick(self.epoch)
        return await self.store.view(await self.store.latest_id("visits"))

    async def last_event(self) -> RolloutEventRecord:
        *_, last = await self.store.events(await self.store.latest_id("visits"))
        return last

    async def told(self) -> list[tuple[str, str]]:
        rows = await self.database.fetch(
            "SELECT dedup_key, action FROM AlertOutbox WHERE action <> 'change' ORDER BY id"
        )
        return [(row["dedup_key"].rpartition("/")[2], row["action"]) for row in rows]

    async def logged(self) -> Mapping[str, int]:
        tables = ("PredictionLog", "PredictionWindow")
        return {table: await self.database.fetchval(f"SELECT count(*) FROM {table}") for table in tables}

    async def close(self) -> None:
        await self.traffic.close()
        await self._policies.close()
