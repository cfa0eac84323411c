"""``understudy apply`` and ``diff``: policies from files, beside people and SQL that change the same ones."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from command import CommandLine, Done
from worlds.rollout import two_versions

from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Observation
from understudy.core.rollout.state_machine import next_step
from understudy.core.routing.policy_file import Place, PolicyFile
from understudy.errors import GenerationMoved
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout, NewRolloutEvent
from understudy.registry.policy_files import apply_file, compare

CHURN = """\
model: churn
challenger: 7
challenger_weight: 10
guard: alert
"""
BAD = Decision(Verdict.ROLL_BACK, "error rate 3.1x")
Login = Callable[..., Awaitable[str]]


@pytest.fixture
async def world(database: asyncpg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> asyncpg.Connection:
    """A folder with a file of churn's policy, and a database with two versions of it."""
    (tmp_path / "policy").mkdir()
    monkeypatch.chdir(tmp_path)
    write("churn", CHURN)
    await two_versions(database)
    return database


def write(name: str, text: str) -> None:
    Path("policy", f"{name}.yaml").write_text(text, encoding="utf-8")


async def apply(understudy: CommandLine, *options: str) -> Done:
    why = () if "--reason" in options else ("--reason", "a test")
    return await understudy.beside("apply", "-f", "policy", "--yes", *why, *options)


async def diff(understudy: CommandLine, *options: str) -> Done:
    return await understudy.beside("diff", "-f", "policy", *options)


async def everything(database: asyncpg.Connection) -> list[Any]:
    """Return all that an apply may write."""
    tables = ("ServingPolicy", "PolicyFile", "PolicyAudit", "PolicyChange", "Rollout")
    return [await database.fetch(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


async def add_model(database: asyncpg.Connection, name: str) -> None:
    """Register a model with one version like those of churn; it has no policy."""
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " SELECT $1, '1', artifact_path, framework, input_schema FROM ModelVersion WHERE version = '6'",
        name,
    )
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target)"
        " SELECT id, '127.0.0.1:9000' FROM ModelVersion WHERE model_name = $1",
        name,
    )


async def test_applying_twice_changes_nothing(understudy: CommandLine, world):
    different = await diff(understudy)
    first = await apply(understudy, "--reason", "a first look", "--json")
    after_first = await everything(world)
    second = await apply(understudy, "--json")
    equal = await diff(understudy)

    assert different.code == 1
    assert [one["changed"] for one in first.document["apply"]] == [True]
    assert [one["changed"] for one in second.document["apply"]] == [False]
    assert await everything(world) == after_first
    assert equal.code == 0
    newest = await world.fetchrow("SELECT via, reason FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert tuple(newest) == ("apply", "policy/churn.yaml: a first look")


async def test_a_dry_run_says_the_same_and_writes_nothing(understudy: CommandLine, world):
    before = await everything(world)

    done = await apply(understudy, "--dry-run")

    assert done.code == 0
    assert "challenger_weight 0 10" in done.said
    assert "nothing was changed" in done.said
    assert await everything(world) == before


async def test_what_sql_contradicts_is_named_with_its_file_and_not_undone(understudy: CommandLine, world):
    await apply(understudy)
    await world.execute("UPDATE ServingPolicy SET challenger_weight = 25")
    beside = await everything(world)

    shown = await understudy.beside("model", "show", "churn")
    different = await diff(understudy)
    refused = await apply(understudy)

    said = "challenger_weight was 10 when policy/churn.yaml was applied, and is 25 now"
    actor = await world.fetchval("SELECT actor FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert "applied from policy/churn.yaml by " in shown.said
    assert all(f"{said}: {actor} via sql at 2" in done.said for done in (shown, different, refused))
    assert (different.code, refused.code) == (1, 5)
    assert "E224" in refused.err
    assert "policy/churn.yaml:3:20: " in refused.err
    assert await everything(world) == beside
    overwritten = await apply(understudy, "--overwrite")
    assert overwritten.code == 0
    assert await world.fetchval("SELECT challenger_weight FROM ServingPolicy") == 10


async def test_what_the_monitor_took_is_not_given_back_by_a_file_that_was_never_applied(
    understudy: CommandLine, world, database_url
):
    await world.execute(
        "UPDATE ServingPolicy SET challenger_weight = 50,"
        " challenger_version = (SELECT id FROM ModelVersion WHERE version = '7')"
    )
    store = PostgresRolloutStore(database_url, timeout_seconds=5)
    (guard,) = await store.open_ids()
    for decision in (None, BAD):
        view = await store.view(guard)
        seen = Observation(now=view.read_at, policy=view.policy, guard=view.guard, decision=decision)
        await store.apply(view, next_step(view.record.state, seen), NewRolloutEvent("monitor"))
    write("churn", "model: churn\nguard: alert\n")
    await apply(understudy)
    beside = await everything(world)
    write("churn", CHURN)

    different = await diff(understudy)
    refused = await apply(understudy)

    assert (different.code, refused.code) == (1, 5), refused.said
    assert "policy/churn.yaml:3:20: challenger_weight is 0: the monitor set it so at 2" in refused.err
    assert all(": version 7 rolled back at 50 %: error rate 3.1x" in done.said for done in (different, refused))
    assert await everything(world) == beside
    assert (await apply(understudy, "--overwrite")).code == 0
    write("churn", CHURN.replace("10", "5"))
    assert (await apply(understudy)).code == 0


async def test_a_file_that_takes_over_what_sql_changed_is_applied(understudy: CommandLine, world):
    await apply(understudy)
    await world.execute("UPDATE ServingPolicy SET challenger_weight = 25, shadow_percent = 50")
    write("churn", CHURN.replace("10", "25"))

    done = await apply(understudy)
    shown = await understudy.beside("model", "show", "churn", "--json")

    assert done.code == 0
    applied = shown.document["model"]["applied"]
    assert (applied["fields"]["challenger_weight"], applied["contradictions"]) == (25, [])


async def test_doctor_warns_of_a_policy_that_is_not_as_its_file_says(understudy: CommandLine, world):
    await apply(understudy)
    await world.execute("UPDATE ServingPolicy SET guard = 'off'")

    done = await understudy.beside("doctor", "--json")

    (found,) = [one for one in done.document["findings"] if one["name"] == "churn policy file"]
    assert found["state"] == "warning"
    assert "policy/churn.yaml" in found["what"]
    assert "guard alert in the file, off now" in found["what"]


async def test_a_policy_that_changes_meanwhile_is_refused_and_not_overwritten(
    understudy: CommandLine, world, database_url
):
    registry = PostgresRegistry(database_url)
    place = Place(2, 1)
    file = PolicyFile("churn.yaml", "churn", place, {"shadow_percent": 7}, {"shadow_percent": place})
    (seen,) = await compare(registry, PostgresRolloutStore(database_url, timeout_seconds=5), [file])
    await world.execute("UPDATE ServingPolicy SET shadow_percent = 50")

    with pytest.raises(GenerationMoved):
        await apply_file(registry, seen, Actor("ci", "apply"))
    stale = await apply(understudy, "--expect-generation", "churn=1")

    elsewhere = await apply(understudy, "--expect-generation", "chrun=1")
    too_long = await apply(understudy, "--expect-generation", f"churn={'9' * 5_000}")

    assert (stale.code, elsewhere.code, too_long.code) == (5, 2, 2)
    assert "no file is of the model 'chrun'" in elsewhere.said
    assert await world.fetchval("SELECT shadow_percent FROM ServingPolicy") == 50
    assert await world.fetchval("SELECT count(*) FROM PolicyFile") == 0


async def test_everything_is_checked_before_the_first_change(understudy: CommandLine, world):
    await add_model(world, "able")
    write("able", "model: able\nchampion: 1\n")
    before = await everything(world)

    write("churn", CHURN.replace("challenger: 7", "challenger: 9"))
    unknown = await apply(understudy, "--json")
    write("churn", "model: churn\nchallenger_weight: 5\nsalt: x\n")
    by_database = await apply(understudy)
    write("churn", "model: chrun\nguard: off\n")
    no_model = await apply(understudy)

    assert [done.code for done in (unknown, by_database, no_model)] == [2, 2, 2]
    (problem,) = json.loads(unknown.err)["error"]["problems"]
    assert (problem["path"], problem["line"], problem["column"]) == ("policy/churn.yaml", 2, 13)
    assert "policy/churn.yaml:2:20: churn has no challenger" in " ".join(by_database.err.split())
    assert "policy/churn.yaml:1:8: no model 'chrun' is registered" in " ".join(no_model.err.split())
    assert await everything(world) == before


async def test_a_first_policy_is_made_and_one_that_is_so_already_gets_its_file(understudy: CommandLine, world):
    await add_model(world, "able")
    write("able", "model: able\nchampion: 1\n")
    write("churn", "model: churn\nchampion: 6\n")

    done = await apply(understudy)

    assert done.code == 0
    assert "churn is known to be from policy/churn.yaml, 1 field" in done.said
    assert "→ understudy model show able says when every proxy acts on it" in done.said
    files = await world.fetch("SELECT model_name, path FROM PolicyFile ORDER BY model_name")
    assert [tuple(row) for row in files] == [("able", "policy/able.yaml"), ("churn", "policy/churn.yaml")]
    assert await world.fetchval("SELECT generation FROM ServingPolicy WHERE model_name = 'churn'") == 1


async def test_arms_are_those_of_the_file(understudy: CommandLine, world):
    await world.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " SELECT model_name, '8', artifact_path, framework, input_schema FROM ModelVersion WHERE version = '7'"
    )
    await world.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target)"
        " SELECT id, '127.0.0.1:9000' FROM ModelVersion WHERE version = '8'"
    )
    write("churn", "model: churn\narms: {7: 10, 8: 5}\n")
    await apply(understudy)
    write("churn", "model: churn\narms: {8: 6}\n")

    done = await apply(understudy, "--json")
    write("churn", "model: churn\narms: {8: 6}\nguard: alert\n")
    beside_same_arms = await apply(understudy)

    assert done.document["apply"][0]["differences"] == {"arms": [{"7": 10, "8": 5}, {"8": 6}]}
    split = await world.fetch("SELECT version, sum(last - first + 1)::int FROM understudy_arms GROUP BY 1")
    assert [tuple(row) for row in split] == [("8", 6)]
    assert beside_same_arms.code == 0, beside_same_arms.said
    assert await world.fetchval("SELECT guard FROM ServingPolicy") == "alert"


async def test_the_split_of_an_open_rollout_is_left_to_it(understudy: CommandLine, world, database_url):
    new = NewRollout("churn", "7", NAMED_PLANS["default"], "spring", None)
    rollout = await PostgresRolloutStore(database_url, timeout_seconds=5).start(new, Actor("dana", "cli"))
    before = await everything(world)

    refused = await apply(understudy)

    assert refused.code == 5
    assert f"policy/churn.yaml:3:20: rollout {rollout.id} of churn is open" in refused.said
    assert await everything(world) == before


async def test_a_move_of_traffic_is_asked_for(understudy: CommandLine, world):
    before = await everything(world)

    done = await understudy.beside("apply", "-f", "policy", "--reason", "a test")

    assert done.code == 2
    assert "churn: challenger - → 7, challenger_weight 0 → 10" in done.said
    assert await everything(world) == before


async def test_a_change_without_a_terminal_needs_a_reason_and_a_file_that_holds_already_needs_none(
    understudy: CommandLine, world
):
    before = await everything(world)

    refused = await understudy.beside("apply", "-f", "policy", "--yes")
    unchanged = await everything(world)
    tried = await understudy.beside("apply", "policy", "--yes", "--dry-run")
    await apply(understudy)
    again = await understudy.beside("apply", "-f", "policy", "--yes")

    assert (refused.code, tried.code, again.code) == (2, 0, 0), (refused, tried, again)
    assert "this change needs a reason" in refused.said
    assert unchanged == before


async def test_a_schema_among_the_policies_is_named_as_one_and_a_document_may_name_its_schema(
    understudy: CommandLine, world
):
    schema = (await understudy.beside("apply", "--print-schema")).out
    write("schema", schema)
    refused = await diff(understudy)
    write("churn", f'"$schema": ../policy.schema.json\n{CHURN}')
    named = await understudy.beside("diff", "policy/churn.yaml")

    assert refused.code == 2
    assert "1 problem in 1 file policy/schema.yaml:1:1: this is a JSON Schema and no policy" in refused.said
    assert named.code == 1, named


@pytest.fixture
async def login(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Login]:
    """Makes a login that has these roles and nothing else, and returns its URL."""
    made = []

    async def make(*roles: str) -> str:
        made.append(f"test_{uuid4().hex[:12]}")
        await database.execute(f"CREATE ROLE {made[-1]} LOGIN PASSWORD 'secret' IN ROLE {', '.join(roles)}")
        return f"postgresql://{made[-1]}:secret@{database_url.rpartition('@')[2]}"

    yield make
    for name in made:
        await database.execute(f"DROP ROLE {name}")


async def test_an_engineers_login_applies_and_a_readers_compares(world, login):
    engineer, reader = await login("understudy_engineer"), await login("understudy_reader")

    applied = await apply(CommandLine(engineer))
    equal = await diff(CommandLine(reader))
    write("churn", CHURN.replace("10", "11"))
    refused = await apply(CommandLine(reader))

    assert (applied.code, equal.code, refused.code) == (0, 0, 7), refused.said
    assert await world.fetchval("SELECT applied_by FROM PolicyFile") == engineer.split("/")[2].split(":")[0]
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await execute(engineer, "UPDATE PolicyFile SET applied_by = 'ada'")


async def execute(url: str, statement: str) -> None:
    session = await asyncpg.connect(url)
    try:
        await session.execute(statement)
    finally:
        await session.close()


async def test_a_policy_that_is_deleted_takes_the_row_of_its_file_along(database):
    version = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('gone', '1', 'file:///m', 'sklearn', '{}') RETURNING id"
    )
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('gone', $1)", version)
    add = "INSERT INTO PolicyFile (model_name, path, document) VALUES ($1, 'policy/gone.yaml', '{}')"
    await database.execute(add, "gone")

    await database.execute("DELETE FROM ServingPolicy WHERE model_name = 'gone'")

    assert await database.fetchval("SELECT count(*) FROM PolicyFile WHERE model_name = 'gone'") == 0
    with pytest.raises(asyncpg.CheckViolationError, match="gone has no policy"):
        await database.execute(add, "gone")
