"""Rows FS: what the feature store may do."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from e2e.load import Answer, Load, run_load
from e2e.stack import VISITS

from rigs.faults.inputs import distinct_of, entity_of, inputs_of, scores_of
from rigs.faults.links import Link
from rigs.faults.measure import PER_SECOND, Breaking, max_ms, p99_ms
from rigs.faults.row import Figures, Row, Span, at_least, at_most
from rigs.faults.tcp import Behaviour
from rigs.faults.world import DEADLINE_MS, Machine, World
from understudy.adapters.dev_server.example_models import example_version

BUDGET_SECONDS = 0.05
STORED = "chronic_diseases"
STRICT = "/v1/models/strict/predict"
ENTITIES = 300
_SAME = 7
_STRICT = (
    """INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema, timeout_ms,
                                 cache_ttl_seconds, backend)
       SELECT 'strict', version, artifact_path, framework, input_schema, output_schema, timeout_ms, cache_ttl_seconds,
              '{"model_name": "visits", "version": "1"}'
       FROM ModelVersion WHERE model_name = 'visits'""",
    """INSERT INTO ModelEndpoint (model_version_id, target)
       SELECT strict.id, target FROM ModelEndpoint, ModelVersion AS strict WHERE strict.model_name = 'strict'""",
)
_SETTLED_SECONDS = 0.5


def value_of(entity: str) -> float:
    """Return what the store has of an entity: another value for each."""
    return int(entity.rpartition("-")[2]) % 400 / 10 + 0.1


def _schema(**stored: Any) -> str:
    schema = example_version("visits", 1).input_schema
    features = [
        {**feature, "source": "store", **stored} if feature["name"] == STORED else feature
        for feature in schema["features"]
    ]
    return orjson.dumps({**schema, "features": features}).decode()


def _sent(distinct: int) -> dict[str, Any]:
    return {name: value for name, value in inputs_of(distinct).items() if name != STORED}


def _body(number: int) -> bytes:
    distinct = distinct_of(number) % ENTITIES
    return orjson.dumps({"entity_id": entity_of(distinct), "inputs": _sent(distinct)})


def _with_stored(number: int, value: float | None = None) -> dict[str, Any]:
    distinct = distinct_of(number) % ENTITIES
    return {**_sent(distinct), STORED: value_of(entity_of(distinct)) if value is None else value}


@asynccontextmanager
async def a_world(machine: Machine) -> AsyncIterator[tuple[World, Link]]:
    """Lend two models with a stored feature: ``visits`` has a default for it, ``strict`` needs it."""
    link = machine.links.to(int(machine.valkey.url.rpartition(":")[2].partition("/")[0]))
    settings = {"feature_redis_url": f"redis://127.0.0.1:{link.port}/0", "feature_timeout_seconds": BUDGET_SECONDS}
    async with machine.world(**settings) as world:
        with world.machine.valkey_client() as client:
            client.flushall()
            for distinct in range(ENTITIES):
                entity = entity_of(distinct)
                for model in ("visits", "strict"):
                    client.hset(f"features:{model}:{entity}", STORED, str(value_of(entity)))
        await world.champion("a", input_schema=_schema(default=0))
        for statement in _STRICT:
            await world.sql(statement)
        await world.sql("UPDATE ModelVersion SET input_schema = $1 WHERE model_name = 'strict'", _schema())
        await world.sql(
            "INSERT INTO ServingPolicy (model_name, champion_version) "
            "SELECT model_name, id FROM ModelVersion WHERE model_name = 'strict'"
        )
        await world.start_proxy()
        yield world, link


class Both:
    """The loads of both models with the fault's moments."""

    def __init__(self) -> None:
        self.optional, self.required = Load(), Load()
        self.loads = (self.optional, self.required)
        self.broken_at = self.mended_at = 0.0

    def during(self, load: Load) -> list[Answer]:
        first = self.broken_at + _SETTLED_SECONDS
        return [answer for answer in load.answers if first <= answer.sent < self.mended_at - BUDGET_SECONDS]


async def _both(world: World, breaking: Breaking, span: Span) -> Both:
    both = Both()
    await run_load(world.port, VISITS, _body, per_second=100, seconds=1)
    running = [
        asyncio.create_task(
            run_load(world.port, path, _body, per_second=PER_SECOND / 2, seconds=span.total, load=load, connections=64)
        )
        for path, load in ((VISITS, both.optional), (STRICT, both.required))
    ]
    await asyncio.sleep(span.before)
    with breaking:  # type: ignore[union-attr]  # of a link, so none that waits
        both.broken_at = time.monotonic()
        await asyncio.sleep(span.during)
    both.mended_at = time.monotonic()
    await asyncio.gather(*running)
    return both


def store(break_it: Callable[[Link], Any]) -> Any:
    """Return the run of a row in which the way to the store is broken."""

    async def run(machine: Machine, span: Span) -> Figures:
        async with a_world(machine) as (world, link):
            both = await _both(world, break_it(link), span)
            optional, required = both.during(both.optional), both.during(both.required)
            answered = [answer for answer in both.optional.answers if answer.status == 200]
            rows = await world.lost_and_doubled(both.optional, both.required)
            return {
                **rows,
                "requests": len(both.optional.answers) + len(both.required.answers),
                "optional_failed": len(both.optional.failed),
                **{
                    f"failed_{code}": sum(answer.status == code for load in both.loads for answer in load.failed)
                    for code in (0, 408, 422, 500, 504)
                },
                "required_503": sum(answer.status == 503 for answer in required),
                "required_other": sum(answer.status not in (200, 503) for answer in both.required.answers),
                "flagged_defaults": sum("defaulted" in answer.json for answer in answered),
                "unflagged_defaults": len(_untrue(answered)),
                "p99_ms": p99_ms([*optional, *required]),
                "max_ms": max_ms([*optional, *required]),
            }

    return run


def _untrue(answers: list[Answer]) -> list[Answer]:
    """Return the answers that are not of the stored value, nor of the default and say so."""
    kept = scores_of(1, [_with_stored(answer.number) for answer in answers])
    default = scores_of(1, [_with_stored(answer.number, 0.0) for answer in answers])
    return [
        answer
        for answer, stored_score, default_score in zip(answers, kept, default, strict=True)
        if abs(answer.json["prediction"]["score"] - (default_score if "defaulted" in answer.json else stored_score))
        > 1e-5
    ]


async def unknown_entity(machine: Machine, span: Span) -> Figures:
    async with a_world(machine) as (world, _link):

        def body(number: int) -> bytes:
            return orjson.dumps({"entity_id": f"nobody-{number % 50}", "inputs": _sent(distinct_of(number) % ENTITIES)})

        loads = [
            await run_load(world.port, path, body, per_second=100, seconds=span.before) for path in (VISITS, STRICT)
        ]
        answers = [answer for load in loads for answer in load.answers]
        return {
            "requests": len(answers),
            "status_5xx": sum(answer.status >= 500 or answer.status == 0 for answer in answers),
            "flagged_defaults": sum(answer.status == 200 and "defaulted" in answer.json for answer in answers),
            "status_422": sum(answer.status == 422 for answer in answers),
        }


async def same_body_other_entity(machine: Machine, span: Span) -> Figures:
    async with a_world(machine) as (world, _link):

        def body(number: int) -> bytes:
            return orjson.dumps({"entity_id": entity_of(number % 40), "inputs": _sent(_SAME)})

        await run_load(world.port, VISITS, body, per_second=100, seconds=1)
        load = await run_load(world.port, VISITS, body, per_second=300, seconds=span.during)
        answered = [answer for answer in load.answers if answer.status == 200 and "defaulted" not in answer.json]
        true = scores_of(1, [{**_sent(_SAME), STORED: value_of(entity_of(answer.number % 40))} for answer in answered])
        crossed = sum(
            abs(a.json["prediction"]["score"] - score) > 1e-5 for a, score in zip(answered, true, strict=True)
        )
        return {"requests": len(load.answers), "compared": len(answered), "cross_entity_answers": crossed}


_FAST = BUDGET_SECONDS * 1000 + 20
_SAID = (
    *at_most(unflagged_defaults=0, optional_failed=0, required_other=0, rows_lost=0, rows_dup=0),
    *at_least(required_503=1, flagged_defaults=1),
)
ROWS = (
    Row(
        "FS-01",
        "refuses connections",
        "required: 503 fast; optional: the default, and said so",
        (*_SAID, *at_most(p99_ms=_FAST)),
        store(lambda link: link.refusing()),
    ),
    Row(
        "FS-02",
        "slower than its budget",
        "cut at the budget, then as FS-01",
        (*_SAID, *at_most(max_ms=DEADLINE_MS + 30)),
        store(lambda link: link.doing(Behaviour(latency_seconds=0.2))),
    ),
    Row(
        "FS-03",
        "entity unknown",
        "the default, or 422",
        (*at_most(status_5xx=0), *at_least(flagged_defaults=1, status_422=1)),
        unknown_entity,
    ),
    Row(
        "FS-04",
        "same body, entities with other stored values",
        "the cache key covers what was assembled",
        (*at_most(cross_entity_answers=0), *at_least(compared=100)),
        same_body_other_entity,
    ),
)
