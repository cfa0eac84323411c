"""What plain SQL may do to a rollout's row: nothing that the monitor, or whoever looks at it, could not read."""

from typing import Any

import asyncpg
import orjson
import pytest
from worlds.rollout import insert_rollout, two_versions

from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Command, CommandKind
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout
from understudy.rollout.commands import apply_command

ACTOR = Actor("dana", "cli")
STEPS = """'{"steps": [{"weight_percent": 2, "dwell_seconds": 0, "min_requests": 0}]}'"""


@pytest.fixture
async def versions(database: asyncpg.Connection) -> dict[str, int]:
    return await two_versions(database)


@pytest.fixture
async def store(database_url: str) -> PostgresRolloutStore:
    return PostgresRolloutStore(database_url, timeout_seconds=10)


@pytest.fixture
async def open_id(versions: dict[str, int], store: PostgresRolloutStore) -> int:
    return (await store.start(NewRollout("churn", "7", NAMED_PLANS["default"], "fresh", 12_000), ACTOR)).id


async def rows_of(database: asyncpg.Connection) -> list[Any]:
    return [tuple(row) for row in await database.fetch("SELECT * FROM Rollout ORDER BY id")]


DAMAGE = {
    "an empty state": ("UPDATE Rollout SET state = '{}'", "nobody could read its state: rollout_id is missing"),
    "a state that is a list": ("UPDATE Rollout SET state = '[]'", "it is no object"),
    "no state": ("UPDATE Rollout SET state = NULL", "it is no object"),
    "a key taken out": ("UPDATE Rollout SET state = state - 'step_starts'", "step_starts is missing"),
    "a key of another type": (
        """UPDATE Rollout SET state = state || '{"started_at": "noon"}'""",
        'started_at is of another type: "noon"',
    ),
    "a key that nobody knows": ("""UPDATE Rollout SET state = state || '{"colour": 1}'""", "colour is not known"),
    "a policy without its generation": (
        "UPDATE Rollout SET state = state #- '{policy,generation}'",
        "policy/generation is missing",
    ),
    "a key of the policy that nobody knows": (
        "UPDATE Rollout SET state = jsonb_set(state, '{policy,colour}', '1')",
        "policy/colour is not known",
    ),
    "a wait for something unknown": (
        """UPDATE Rollout SET state = state || '{"waiting_for": "rain"}'""",
        "waiting_for is not known",
    ),
    "times that are none": ("""UPDATE Rollout SET state = state || '{"step_starts": ["x"]}'""", "are no times"),
    "more steps than the plan has": (
        """UPDATE Rollout SET step = 7, state = state || '{"step_starts": [1, 2, 3, 4, 5, 6, 7, 8]}'""",
        "it has been in more steps than the plan has",
    ),
    "another step": ("UPDATE Rollout SET step = 3", "and the row at 3"),
    "the state of another rollout": (
        """UPDATE Rollout SET state = state || '{"rollout_id": 99}'""",
        "rollout_id is another one's",
    ),
    "another phase by its column": ("UPDATE Rollout SET phase = 'FAILED'", "its phase is PROGRESSING"),
    "another phase in its state": (
        """UPDATE Rollout SET state = state || '{"phase": "WAITING"}'""",
        "and that of the row PROGRESSING",
    ),
    "an end without one": ("UPDATE Rollout SET finished_at = now()", "finished_at does not fit its phase"),
    "hidden from the monitor": ("UPDATE Rollout SET announced_at = now()", "and it is open"),
    "another plan": ("UPDATE Rollout SET plan = '{}'", "its plan does not change any more"),
    "another model": ("UPDATE Rollout SET model_name = 'fraud'", "its model_name does not change any more"),
    "other versions": ("UPDATE Rollout SET champion_version = 99", "its champion_version does not change any more"),
    "deleted while open": ("DELETE FROM Rollout", "rollout 1 of churn is open and cannot be deleted"),
    "emptied": ("TRUNCATE Rollout CASCADE", "TRUNCATE would empty rollout"),
    "a second one without a plan": (
        "INSERT INTO Rollout (model_name, champion_version, challenger_version, plan) VALUES ('fraud', 1, 2, '{}')",
        "its plan has no steps",
    ),
    "a second one without a state": (
        f"INSERT INTO Rollout (model_name, champion_version, challenger_version, plan) VALUES ('fraud', 1, 2, {STEPS})",
        "nobody could read its state: rollout_id is missing",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
async def test_damage_is_refused_with_a_hint_and_changes_nothing(database, open_id, kind):
    statement, message = DAMAGE[kind]
    before = await rows_of(database)

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(statement)

    assert message in refused.value.message
    assert refused.value.detail == "E203"
    assert refused.value.hint
    assert await rows_of(database) == before


async def test_the_hint_names_what_ends_a_rollout(database, open_id):
    with pytest.raises(asyncpg.CheckViolationError) as of_damage:
        await database.execute("UPDATE Rollout SET state = '{}'")
    with pytest.raises(asyncpg.CheckViolationError) as of_deletion:
        await database.execute("DELETE FROM Rollout")

    assert "understudy rollout abort churn" in (of_damage.value.hint or "")
    assert "SELECT understudy_rollback('churn')" in (of_damage.value.hint or "")
    assert of_deletion.value.hint == "End it first: understudy rollout abort churn"


async def test_what_the_product_writes_passes_and_a_finished_rollout_may_go(database, store, open_id):
    for kind in (CommandKind.PAUSE, CommandKind.RESUME, CommandKind.ABORT):
        await apply_command(store, open_id, Command(kind, "kim"))

    row = await database.fetchrow("SELECT phase, finished_at FROM Rollout")
    await database.execute("DELETE FROM Rollout")

    assert (row["phase"], row["finished_at"] is None) == ("FAILED", False)
    assert await rows_of(database) == []


async def test_a_rollout_that_starts_and_is_not_stored_whole_does_not_start(database, store, versions):
    async def begin_and_leave() -> None:
        async with database.transaction():
            await database.execute(
                "INSERT INTO Rollout (model_name, champion_version, challenger_version, plan)"
                f" VALUES ('churn', $1, $2, {STEPS})",
                versions["6"],
                versions["7"],
            )

    with pytest.raises(asyncpg.CheckViolationError, match="rollout_id is missing"):
        await begin_and_leave()

    assert await rows_of(database) == []
    assert (await store.start(NewRollout("churn", "7", NAMED_PLANS["fast"], None, None), ACTOR)).state.step == 0


async def test_a_row_that_was_damaged_before_may_be_deleted_and_repaired(database, store, versions, open_id):
    good = await database.fetchval("SELECT state FROM Rollout")
    await database.execute("ALTER TABLE Rollout DISABLE TRIGGER rollout_guard")
    await database.execute("UPDATE Rollout SET state = '{}'")
    await database.execute("ALTER TABLE Rollout ENABLE TRIGGER rollout_guard")

    await database.execute("UPDATE Rollout SET state = $1", good)
    repaired = (await store.view(open_id)).record.state.challenger
    await database.execute("ALTER TABLE Rollout DISABLE TRIGGER rollout_guard")
    await database.execute("UPDATE Rollout SET state = '{}'")
    await database.execute("ALTER TABLE Rollout ENABLE TRIGGER rollout_guard")
    await database.execute("DELETE FROM Rollout")

    assert repaired == "7"
    assert await rows_of(database) == []


async def test_a_row_by_hand_that_can_be_read_is_accepted(database, store, versions):
    rollout_id = await insert_rollout(database, "churn", versions["6"], versions["7"])

    assert orjson.loads(await database.fetchval("SELECT state FROM Rollout"))["rollout_id"] == rollout_id
    assert (await store.view(rollout_id)).record.state.champion == "6"
