"""Guards in Postgres: the statement that makes a split opens its guard, and the one that ends the split ends it."""

from typing import Any

import asyncpg
import orjson
import pytest
from worlds.rollout import two_versions

from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.plan_reader import read_plan
from understudy.core.rollout.state import Command, CommandKind, GuardMode, Kind, Observation, Phase, WarmUpResult
from understudy.core.rollout.state_machine import next_step
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, NewRolloutEvent
from understudy.rollout.commands import apply_command

ACTOR = Actor("dana", "cli", "a first look")
BAD = Decision(Verdict.ROLL_BACK, "error rate 3.1x")
SPLIT = "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10 WHERE model_name = 'churn'"


@pytest.fixture
async def store(database: asyncpg.Connection, database_url: str) -> PostgresRolloutStore:
    versions = await two_versions(database)
    await database.execute(SPLIT, versions["7"])
    return PostgresRolloutStore(database_url, timeout_seconds=5)


async def change(database: asyncpg.Connection, assignments: str) -> None:
    await database.execute(f"UPDATE ServingPolicy SET {assignments} WHERE model_name = 'churn'")


async def guards_of(database: asyncpg.Connection) -> list[dict[str, Any]]:
    rows = await database.fetch("SELECT * FROM Rollout WHERE kind = 'guard' ORDER BY id")
    return [dict(row) | {"state": orjson.loads(row["state"])} for row in rows]


async def rollout_id_of(database: asyncpg.Connection) -> int | None:
    found: int | None = await database.fetchval("SELECT rollout_id FROM ServingPolicy WHERE model_name = 'churn'")
    return found


async def step(store: PostgresRolloutStore, rollout_id: int, **seen: Any) -> bool:
    view = await store.view(rollout_id)
    observation = Observation(now=view.read_at, policy=view.policy, guard=view.guard, **seen)
    return await store.apply(view, next_step(view.record.state, observation), NewRolloutEvent("monitor"))


async def test_a_weight_set_by_sql_opens_a_guard_with_the_statement_whose_windows_have_its_id(database, store):
    (guard,) = await guards_of(database)
    view = await store.view(guard["id"])

    assert (guard["phase"], await rollout_id_of(database)) == ("PROGRESSING", guard["id"])
    assert view.record.state.kind is Kind.GUARD
    assert view.policy == view.record.state.policy
    assert view.weights_percent == {view.policy.generation: 10}
    assert view.guard is GuardMode.ROLLBACK
    assert await store.open_ids() == [guard["id"]]
    assert await database.fetchval("SELECT count(*) FROM PolicyAudit WHERE action = 'update'") == 1


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ("challenger_weight = 0", "weight 0"),
        ("challenger_version = NULL, challenger_weight = 0", "there is no challenger any more"),
        ("guard = 'off'", "guard is off"),
    ],
)
async def test_the_statement_that_ends_the_split_ends_its_guard(database, store, assignments, why):
    await change(database, assignments)

    (guard,) = await guards_of(database)
    assert (guard["phase"], guard["announced_at"]) == ("SUCCEEDED", None)
    assert why in guard["state"]["reason"]
    assert await rollout_id_of(database) is None


async def test_the_release_before_does_not_look_at_an_open_guard_and_can_read_its_row(database, store):
    looked_at = "SELECT id FROM Rollout WHERE announced_at IS NULL"
    known = (
        "rollout_id model_name champion challenger policy started_at limit_from phase step_starts waiting_for reason"
    )

    (guard,) = await guards_of(database)

    assert await database.fetch(looked_at) == []
    assert guard["state"].keys() == {*known.split(), "promoted_at", "split_from"}
    assert read_plan(orjson.loads(guard["plan"])).steps[0].weight_percent == 10


async def test_a_guard_ends_with_its_policy(database, store):
    await database.execute("DELETE FROM ServingPolicy")

    (guard,) = await guards_of(database)
    assert "no policy" in guard["state"]["reason"]


async def test_another_share_is_judged_by_the_same_guard_and_another_salt_by_the_next_one(database, store):
    await change(database, "challenger_weight = 25")
    (same,) = await guards_of(database)
    await step(store, same["id"])
    await step(store, same["id"])
    view = await store.view(same["id"])

    await change(database, "salt = 'autumn'")

    first, second = await guards_of(database)
    assert view.record.state.phase is Phase.PROGRESSING
    assert view.record.state.weight_percent == 25
    assert sorted(view.weights_percent.values()) == [10, 25]
    assert (first["phase"], second["phase"]) == ("SUCCEEDED", "PROGRESSING")
    assert "another salt" in first["state"]["reason"]
    assert await rollout_id_of(database) == second["id"]


async def test_a_policy_that_is_made_with_a_share_has_a_guard_however_it_is_made(database, store):
    await database.execute("DELETE FROM ServingPolicy")
    made = """
        INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight)
        SELECT 'churn', min(id), max(id), $1::int FROM ModelVersion
        ON CONFLICT (model_name) DO UPDATE SET challenger_weight = excluded.challenger_weight
    """

    await database.execute(made, 5)
    await database.execute(made, 7)

    _, guard = await guards_of(database)
    assert guard["phase"] == "PROGRESSING"
    assert await rollout_id_of(database) == guard["id"]


async def test_without_a_share_and_with_the_guard_off_there_is_none(database, database_url):
    versions = await two_versions(database)

    await change(database, f"challenger_version = {versions['7']}")
    await change(database, "guard = 'off', challenger_weight = 10")

    assert await guards_of(database) == []
    await change(database, "guard = 'alert'")
    assert [guard["phase"] for guard in await guards_of(database)] == ["PROGRESSING"]


async def test_a_rollout_that_starts_takes_the_split_over_in_its_transaction(database, store):
    record = await store.start(NewRollout("churn", "7", NAMED_PLANS["default"], "fresh", None), ACTOR)

    (guard,) = await guards_of(database)
    assert guard["phase"] == "SUCCEEDED"
    assert f"rollout {record.id} takes over" in guard["state"]["reason"]
    assert await rollout_id_of(database) == record.id


async def test_a_rollout_that_ends_and_leaves_a_share_leaves_a_guard(database, store):
    record = await store.start(NewRollout("churn", "7", NAMED_PLANS["default"], "fresh", None), ACTOR)
    third = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('churn', '8', 'file:///m', 'sklearn', '{}') RETURNING id"
    )
    await change(database, f"challenger_version = {third}, challenger_weight = 20")

    await apply_command(store, record.id, Command(CommandKind.ABORT, "dana"))

    guard = (await guards_of(database))[-1]
    assert (guard["phase"], guard["challenger_version"]) == ("PROGRESSING", third)


async def test_a_failing_share_is_taken_back_in_one_change_of_the_policy_by_the_monitor(database, store):
    (guard,) = await guards_of(database)
    await step(store, guard["id"])

    assert await step(store, guard["id"], decision=BAD)

    policy = await database.fetchrow("SELECT challenger_weight, rollout_id, updated_by FROM ServingPolicy")
    audit = await database.fetchrow("SELECT actor, reason FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    (failed,) = await guards_of(database)
    events = [event.phase for event in await store.events(guard["id"])]
    assert tuple(policy) == (0, None, "monitor")
    assert audit["actor"] == "monitor"
    assert "rolled back at 10 %: error rate 3.1x" in audit["reason"]
    assert failed["phase"] == "FAILED"
    assert events == ["PROGRESSING", "PROGRESSING", "FAILED"]


async def test_a_guard_that_alerts_stays_failed_until_the_share_is_taken_back(database, store):
    await change(database, "guard = 'alert'")
    (guard,) = await guards_of(database)
    await step(store, guard["id"])
    await step(store, guard["id"], decision=BAD)
    waiting = await store.view(guard["id"])

    await change(database, "challenger_weight = 0")

    (ended,) = await guards_of(database)
    assert waiting.record.state.has_failed_guard
    assert waiting.policy is not None
    assert waiting.policy.weight_percent == 10
    assert ended["phase"] == "FAILED"
    assert "error rate 3.1x; over: weight 0" in ended["state"]["reason"]


async def test_a_declared_test_keeps_its_guard_from_taking_it_back(database, store):
    (guard,) = await guards_of(database)
    await database.execute(
        "INSERT INTO Experiment (model_name, name, champion_version, challenger_version, metric)"
        " SELECT 'churn', 'spring', min(id), max(id), 'converted' FROM ModelVersion"
    )

    during = await store.view(guard["id"])
    await database.execute("UPDATE Experiment SET ended_at = now()")
    after = await store.view(guard["id"])

    assert (during.guard, after.guard) == (GuardMode.ALERT, GuardMode.ROLLBACK)


async def test_an_old_guard_is_followed_by_another_one_in_one_transaction(database, store):
    (guard,) = await guards_of(database)
    await step(store, guard["id"])

    assert await step(store, guard["id"], guard_seconds=0.0)

    first, second = await guards_of(database)
    assert (first["phase"], second["phase"]) == ("SUCCEEDED", "PROGRESSING")
    assert await rollout_id_of(database) == second["id"]


async def test_a_session_that_holds_the_guard_does_not_keep_the_weight_from_going_to_zero(
    database, store, database_url
):
    (guard,) = await guards_of(database)
    await step(store, guard["id"])
    holder = await asyncpg.connect(database_url)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("SELECT FROM Rollout FOR UPDATE")

    await database.execute("SET statement_timeout = '3s'")
    await change(database, "challenger_weight = 0")
    await transaction.rollback()
    await holder.close()
    await step(store, guard["id"])

    (ended,) = await guards_of(database)
    assert ended["phase"] == "SUCCEEDED"
    assert "the split is there no more" in ended["state"]["reason"]


async def test_further_arms_end_the_guard_and_are_not_refused(database, store):
    third = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('churn', '8', 'file:///m', 'sklearn', '{}') RETURNING id"
    )

    await change(database, f"""arms = '[{{"version_id": {third}, "first": 90, "last": 99}}]'""")

    (guard,) = await guards_of(database)
    assert "further arms" in guard["state"]["reason"]
    assert await rollout_id_of(database) is None


async def test_a_split_from_before_there_were_guards_gets_one_from_the_monitor_once(database, store):
    (guard,) = await guards_of(database)
    await change(database, "guard = 'off'")
    await database.execute("ALTER TABLE ServingPolicy DISABLE TRIGGER USER")
    await change(database, "guard = 'alert'")
    await database.execute("ALTER TABLE ServingPolicy ENABLE TRIGGER USER")

    assert await store.watch_splits() == ["churn"]
    assert await store.watch_splits() == []

    first, second = await guards_of(database)
    assert (first["id"], second["phase"]) == (guard["id"], "PROGRESSING")
    assert await rollout_id_of(database) == second["id"]
    assert (await store.view(second["id"])).guard is GuardMode.ALERT


async def test_what_is_no_guard_is_refused_in_words(database, store):
    with pytest.raises(asyncpg.CheckViolationError, match="guard of churn is rollback, alert or off, not maybe"):
        await change(database, "guard = 'maybe'")


async def test_the_registry_sets_and_shows_the_guard(database_url, store):
    registry = PostgresRegistry(database_url)

    changed = await registry.set_policy("churn", {"guard": "alert"}, ACTOR)
    await registry.close()

    assert changed.before is not None
    assert (changed.before.guard, changed.after.guard) == ("rollback", "alert")


# -- another champion --------------------------------------------------------------------------------------------------


CHAMPION = "champion_version = (SELECT id FROM ModelVersion WHERE version = '7')"
BACK = "champion_version = (SELECT id FROM ModelVersion WHERE version = '6')"


@pytest.fixture
async def blue_green(database: asyncpg.Connection, database_url: str) -> PostgresRolloutStore:
    await two_versions(database)
    await change(database, CHAMPION)
    return PostgresRolloutStore(database_url, timeout_seconds=5)


async def status_of(database: asyncpg.Connection, version: str) -> str:
    status: str = await database.fetchval("SELECT status FROM ModelVersion WHERE version = $1", version)
    return status


async def test_another_champion_by_sql_is_watched_beside_the_one_before_which_cannot_be_retired(database, blue_green):
    (guard,) = await guards_of(database)
    await step(blue_green, guard["id"])
    view = await blue_green.view(guard["id"])

    assert (guard["phase"], await rollout_id_of(database)) == ("PROMOTING", guard["id"])
    assert (view.record.state.champion, view.record.state.challenger) == ("6", "7")
    assert view.record.state.promoted_at == view.record.state.step_started_at == view.record.state.started_at
    with pytest.raises(asyncpg.CheckViolationError, match="kept warm by rollout"):
        await database.execute("UPDATE ModelVersion SET status = 'retired' WHERE version = '6'")


async def test_a_champion_by_sql_that_does_worse_is_replaced_by_the_one_before_and_no_guard_watches_that(
    database, blue_green
):
    (guard,) = await guards_of(database)
    await step(blue_green, guard["id"])

    assert await step(blue_green, guard["id"], decision_after_promotion=BAD)

    (failed,) = await guards_of(database)
    policy = await database.fetchrow(
        "SELECT version, rollout_id, updated_by FROM ServingPolicy JOIN ModelVersion ON id = champion_version"
    )
    assert tuple(policy) == ("6", None, "monitor")
    assert failed["phase"] == "FAILED"


async def test_a_champion_by_sql_that_only_alerts_stays_and_the_one_before_is_not_retired(database, blue_green):
    await change(database, "guard = 'alert'")
    (guard,) = await guards_of(database)
    await step(blue_green, guard["id"])
    await step(blue_green, guard["id"], decision_after_promotion=BAD)
    waiting = await blue_green.view(guard["id"])

    view = await blue_green.view(guard["id"])
    late = Observation(view.read_at + 1_801, view.policy, proxies=1, proxies_on_generation=1, guard=view.guard)
    await blue_green.apply(view, next_step(view.record.state, late), NewRolloutEvent("monitor"))

    assert waiting.record.state.has_failed_guard
    assert waiting.policy is not None
    assert waiting.policy.champion == "7"
    assert await status_of(database, "6") == "staging"
    assert [one["phase"] for one in await guards_of(database)] == ["FAILED"]


async def test_the_champion_before_is_retired_when_its_time_is_over(database, blue_green):
    (guard,) = await guards_of(database)
    await step(blue_green, guard["id"])
    view = await blue_green.view(guard["id"])
    late = Observation(view.read_at + 1_801, view.policy, proxies=1, proxies_on_generation=1)

    await blue_green.apply(view, next_step(view.record.state, late), NewRolloutEvent("monitor"))

    (over,) = await guards_of(database)
    assert (over["phase"], await status_of(database, "6")) == ("SUCCEEDED", "retired")
    assert await rollout_id_of(database) is None


@pytest.mark.parametrize(
    "way",
    [f"UPDATE ServingPolicy SET {BACK}", "SELECT understudy_rollback('churn', 'it burns')"],
    ids=["sql", "rollback"],
)
async def test_whoever_goes_back_by_hand_ends_the_guard_and_is_not_watched(database, blue_green, way):
    await database.execute(way)

    (over,) = await guards_of(database)
    assert over["phase"] == "SUCCEEDED"
    assert "the champion before is back" in over["state"]["reason"]
    assert await rollout_id_of(database) is None


async def test_a_share_beside_a_new_champion_is_watched_from_then_on(database, blue_green):
    await change(
        database, "challenger_weight = 5, challenger_version = (SELECT id FROM ModelVersion WHERE version = '6')"
    )

    first, second = await guards_of(database)
    assert (first["phase"], second["phase"]) == ("SUCCEEDED", "PROGRESSING")
    assert "a challenger has a share" in first["state"]["reason"]


async def test_a_promotion_by_a_rollout_and_its_rollback_open_no_guard(database, store):
    await change(database, "challenger_version = NULL, challenger_weight = 0")
    record = await store.start(NewRollout("churn", "7", NAMED_PLANS["blue_green"], "fresh", None), ACTOR)
    await step(store, record.id, warm_up=WarmUpResult(passed=True))
    await step(store, record.id, decision_after_promotion=BAD)

    assert [guard["phase"] for guard in await guards_of(database)] == ["SUCCEEDED"]
    assert await rollout_id_of(database) is None
