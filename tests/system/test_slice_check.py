"""A challenger that is slow for one category: from rows of the spool, over a real Postgres, to an operator."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest
from command import CommandLine
from traffic.spooled_rows import a_prediction_id, a_row
from worlds.rollout import TWINS, PastRollout

from understudy.adapters.postgres.connections.checkup import examine_guards
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.row import PredictionRow
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Kind, Phase, WaitingFor
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.core.windows.builder import WindowBuilder
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.verdicts.replay import Replay, judged_again

pytestmark = pytest.mark.timeout(180)
PLAN = RolloutPlan((Step(10, 3_000, 1_000), Step(100, 0, 0)), canary_limits={"detectable_ratio": 3})
SLOWER = "(typical latency|slow answers)"
"""Where a stretch begins, so the clock, decides which of the two is proven first."""
CALLS, GOLD = 1_000, 20
"""Calls a minute, of which each tenth is the challenger's; and every how many-th of both has the category."""


class SlowCategory(PastRollout):
    """A rollout whose challenger takes 2.5 times as long for the category ``gold``."""

    shipped: PostgresPredictionStore

    async def minutes(self, most: int) -> RolloutView:
        """Let minutes pass, until the rollout waits or has ended, or so many have."""
        for _ in range(most):
            await self._spool(await self.store.view(self.id))
            self.store.now += 60
            await self.slices.tick(None)  # type: ignore[arg-type]  # it writes nothing
            await self.executor.tick(None)  # type: ignore[arg-type]  # no other monitor leads
            await self._date_events()
            view = await self.store.view(self.id)
            if view.record.state.phase is Phase.WAITING or view.record.state.phase.is_final:
                break
        return view

    async def _spool(self, view: RolloutView) -> None:
        """Write a minute of rows as the shipper does: with their windows, in one transaction."""
        if view.policy is None or not view.policy.weight_percent:
            return
        generation, threshold = view.policy.generation, view.record.slow_us
        rows = [encode_line(self._call(number, generation)) for number in range(CALLS)]
        batch = SpooledBatch(f"0b0e6f4e-0000-4000-8000-{int(self.store.now):012d}", 1, 0, 1, rows)
        staged = WindowBuilder(f"worker-{int(self.store.now)}").stage(rows, batch.columns, lambda _: threshold)
        written = await self.shipped.write(batch, staged.windows)
        assert (written.outcome, staged.unreadable_rows) == (WriteOutcome.WRITTEN, 0)

    def _call(self, number: int, generation: int) -> PredictionRow:
        is_challenger = number % 10 == 0
        is_gold = number // 10 % GOLD == 0
        version = self.versions["7" if is_challenger else "6"]
        moment = self.store.now + 60 * number / CALLS
        latency_us = 4_000 + 37 * number * 101 % 7_000 if number % 19 else 30_000
        return a_row()._replace(
            prediction_id=a_prediction_id(int(moment * 1_000)),
            predicted_at=moment,
            model_version_id=version,
            assigned_version_id=version,
            entity_id=f"user-{number}-{self.store.now:.0f}",
            latency_us=latency_us * (5 if is_challenger and is_gold else 2) // 2,
            role=Role.CHALLENGER if is_challenger else Role.CHAMPION,
            policy_generation=generation,
            rollout_id=self.id,
            slices=b'{"category":"gold"}' if is_gold else b'{"category":"basic"}',
        )


class RoutedCategory(SlowCategory):
    """A rollout beside which the category ``gold`` routes to the challenger, but for the entities that are held out."""

    def _call(self, number: int, generation: int) -> PredictionRow:
        row = super()._call(number, generation)
        if row.slices != b'{"category":"gold"}':
            return row
        is_held_out = number % 3 == 0
        version = self.versions["6" if is_held_out else "7"]
        return row._replace(
            model_version_id=version,
            assigned_version_id=version,
            role=Role.CHAMPION if is_held_out else Role.CHALLENGER,
            reason=Reason.CATEGORY,
            latency_us=(10_000 if is_held_out else 50_000) + number % 977,
        )


@pytest.fixture
async def category(database: asyncpg.Connection, database_url: str) -> AsyncIterator[SlowCategory]:
    world = SlowCategory(database, database_url, replace(TWINS, has_histograms=False), seconds_ago=4_000)
    world.shipped = PostgresPredictionStore(database_url, timeout_seconds=5.0)
    yield world
    await world.shipped.close()


async def begun(world: SlowCategory, plan: RolloutPlan = PLAN) -> SlowCategory:
    await world.begin(plan)
    await world.minutes(1)
    return world


async def test_a_category_that_is_slower_holds_the_step_is_named_and_told_once(
    category: SlowCategory, database: asyncpg.Connection, understudy: CommandLine
):
    world = await begun(category)
    waits = await world.minutes(40)
    shown = await understudy.beside("rollout", "show", "churn")
    as_json = (await understudy.beside("rollout", "show", "churn", "--json")).json
    state = waits.record.state

    assert (state.phase, state.waiting_for) == (Phase.WAITING, WaitingFor.TIME)
    assert re.match(rf"stops at 10 %: category=gold: {SLOWER} ", state.reason)
    assert state.reason.endswith("no check takes the version back: an operator decides")
    assert shown.out.count("for example prediction") == 3
    assert re.search(f"slice category=gold: {SLOWER}", " ".join(shown.out.split()))
    assert [one["value"] for one in as_json["events"][-1]["slices"]] == ["gold"]
    again = [found for _, found in judged_again(await world.store.events(world.id)) if isinstance(found, Replay)]
    assert [found.agrees for found in again] == [True] * len(again)
    assert len(again[-1].decision.slices) == 1
    told = await database.fetch("SELECT dedup_key, action FROM AlertOutbox WHERE action <> 'change'")
    assert [(row[0].rpartition("/")[2], row[1]) for row in told] == [("rollout_stalled", "trigger")]
    slow = await database.fetchval("SELECT count(*) FROM PredictionLog WHERE slices ->> 'category' = 'gold'")
    assert slow > 20


async def test_a_category_that_is_routed_is_compared_with_the_entities_that_are_held_out(
    database: asyncpg.Connection, database_url: str, understudy: CommandLine
):
    world = RoutedCategory(database, database_url, replace(TWINS, has_histograms=False), seconds_ago=4_000)
    world.shipped = PostgresPredictionStore(database_url, timeout_seconds=5.0)
    waits = await (await begun(world)).minutes(40)
    await world.shipped.close()
    shown = await understudy.beside("rollout", "show", "churn", "--slices")
    again = [found for _, found in judged_again(await world.store.events(world.id)) if isinstance(found, Replay)]

    state = waits.record.state
    assert (state.phase, state.waiting_for) == (Phase.WAITING, WaitingFor.TIME)
    assert re.match(rf"stops at 10 %: category route=gold: {SLOWER} ", state.reason)
    assert shown.out.count("for example prediction") == 3
    assert "category route=gold" in shown.out.partition("slices, champion → challenger:")[2]
    assert [found.agrees for found in again] == [True] * len(again)


async def test_an_operator_who_knows_of_it_is_not_told_again_by_this_monitor_nor_by_the_next(
    category: SlowCategory, database: asyncpg.Connection, understudy: CommandLine
):
    world = await begun(category)
    await world.minutes(40)
    resumed = await understudy.beside("rollout", "resume", "churn", "--reason", "gold is batch work", "--yes")

    same_monitor = await world.minutes(3)
    world.starts_anew()
    next_monitor = await world.minutes(3)

    assert resumed.code == 0
    assert same_monitor.record.state.phase is Phase.PROGRESSING
    assert next_monitor.record.state.phase is Phase.PROGRESSING
    assert await database.fetchval("SELECT count(*) FROM AlertOutbox WHERE action = 'trigger'") == 1


@pytest.mark.parametrize(("mode", "phase"), [("rollback", Phase.FAILED), ("off", Phase.PROGRESSING)])
async def test_a_plan_says_what_a_slice_leads_to(category: SlowCategory, mode: str, phase: Phase):
    world = await begun(category, replace(PLAN, canary_limits={"detectable_ratio": 3, "slices": mode}))

    seen = await world.minutes(25)

    assert seen.record.state.phase is phase


async def test_a_guard_waits_as_well_and_doctor_says_why(category: SlowCategory, database_url: str):
    await category.begin_by_hand("challenger_version = {}, challenger_weight = 10")
    await category.minutes(1)

    waits = await category.minutes(40)
    (guard,) = await examine_guards(database_url)

    assert waits.record.state.kind is Kind.GUARD
    assert waits.record.state.phase is Phase.WAITING
    assert guard.failure is not None
    assert re.search(f"category=gold: {SLOWER}", guard.failure)
