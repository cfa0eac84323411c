"""Rows CL and SH: what a challenger and a shadow may do to the champion's callers."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from e2e.load import Load, run_load
from e2e.stack import VISITS

from rigs.faults.inputs import body_of
from rigs.faults.measure import measured, standard
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_least, at_most
from rigs.faults.world import DEADLINE_MS, Machine, Model, World, resident_bytes
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout

Run = Callable[[Machine, Span], Awaitable[Figures]]
WEIGHT = 10
SHADOW_LIMIT = 32
"""So few that a shadow that hangs for its whole deadline fills it."""
FIRST_WEIGHT = 2
ROLLED_BACK_SECONDS = 150.0
CHALLENGER_SHARE = 0.4
"""Of the deadline, by default."""
_PLAN = RolloutPlan((Step(FIRST_WEIGHT, 600, 50), Step(100, 0, 0)))
_UNCACHED = {"cache_ttl_seconds": 0}


def challenger(**faults: Any) -> Run:
    """Return the run of a row in which the challenger does this wrong."""

    async def run(machine: Machine, span: Span) -> Figures:
        async with machine.world() as world:
            await world.champion("a", **_UNCACHED)
            version = await world.register("challenger", **_UNCACHED)
            await world.policy(challenger_version=version, challenger_weight=WEIGHT)
            await world.start_proxy()
            seen = await measured(world, machine.model("challenger").showing(**faults), span)
            rows = await world.lost_and_doubled(seen.load)
            (logged,) = await world.sql(
                "SELECT count(*) AS n FROM PredictionLog WHERE status = 'fallback'"
                " AND assigned_version_id = $1 AND model_version_id <> $1",
                version,
            )
            told = sum(bool(answer.json.get("fallback")) for answer in seen.during() if answer.status == 200)
            return {**seen.figures(), **rows, "fallbacks_logged": logged["n"], "fallbacks_told": told}

    return run


async def fails_at_first(machine: Machine, _span: Span) -> Figures:
    async with machine.world() as world:
        await world.champion("a", **_UNCACHED)
        await world.register("challenger", **_UNCACHED)
        await world.start_proxy()
        world.start_monitor("monitor")
        store = PostgresRolloutStore(world.url, timeout_seconds=5)
        rollout = await store.start(NewRollout("visits", "2", _PLAN, "s", 1_000), Actor("faults", "faults"))
        load = Load()
        running = asyncio.create_task(
            run_load(world.port, VISITS, body_of, per_second=150, seconds=ROLLED_BACK_SECONDS + 30, load=load)
        )
        try:
            await _until_weight(world, lambda weight: weight > 0)
            machine.model("challenger").show(error_percent=100)
            began = time.monotonic()
            await _until_weight(world, lambda weight: weight == 0)
            seconds = time.monotonic() - began
        finally:
            load.is_over = True
            await running
        (failing,) = await world.sql("SELECT count(*) AS n FROM PredictionLog WHERE status = 'fallback'")
        phase = (await store.view(rollout.id)).record.state.phase
        rows = await world.lost_and_doubled(load)
        return {
            **rows,
            "requests": len(load.answers),
            "failed": len(load.failed),
            **{f"failed_{code}": n for code, n in sorted(Counter(answer.status for answer in load.failed).items())},
            "rollback_s": seconds,
            "challenger_calls": failing["n"],
            "rolled_back": float(phase.value == "FAILED"),
        }


async def _until_weight(world: World, holds: Callable[[int], bool]) -> None:
    give_up = time.monotonic() + ROLLED_BACK_SECONDS
    while True:
        (row,) = await world.sql("SELECT challenger_weight AS weight FROM ServingPolicy")
        if holds(row["weight"]):
            return
        if time.monotonic() > give_up:
            raise TimeoutError(f"the challenger's weight stays {row['weight']} for {ROLLED_BACK_SECONDS:.0f} s")
        await asyncio.sleep(0.1)


def shadow(break_it: Callable[[Model], Any], per_second: float = 150.0) -> Run:
    """Return the run of a row in which the shadow is broken."""

    async def run(machine: Machine, span: Span) -> Figures:
        async with machine.world(shadow_limit=SHADOW_LIMIT) as world:
            await world.champion("a", **_UNCACHED)
            await world.policy(shadow_version=await world.register("shadow", **_UNCACHED))
            await world.start_proxy()
            grown = 0.0

            @asynccontextmanager
            async def broken() -> AsyncIterator[None]:
                nonlocal grown
                resident = resident_bytes(world.proxy.pid)
                with break_it(machine.model("shadow")):
                    yield
                grown = resident_bytes(world.proxy.pid) - resident

            figures = await standard(world, broken(), span, per_second=per_second)
            dropped = world.metric("shadow_dropped_total")
            return {**figures, "rss_growth_mb": max(0.0, grown / 2**20), "dropped": dropped}

    return run


_TOLD = at_least(fallbacks_logged=1, fallbacks_told=1)
_UNNOTICED = (*NOTHING_LOST, *at_most(p99_ms_delta=5, rss_growth_mb=32))
ROWS = (
    Row(
        "CL-01",
        "challenger with 10 % answers errors",
        "the champion answers, and both are logged",
        (*NOTHING_LOST, *_TOLD),
        challenger(error_percent=100),
    ),
    Row(
        "CL-02",
        "challenger with 10 % hangs",
        "the champion answers after 40 % of the deadline",
        (*NOTHING_LOST, *_TOLD, *at_most(p99_ms=0.45 * DEADLINE_MS + 20)),
        challenger(hang=True),
    ),
    Row(
        "CL-03",
        "challenger with 2 % fails from its first calls on",
        "rolled back without waiting for 50 samples",
        (*at_most(rollback_s=20, failed=0, rows_lost=0), *at_least(rolled_back=1)),
        fails_at_first,
    ),
    Row(
        "SH-01",
        "shadow hangs",
        "bounded, dropped and counted",
        (*_UNNOTICED, *at_least(dropped=1)),
        shadow(lambda model: model.showing(hang=True)),
    ),
    Row(
        "SH-02",
        "shadow ten times slower, at 300 a second",
        "as SH-01",
        _UNNOTICED,
        shadow(lambda m: m.showing(latency_ms=100), per_second=300),
    ),
    Row("SH-03", "shadow refuses connections", "as SH-01", NOTHING_LOST, shadow(lambda m: m.link.refusing())),
)
