"""Versions are retired and brought back from the command line, and shown with their tensors."""

import asyncio
import re
from collections.abc import Callable

import asyncpg
import pytest
from command import CommandLine
from e2e.stack import register, sql


@pytest.fixture(autouse=True)
async def _registered(database_url: str, model_port: Callable[[str], int]) -> None:
    """Model ``visits``: champion 1, version 2, which answers, an arm 3, a shadow 4, and 5 without a role."""
    ids = {label: await register(database_url, label, [model_port("visits:2")]) for label in (1, 2, 3, 4)}
    await register(database_url, 2, [9005], version="5")
    await sql(
        database_url,
        "INSERT INTO ServingPolicy (model_name, champion_version, shadow_version, arms) VALUES ('visits', $1, $2, "
        "jsonb_build_array(jsonb_build_object('version_id', $3::BIGINT, 'first', 91, 'last', 99)))",
        ids[1],
        ids[4],
        ids[3],
    )


async def status_of(database: asyncpg.Connection, version: str) -> str:
    found: str = await database.fetchval("SELECT status FROM ModelVersion WHERE version = $1", version)
    return found


async def test_a_version_is_retired_shown_with_who_and_why_and_brought_back(understudy: CommandLine, database):
    tried = await understudy.beside("version", "retire", "visits", "5", "--dry-run", "--json")
    before = await status_of(database, "5")
    done = await understudy.beside("version", "retire", "visits", "5", "--reason", "replaced by 6")
    retired = await status_of(database, "5")
    shown = await understudy.beside("version", "show", "visits", "5")
    again = await understudy.beside("version", "retire", "visits", "5", "--json")
    back = await understudy.beside("version", "restore", "visits", "5", "--json")
    twice = await understudy.beside("version", "restore", "visits", "5")

    assert (tried.code, before, retired, await status_of(database, "5")) == (0, "staging", "retired", "staging")
    assert (tried.document["changed"], tried.document["dry_run"]) == (False, True)
    assert tried.document["version"]["status"] == "retired"
    assert "✔ visits 5 is retired" in done.said
    assert "→ to undo it: understudy version restore visits 5" in done.said
    assert re.search(r"retired \d+ s ago \(\d+ \w+ \d\d:\d\d UTC\) by \S+: replaced by 6", shown.said), shown.out
    assert (again.code, again.document["changed"], again.document["version"]["status"]) == (0, False, "retired")
    assert (back.document["changed"], back.document["version"]["status"]) == (True, "staging")
    assert (twice.code, "nothing changed: visits 5 is staging, not retired" in twice.said) == (0, True)


async def test_a_version_that_is_retired_already_keeps_who_retired_it(understudy: CommandLine):
    await understudy.beside("version", "retire", "visits", "5", "--reason", "first")

    again = await understudy.beside("version", "retire", "visits", "5", "--reason", "second")
    shown = await understudy.beside("version", "show", "visits", "5", "--json")

    assert (again.code, "nothing changed: visits 5 is retired already" in again.said) == (0, True)
    assert shown.document["version"]["metrics"]["status_changed"]["reason"] == "first"


@pytest.mark.parametrize(
    ("version", "why", "then"),
    [
        ("1", "is the champion and cannot be retired", "model set visits --champion VERSION --reason"),
        ("3", "is an arm and cannot be retired", "model set visits --arm 3=0 --reason"),
        ("4", "is the shadow and cannot be retired", "model set visits --shadow none --reason"),
    ],
)
async def test_a_version_with_a_role_is_not_retired_and_the_command_that_takes_it_is_named(
    understudy: CommandLine, database, version, why, then
):
    for more in ((), ("--dry-run",)):
        refused = await understudy.beside("version", "retire", "visits", version, "--reason", "try", *more)

        assert (refused.code, refused.err.startswith("✖ E203 The database refused the change")) == (7, True)
        assert f"version {version} of visits {why}" in refused.said
        assert f"→ understudy {then}" in refused.said
        assert "UPDATE" not in refused.said
    assert await status_of(database, version) != "retired"


async def test_a_version_with_a_part_in_an_open_rollout_is_not_retired_even_when_its_role_was_taken_away(
    understudy: CommandLine, database
):
    await understudy.beside("model", "set", "visits", "--arm", "none", "--reason", "make room", "--yes")
    begun = await understudy.beside("rollout", "start", "visits", "2", "--reason", "try", "--yes")
    rollout_id = await database.fetchval("SELECT rollout_id FROM ServingPolicy")
    await database.execute("UPDATE ServingPolicy SET challenger_version = NULL, challenger_weight = 0")

    refused = await understudy.beside("version", "retire", "visits", "2")
    as_json = await understudy.beside("version", "retire", "visits", "2", "--json")
    ended = await understudy.beside("rollout", "abort", "visits", "--reason", "as it said", "--yes")
    done = await understudy.beside("version", "retire", "visits", "2")

    assert (begun.code, refused.code, ended.code) == (0, 7, 0), (begun, refused, ended)
    assert f"version 2 of visits has a part in rollout {rollout_id}, which is not over, and cannot be" in refused.said
    assert "understudy rollout abort visits --reason '…' ends it" in refused.said
    assert '"code":"E203"' in as_json.err
    assert done.code == 0, done.err


async def test_who_asks_for_a_version_that_there_is_not_is_told_those_there_are(understudy: CommandLine):
    for verb in ("retire", "restore"):
        unknown = await understudy.beside("version", verb, "visits", "77")

        assert (unknown.code, "visits has no version '77'; it has: 1, 2, 3, 4, 5" in unknown.said) == (4, True)


async def test_a_retired_version_that_is_to_have_a_role_is_brought_back_by_the_command_that_is_named(
    understudy: CommandLine,
):
    await understudy.beside("version", "retire", "visits", "5")
    policy = ("model", "set", "visits", "--challenger", "5", "--reason", "try", "--yes")

    refused = await understudy.beside(*policy)
    await understudy.beside("version", "restore", "visits", "5")
    done = await understudy.beside(*policy)

    assert (refused.code, "→ understudy version restore visits 5 brings it back first" in refused.said) == (7, True)
    assert done.code == 0, done.err


async def test_a_version_does_not_become_retired_and_challenger_at_once(understudy: CommandLine, database):
    await asyncio.gather(
        understudy.beside("version", "retire", "visits", "5"),
        database.execute(
            "UPDATE ServingPolicy SET challenger_version = (SELECT id FROM ModelVersion WHERE version = '5')"
        ),
        return_exceptions=True,
    )

    challenger = await database.fetchval(
        "SELECT v.status FROM ServingPolicy JOIN ModelVersion v ON v.id = challenger_version"
    )
    assert (challenger, await status_of(database, "5")) in ((None, "retired"), ("challenger", "challenger"))


async def test_a_version_is_shown_with_its_tensors(understudy: CommandLine):
    shown = await understudy.beside("version", "show", "visits", "1")
    document = (await understudy.beside("version", "show", "visits", "1", "--json")).document["version"]

    assert shown.code == 0, shown.err
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "FP32" in shown.said
    tensors = document["input_schema"].get("tensors", document["input_schema"]["features"])
    for tensor in tensors:
        assert f"input {tensor['name']}" in shown.said
    assert document["output_schema"].get("tensor", "the first one") in shown.said


async def test_a_champion_before_that_was_retired_comes_back_once_it_was_restored(understudy: CommandLine):
    change = ("--reason", "try", "--yes")
    await understudy.beside("model", "set", "visits", "--arm", "none", "--guard", "off", *change)
    await understudy.beside("model", "set", "visits", "--champion", "2", *change)
    retired = await understudy.beside("version", "retire", "visits", "1")

    before = await understudy.beside("rollback", "visits", *change)
    await understudy.beside("version", "restore", "visits", "1")
    after = await understudy.beside("rollback", "visits", *change)

    assert (retired.code, before.code) == (0, 1)
    assert "version 1, the champion before, is retired" in before.said
    assert "previous champion back committed" in after.said


async def test_the_base_model_of_a_registered_version_is_shown_and_chooses_the_plan_of_its_rollout(
    understudy: CommandLine, database, tmp_path
):
    await database.execute("""UPDATE ModelVersion SET metrics = '{"base_model": "trees-v2"}' WHERE version = '1'""")
    described = await database.fetchval(
        "SELECT jsonb_build_object('artifact_path', artifact_path, 'framework', framework, 'input_schema',"
        " input_schema, 'base_model', 'replaced by the option')::TEXT FROM ModelVersion WHERE version = '1'"
    )
    file = tmp_path / "version.json"
    file.write_text(described)
    add = ("version", "register", "visits", "9", "--from", str(file))

    empty = await understudy.beside(*add, "--base-model", "")
    made = await understudy.beside(*add, "--base-model", "trees-v2", "--family", "forests")
    shown = await understudy.beside("version", "show", "visits", "9")
    planned = await understudy.beside("plan", "visits", "9", "--json")
    await database.execute("UPDATE ModelVersion SET base_model = 'nets-v1' WHERE version = '1'")
    other = await understudy.beside("plan", "visits", "9", "--json")

    assert (empty.code, "expected 1 to 255 characters, got 0" in empty.said) == (2, True)
    assert made.code == 0
    assert re.search(r"base model +trees-v2, family forests", shown.out), shown.out
    assert planned.document["plan"]["risk"] == "medium"
    assert planned.document["plan"]["risk_reason"] == "both versions have the base model trees-v2"
    assert planned.document["plan"]["plan"]["steps"][0]["weight_percent"] == 10
    assert other.document["plan"]["risk"] == "critical"
