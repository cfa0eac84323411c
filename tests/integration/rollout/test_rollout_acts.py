"""Acts of people on rollouts in Postgres: those that changed no policy, each once."""

from typing import Any

import asyncpg
import pytest
from worlds.rollout import two_versions

from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Command, CommandKind, Observation, WarmUpResult
from understudy.core.rollout.state_machine import next_step
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import MONITOR, NewRollout, NewRolloutEvent, RolloutActFilter
from understudy.rollout.commands import run_command


@pytest.fixture
async def store(database: asyncpg.Connection, database_url: str) -> PostgresRolloutStore:
    """With a rollout that a person started, paused, resumed, moved a step and paused again."""
    await two_versions(database)
    store = PostgresRolloutStore(database_url, timeout_seconds=5)
    new = NewRollout("churn", "7", NAMED_PLANS["default"], "fresh", 12_000)
    record = await store.start(new, Actor("dana", "cli", "weekly retrain"))
    view = await store.view(record.id)
    passed = Observation(now=view.read_at, policy=view.policy, warm_up=WarmUpResult(passed=True))
    assert await store.apply(view, next_step(view.record.state, passed), NewRolloutEvent(MONITOR))
    for kind, actor in (
        (CommandKind.PAUSE, "ana"),
        (CommandKind.RESUME, "dana"),
        (CommandKind.PROMOTE, "dana"),
        (CommandKind.PAUSE, "dana"),
    ):
        assert (await run_command(store, "churn", record.id, Command(kind, actor, "so"))).changed
    return store


async def reasons(store: PostgresRolloutStore, *asked: Any) -> list[str]:
    return [act.reason for act in await store.acts(*asked)]


async def test_acts_are_what_people_did_and_no_change_of_the_policy_has(store, database):
    changes = [row["reason"] for row in await database.fetch("SELECT reason FROM PolicyAudit ORDER BY id DESC")]

    found = await reasons(store, "churn", 10)

    assert found == ["paused by dana: so", "goes on by dana: so", "paused by ana: so"]
    assert any("promoted by dana: so" in str(reason) for reason in changes)
    assert "weekly retrain" in changes
    assert await store.acts("fraud", 10) == []


async def test_acts_are_read_by_who_since_when_and_page_by_page(store, database):
    newest, *_ = await store.acts("churn", 10)
    later = await database.fetchval("SELECT now() + INTERVAL '1 minute'")

    assert await reasons(store, "churn", 1) == [newest.reason]
    assert await reasons(store, "churn", 1, RolloutActFilter(before_id=newest.id)) == ["goes on by dana: so"]
    assert await reasons(store, "churn", 10, RolloutActFilter(actor="ana")) == ["paused by ana: so"]
    assert await reasons(store, "churn", 10, RolloutActFilter(since=newest.at)) == [newest.reason]
    assert await reasons(store, "churn", 10, RolloutActFilter(since=later)) == []
