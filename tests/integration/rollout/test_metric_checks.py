"""Metrics of a plan, over a real Postgres and a server that speaks Prometheus' API: what moves, and what is shown."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import numpy as np
import pytest
from command import CommandLine
from loopback.prometheus import PrometheusServer
from worlds.rollout import PLAN, TWINS, PastRollout

from understudy.adapters.http.metric_sources import HttpMetricSources
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.canary.decision import CheckState, Verdict
from understudy.core.canary.metrics.metric_check import METRICS
from understudy.core.rollout.guard_limits import GuardSettings
from understudy.core.rollout.state import Phase, WaitingFor
from understudy.rollout.checks.metric_check import MetricCheck
from understudy.rollout.verdicts.replay import Replay, judged_again, read_evidence

pytestmark = pytest.mark.timeout(120)
PROMQL = 'sum(rate(euros_total{model="$model",version="$version"}[5m]))'
BASKET = {"name": "basket", "source": "shop", "promql": PROMQL, "limit_ratio": 0.1}
CHAMPION, CHALLENGER = (f'sum(rate(euros_total{{model="churn",version="{version}"}}[5m]))' for version in "67")
NOISE = np.random.default_rng(1).normal(0, 0.03, (2, 4_000))
WITH_BASKET = replace(
    PLAN, steps=(PLAN.steps[0], PLAN.steps[-1]), maximum_seconds=2_700.0, canary_limits={"metrics": [BASKET]}
)


def basket(side: int, euros: float) -> Any:
    return lambda at: euros * float(np.exp(NOISE[side, at // 60 % 4_000]))


class World:
    """A rollout of an equal version, whose basket a Prometheus knows."""

    def __init__(self, past: PastRollout, server: PrometheusServer) -> None:
        self.past, self.server = past, server
        self.sources = HttpMetricSources({"shop": server.url}, {}, timeout_seconds=5)
        server.series = {CHAMPION: [basket(0, 30.0)], CHALLENGER: [basket(1, 30.0)]}
        self.another_leads()

    def another_leads(self) -> None:
        self.check = MetricCheck(self.past.store, self.sources, MemoryTelemetry())
        self.past.metrics_of = self.check.latest

    async def go_on(self, minutes: int, minutes_a_look: int = 1) -> Any:
        for _ in range(minutes // minutes_a_look):
            self.past.store.now += 60.0 * minutes_a_look
            for _ in range(2):
                await self.check.tick(epoch=None)  # type: ignore[arg-type]  # nobody else leads
                await self.check.settle()
            self.past.store.now -= 60.0 * minutes_a_look
            await self.past.go_on(minutes_a_look, minutes_a_look)
            state = (await self.past.store.view(self.past.id)).record.state
            if state.phase is not Phase.PROGRESSING or state.promoted_at is not None:
                break
        return (await self.past.store.view(self.past.id)).record.state

    async def events(self) -> Any:
        return await self.past.store.events(self.past.id)


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[World]:
    past = PastRollout(database, database_url, TWINS, seconds_ago=12_000)
    async with PrometheusServer() as server:
        await past.begin(WITH_BASKET)
        await past.go_on(1)
        found = World(past, server)
        yield found
        await found.check.stop()
        await found.sources.close()


async def test_a_version_whose_baskets_are_smaller_is_taken_back_and_the_verdict_replays_under_another_leader(
    world: World, understudy: CommandLine
):
    world.server.series[CHALLENGER] = [basket(1, 20.0)]
    await world.go_on(20, 10)
    shown_early = await understudy.beside("rollout", "show", "churn")
    world.another_leads()

    ended = await world.go_on(20, 5)

    assert ended.phase is Phase.FAILED
    assert re.search(r"metric basket (19|20)[.0-9]* vs [.0-9]+ = 0\.6[0-9]*x \(0\.[0-9]+ to 0\.[67]", ended.reason)
    events = await world.events()
    fatal = next(event for event in events if event.verdict is Verdict.ROLL_BACK)
    row = next(row for row in read_evidence(fatal) if row.check is METRICS[0])
    assert (row.state, row.subject) == (CheckState.FAIL, "basket")
    assert len(fatal.inputs["metrics"][0]["times"]) >= 30
    replays = [found for _, found in judged_again(events) if isinstance(found, Replay)]
    assert replays
    assert all(replay.agrees for replay in replays)
    assert "metric basket cannot be compared yet, which holds the step" in " ".join(shown_early.out.split())
    shown = await understudy.beside("rollout", "show", "churn")
    assert "metric basket" in " ".join(shown.out.split())
    assert "basket" in (await understudy.beside("rollout", "show", "churn", "--json")).out


async def test_a_guard_takes_back_a_share_whose_baskets_are_smaller_and_says_so_to_every_process(
    database: asyncpg.Connection, database_url: str, understudy: CommandLine
):
    past = PastRollout(database, database_url, TWINS, seconds_ago=12_000)
    past.guard_settings = GuardSettings({"*": [BASKET]})
    async with PrometheusServer() as server:
        await past.begin_by_hand("challenger_version = {}, challenger_weight = 10, guard = 'rollback'")
        world = World(past, server)
        server.series[CHALLENGER] = [basket(1, 20.0)]
        await world.go_on(20, 10)
        shown_early = await understudy.beside("rollout", "show", "churn")
        world.another_leads()

        ended = await world.go_on(40, 5)

        await world.check.stop()
        await world.sources.close()
    assert ended.phase is Phase.FAILED
    assert "metric basket" in ended.reason
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    replays = [found for _, found in judged_again(await world.events()) if isinstance(found, Replay)]
    assert replays
    assert all(replay.agrees for replay in replays)
    assert "metric basket" in " ".join(shown_early.out.split())


async def test_an_equal_version_waits_for_its_metric_and_is_promoted(world: World):
    ended = await world.go_on(40, 20)

    assert ended.promoted_at is not None
    events = await world.events()
    assert any("metric basket" in str(event.inputs.get("decision")) for event in events)


async def test_a_metric_that_cannot_be_read_holds_the_step_until_a_person_decides(
    world: World, understudy: CommandLine
):
    world.server.series[CHALLENGER] = [basket(1, 20.0)]
    world.server.instead = (500, "", b"busy")

    ended = await world.go_on(60, 20)

    shown = await understudy.beside("rollout", "show", "churn")
    assert (ended.phase, ended.waiting_for) == (Phase.WAITING, WaitingFor.TIME)
    assert "metric basket cannot be read, which holds the step: shop answers with an error" in ended.reason
    assert "✖ invalid" in shown.out
