"""Rollouts from end to end, with real processes: a bad challenger is taken back, a good one becomes champion."""

import asyncio
import time
from typing import Any

import orjson
import pytest
from e2e.load import Load, run_load
from e2e.stack import VISITS, Process, Stack, a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.canary.decision import Verdict
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Phase
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, RolloutView

pytestmark = pytest.mark.timeout(300)
PER_SECOND = 75
LIMIT_SECONDS = 150.0
ROWS = example_rows()
GOOD = "/v1/models/good/predict"
COPY_VERSIONS = """
    INSERT INTO ModelVersion
        (model_name, version, artifact_path, framework, input_schema, output_schema, timeout_ms, backend)
    SELECT 'good', version, artifact_path, framework, input_schema, output_schema, timeout_ms,
           jsonb_build_object('model_name', 'visits', 'version', version)
    FROM ModelVersion WHERE model_name = 'visits'
"""
COPY_ENDPOINTS = """
    INSERT INTO ModelEndpoint (model_version_id, target)
    SELECT copy.id, e.target FROM ModelEndpoint e
    JOIN ModelVersion original ON original.id = e.model_version_id
    JOIN ModelVersion copy ON copy.model_name = 'good' AND copy.version = original.version
"""
ADD_POLICY = """
    INSERT INTO ServingPolicy (model_name, champion_version)
    SELECT model_name, id FROM ModelVersion WHERE version = '1'
"""
CAUTIOUS = RolloutPlan((Step(4, 600, 200), Step(100, 0, 0)))
QUICK = RolloutPlan(
    (Step(10, 5, 50), Step(50, 5, 100), Step(100, 0, 0)),
    keep_warm_seconds=2,
    canary_limits={"detectable_ratio": 50, "min_entities": 20, "warm_up_seconds": 0},
)


def body_of(number: int) -> bytes:
    """Return a call of one of 5,000 entities with inputs that the cache has not seen."""
    inputs = ROWS[number % 500].inputs
    return orjson.dumps({"entity_id": f"person-{number % 5_000}", "inputs": {**inputs, "log_incentive": number / 1e6}})


async def two_models(stack: Stack, database_url: str) -> None:
    """Register model ``visits``, whose version 3 will fail, and ``good``, whose version 2 is as good as version 1."""
    equal, failing = stack.start_model("visits:1", "visits:2"), stack.start_model("visits:3", name="failing")
    for label, port in ((1, equal), (2, equal), (3, failing)):
        await register(database_url, label, [port])
    for statement in (COPY_VERSIONS, COPY_ENDPOINTS, ADD_POLICY):
        await sql(database_url, statement)


def start_monitor(stack: Stack, name: str = "monitor") -> None:
    environment = {
        "DATABASE_URL": stack.database_url,
        "UNDERSTUDY_MONITOR_TICK_SECONDS": "1",
        "UNDERSTUDY_MONITOR_METRICS_PORT": "0",
        "UNDERSTUDY_ENVIRONMENT": "test",
    }
    arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
    stack.processes[name] = Process(name, arguments, stack.folder, environment)


async def begun(store: PostgresRolloutStore, rollout_id: int) -> None:
    """Wait until the challenger has passed its warm-up and got its first weight."""
    deadline = time.monotonic() + 90
    while not (await store.view(rollout_id)).record.state.step_starts:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def ended(store: PostgresRolloutStore, rollout_id: int) -> RolloutView:
    """Wait until a rollout has ended and its end was announced."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        view = await store.view(rollout_id)
        if view.record.announced_at is not None:
            return view
        assert time.monotonic() < deadline, view.record.state
        await asyncio.sleep(0.5)


@pytest.mark.long
async def test_a_failing_challenger_is_taken_back_and_a_good_one_becomes_champion_without_a_failed_request(
    tmp_path, database_url
):
    store = PostgresRolloutStore(database_url, timeout_seconds=5)
    actor = Actor("test", "test", "end to end")
    with a_stack(tmp_path, database_url) as stack:
        await two_models(stack, database_url)
        port = stack.start_proxy(workers=2)
        start_monitor(stack)
        load = Load()
        loads = [
            asyncio.create_task(
                run_load(port, path, body_of, per_second=PER_SECOND, seconds=LIMIT_SECONDS + 10, load=load)
            )
            for path in (VISITS, GOOD)
        ]
        await asyncio.sleep(5)
        bad = await store.start(NewRollout("visits", "3", CAUTIOUS, "a", None), actor)
        good = await store.start(NewRollout("good", "2", QUICK, "b", None), actor)

        await begun(store, bad.id)
        port_of_3 = int(stack.processes["failing"].log.stem.removeprefix("model-"))
        stack.processes["failing"].stop()
        stack.start_model("visits:3,error_percent=100", name="failing", port=port_of_3)

        bad_end, good_end = await asyncio.gather(ended(store, bad.id), ended(store, good.id))
        load.is_over = True
        await asyncio.gather(*loads)
        events = {one: list(await store.events(one)) for one in (bad.id, good.id)}
        first_calls = await sql(
            database_url,
            "SELECT extract(epoch FROM predicted_at)::float8 AS at FROM PredictionLog WHERE rollout_id = $1"
            " AND assigned_version_id = $2 ORDER BY predicted_at",
            bad.id,
            bad.challenger_id,
        )
        policies = await policies_of(database_url)

    assert load.failed == []
    assert bad_end.record.state.phase is Phase.FAILED, [event.reason for event in events[bad.id]]
    assert "error rate" in bad_end.record.state.reason
    assert policies["visits"] == {"champion": "1", "challenger": "3", "challenger_weight": 0, "rollout_id": None}
    calls_at = [row["at"] for row in first_calls]
    last_harmless = calls_at[min(99, len(calls_at) - 1)]
    seconds = (bad_end.record.finished_at or 0) - last_harmless
    print(f"failing challenger: {len(calls_at)} calls, taken back {seconds:.1f} s after the 100th (or last)")
    assert seconds <= 60
    assert good_end.record.state.phase is Phase.SUCCEEDED, [event.reason for event in events[good.id]]
    assert policies["good"] == {"champion": "2", "challenger": None, "challenger_weight": 0, "rollout_id": None}
    assert [event.verdict for event in events[good.id] if event.verdict] == [Verdict.ADVANCE] * 2
    assert "proxies have confirmed" in events[bad.id][-1].reason
    alerts = await sql(database_url, "SELECT dedup_key, action FROM AlertOutbox ORDER BY id")
    assert ("understudy/test/visits/canary_rolled_back", "trigger") in [tuple(row) for row in alerts]


async def policies_of(database_url: str) -> dict[str, dict[str, Any]]:
    rows = await sql(
        database_url,
        """SELECT p.model_name, c.version AS champion, v.version AS challenger, p.challenger_weight, p.rollout_id
           FROM ServingPolicy p JOIN ModelVersion c ON c.id = p.champion_version
           LEFT JOIN ModelVersion v ON v.id = p.challenger_version""",
    )
    return {row["model_name"]: {name: row[name] for name in list(row.keys())[1:]} for row in rows}
