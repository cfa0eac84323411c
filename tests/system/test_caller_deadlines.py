"""Deadlines: one that no challenger can meet is told before the start, and none that a caller sets ends a rollout."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from command import CommandLine
from e2e.load import Load, calling, run_load
from e2e.stack import VISITS, Stack, a_stack, register, sql
from system.test_guards import ADD_POLICY, COPY_ENDPOINTS, COPY_VERSIONS, ROWS, receiving, start_monitor

from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.canary.decision import Verdict
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Phase
from understudy.core.routing.route import bucket_of
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, RolloutView

pytestmark = pytest.mark.timeout(300)


def usual_body(number: int) -> bytes:
    return body_of(f"person-{number % 5_000}", number)


def body_of(entity: str, number: int) -> bytes:
    """Return a call with inputs that the cache has not seen."""
    inputs = {**ROWS[number % 500].inputs, "log_incentive": number / 1e6}
    return orjson.dumps({"entity_id": entity, "inputs": inputs})


# -- a share of the deadline that a version cannot live in ----

TOO_SLOW = "visits:2,latency_ms=260"
"""Within the 500 ms of the champion's ``timeout_ms``, and beyond the challenger's 40 % of them."""
SHADOWED = """
    SELECT coalesce(sum(calls), 0)::int AS calls FROM PredictionWindow JOIN ModelVersion v ON v.id = model_version_id
    WHERE role = 'shadow' AND v.version = '2'
"""


async def until_shadowed(database_url: str, calls: int) -> None:
    give_up = time.monotonic() + 60
    while (await sql(database_url, SHADOWED))[0]["calls"] < calls:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.3)


async def start_by_http(port: int, query: str = "?dry_run=true") -> Any:
    async with httpx2.AsyncClient(headers={"authorization": "Bearer ops.secret"}, timeout=30) as client:
        url = f"http://127.0.0.1:{port}/v1/models/visits/rollouts{query}"
        answer = await client.post(url, json={"version": "2", "reason": "faster features"})
    assert answer.status_code == 200, answer.text
    return answer.json()["plan"]["deadline_warnings"]


async def test_a_version_that_cannot_live_in_its_share_of_a_deadline_is_named_before_the_start_with_what_lets_it_live(
    tmp_path: Path, database_url: str, understudy: CommandLine
):
    with a_stack(tmp_path, database_url) as stack:
        for label, spec in ((1, "visits:1"), (2, TOO_SLOW)):
            await register(database_url, label, [stack.start_model(spec)], timeout_ms=500)
        await sql(
            database_url,
            "INSERT INTO ServingPolicy (model_name, champion_version, shadow_version) SELECT 'visits', c.id, s.id"
            " FROM ModelVersion c JOIN ModelVersion s ON c.version = '1' AND s.version = '2'",
        )
        key = sha256(b"secret").hexdigest()
        await sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('ops', $1, '{read,operate}')", key)
        port = stack.start_proxy()
        await run_load(port, VISITS, usual_body, per_second=40, seconds=8)
        await until_shadowed(database_url, 250)
        taken = ("model", "set", "visits", "--shadow", "none", "--reason", "seen", "--yes")
        assert (await understudy.beside(*taken)).code == 0

        planned = await understudy.beside("plan", "visits", "2")
        unconfirmed = await understudy.beside("rollout", "start", "visits", "2", "--reason", "faster features")
        by_http = await start_by_http(port)
        begun = await sql(database_url, "SELECT count(*) AS rollouts FROM Rollout")
        remedy = re.search(r"UPDATE ModelVersion SET timeout_ms = \d+ WHERE id = \d+", by_http[0])
        assert remedy is not None
        await sql(database_url, remedy[0])
        with_more_time = await understudy.beside("plan", "visits", "2", "--json")

    named = r"2 takes 2\d\d ms \(its p95 of the last hour\) and has 200 ms for a call: 40 % of the 500 ms of 1"
    assert re.search(named, by_http[0])
    assert re.search("! " + named, planned.said)
    assert re.search("! " + named, unconfirmed.said)
    assert unconfirmed.code != 0
    assert begun[0]["rollouts"] == 0
    assert with_more_time.json["plan"]["deadline_warnings"] == []


# -- ten thousand calls with a deadline of a millisecond ----

WEIGHT = 20
AIMS: dict[str, Callable[[int], bool]] = {
    "challengers": lambda bucket: bucket < WEIGHT,
    "champions": lambda bucket: bucket >= WEIGHT,
    "both": lambda _: True,
}
PLAN = RolloutPlan(
    (Step(WEIGHT, 75, 100), Step(100, 0, 0)),
    keep_warm_seconds=2,
    canary_limits={"detectable_ratio": 50, "min_entities": 20, "warm_up_seconds": 0},
)
ATTACKS, ATTACKS_PER_SECOND = 10_000, 160
"""On each of the three models: over in a minute, all of it within the step."""
USUAL_PER_SECOND = 30
MOST_SECONDS = 280.0
LEFT_OUT = """
    SELECT v.model_name, sum((counts ->> 'hurried_calls')::int)::int AS calls
    FROM PredictionWindow JOIN ModelVersion v ON v.id = model_version_id WHERE rollout_id IS NOT NULL GROUP BY 1
"""
MEASURED = """
    SELECT count(*) AS models
    FROM (SELECT model_version_id FROM PredictionLog GROUP BY 1 HAVING count(*) >= 250) AS known
"""


async def three_models(stack: Stack, database_url: str) -> None:
    equal = stack.start_model("visits:1", "visits:2")
    for label in (1, 2):
        await register(database_url, label, [equal])
    for model in AIMS:
        for statement in (COPY_VERSIONS, COPY_ENDPOINTS, ADD_POLICY):
            await sql(database_url, statement, model)


async def until_it_is(
    store: PostgresRolloutStore, rollout_id: int, is_so: Callable[[RolloutView], bool]
) -> RolloutView:
    give_up = time.monotonic() + 150
    while not is_so(view := await store.view(rollout_id)):
        assert time.monotonic() < give_up, view.record.state
        await asyncio.sleep(0.3)
    return view


async def until_measured(database_url: str) -> None:
    """Wait until each champion's p95 is known, which takes 200 answers: it says which deadlines are too short."""
    give_up = time.monotonic() + 60
    while (await sql(database_url, MEASURED))[0]["models"] < len(AIMS):
        assert time.monotonic() < give_up
        await asyncio.sleep(0.3)


async def chosen(database_url: str, model: str) -> list[str]:
    """Return entities that never called, of the side that is aimed at: who knows the salt, or asks, can choose them."""
    [row] = await sql(database_url, "SELECT salt FROM ServingPolicy WHERE model_name = $1", model)
    numbers = (f"chosen-{number}" for number in range(100 * ATTACKS))
    return list(islice((one for one in numbers if AIMS[model](bucket_of(row["salt"], one))), ATTACKS))


async def attack(port: int, model: str, entities: Sequence[str]) -> Load:
    """Call a model for each entity once, with a deadline that nothing can meet."""
    return await run_load(
        port,
        f"/v1/models/{model}/predict",
        lambda number: body_of(entities[number], number),
        per_second=ATTACKS_PER_SECOND,
        seconds=len(entities) / ATTACKS_PER_SECOND,
        headers="x-request-timeout-ms: 1\r\n",
    )


@pytest.mark.long
async def test_ten_thousand_calls_with_a_deadline_of_a_millisecond_end_no_rollout_whomever_they_are_aimed_at(
    tmp_path: Path, database_url: str
):
    store, actor = PostgresRolloutStore(database_url, timeout_seconds=5), Actor("test", "test", "end to end")
    usual = {model: Load() for model in AIMS}
    with receiving() as (alert_port, received), a_stack(tmp_path, database_url) as stack:
        await three_models(stack, database_url)
        port = stack.start_proxy(workers=2)
        start_monitor(stack, alert_port)
        async with calling(port, usual, usual_body, per_second=USUAL_PER_SECOND, seconds=MOST_SECONDS):
            await until_measured(database_url)
            ids = {model: (await store.start(NewRollout(model, "2", PLAN, model, None), actor)).id for model in AIMS}
            for one in ids.values():
                await until_it_is(store, one, lambda view: bool(view.record.state.step_starts))
            entities = {model: await chosen(database_url, model) for model in AIMS}
            attacks = await asyncio.gather(*(attack(port, *one) for one in entities.items()))
            for one in ids.values():
                await until_it_is(store, one, lambda view: view.record.announced_at is not None)
        events = {model: await store.events(one) for model, one in ids.items()}
        left_out = {row["model_name"]: row["calls"] for row in await sql(database_url, LEFT_OUT)}

    print(f"left out {left_out}, answers {[Counter(one.status for one in load.answers) for load in attacks]}")
    assert all(load.failed == [] for load in usual.values())
    for model, told in events.items():
        assert told[-1].phase == Phase.SUCCEEDED, (model, [event.reason for event in told])
        assert {event.verdict for event in told if event.verdict} == {Verdict.ADVANCE}
    assert [len(load.answers) for load in attacks] == [ATTACKS] * 3
    assert min(left_out[model] for model in AIMS) >= 0.95 * ATTACKS  # some are over before any version was chosen
    assert {event["kind"] for event in received} <= {"rollout_moved"}
