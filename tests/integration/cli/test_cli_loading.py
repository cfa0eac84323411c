"""``version load``, ``version unload``, ``version show`` and ``server list``, with what agents have recorded."""

import asyncio
import json
import time

import asyncpg
import pytest
from command import CommandLine, Done

from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.served_name import served_name
from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

SCHEMA = {"features": [{"name": "age", "dtype": "float32"}]}


@pytest.fixture(autouse=True)
async def _registered(database_url: str) -> None:
    new = NewVersion("visits", "1", "visits/1", "onnx", SCHEMA, group_name="onnx")
    await register_version(PostgresRegistry(database_url), new, Actor("dana", "cli"))


async def record(database: asyncpg.Connection, state: str, code: str | None = None, error: str | None = None) -> None:
    """Record what an agent would."""
    await database.execute(
        "INSERT INTO ModelServer (name, group_name, target, build) VALUES ('onnx-0', 'onnx', 'a:1', 'understudy 1')"
        " ON CONFLICT DO NOTHING"
    )
    await database.execute(
        "INSERT INTO Placement (model_version_id, server, why, epoch) SELECT id, 'onnx-0', 'asked for', 1"
        " FROM ModelVersion ON CONFLICT DO NOTHING"
    )
    await database.execute(
        "INSERT INTO LoadedVersion (model_version_id, server, state, error_code, error, attempt, epoch, updated_at)"
        " SELECT id, 'onnx-0', $1, $2, $3, 5, 1, clock_timestamp() FROM ModelVersion"
        " ON CONFLICT (model_version_id, server) DO UPDATE SET state = $1, error_code = $2, error = $3,"
        " updated_at = clock_timestamp()",
        state,
        code,
        error,
    )


async def loading_with_wait(understudy: CommandLine, database: asyncpg.Connection) -> "asyncio.Task[Done]":
    """Begin ``version load --wait``, and return once it has asked."""
    before = await database.fetchval("SELECT asked_at FROM VersionLoading")
    running = asyncio.create_task(understudy.beside("version", "load", "visits", "1", "--wait", "--json"))
    give_up = time.monotonic() + 60
    while (await database.fetchval("SELECT asked_at FROM VersionLoading")) == before:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.02)
    return running


async def test_a_version_is_registered_under_the_name_that_it_has_on_its_servers(database):
    named = await database.fetchval("SELECT backend ->> 'model_name' FROM ModelVersion")

    assert named == served_name("visits", "1")


async def test_a_load_that_waits_ends_once_every_server_has_the_version(understudy: CommandLine, database):
    await record(database, "LOADING")
    running = await loading_with_wait(understudy, database)

    await record(database, "AVAILABLE")
    done = await running

    assert done.code == 0, done
    assert [server["state"] for server in done.document["loading"]["servers"]] == ["AVAILABLE"]


async def test_a_load_that_waits_ends_with_1_once_a_server_gives_up(understudy: CommandLine, database):
    await record(database, "LOADING")
    running = await loading_with_wait(understudy, database)

    await record(database, "ERROR", "E217", "the model server says: no model")
    done = await running

    assert done.code == 1, done
    assert done.document["loading"]["servers"][0]["error_code"] == "E217"


async def test_a_load_does_not_take_the_word_of_a_server_that_does_not_answer(understudy: CommandLine, database):
    await record(database, "AVAILABLE")
    await database.execute("UPDATE ModelServer SET problem = 'E215 nothing listens there'")

    waited = await understudy.beside("version", "load", "visits", "1", "--wait", "--timeout", "1s")
    loaded = await understudy.beside("version", "load", "visits", "1")

    assert waited.code == 1
    assert "was not loaded within 1 s on the servers of onnx; onnx-0: control refused (E215)" in waited.said
    assert "was AVAILABLE: control refused (E215)" in loaded.said


async def test_a_load_that_waited_in_vain_says_what_each_server_is_at(understudy: CommandLine, database):
    await record(database, "ERROR", "E214", "it needs 90 MiB, and 20 MiB are left")
    await database.execute("UPDATE LoadedVersion SET next_attempt_at = now() + INTERVAL '1 hour'")
    running = asyncio.create_task(understudy.beside("version", "load", "visits", "1", "--wait", "--timeout", "2s"))
    done = await running

    assert done.code == 1
    assert "onnx-0: E214 it needs 90 MiB, and 20 MiB are left" in done.said
    assert done.said.count("waiting: onnx-0: E214 it needs 90 MiB") == 1


async def test_a_digest_that_no_agent_could_compare_is_refused(database_url):
    new = NewVersion("visits", "2", "visits/2", "onnx", SCHEMA, group_name="onnx", artifact_digest="abc")

    with pytest.raises(PolicyRefused, match="artifact_digest is 'abc', not sha256: and 64 hex digits"):
        await register_version(PostgresRegistry(database_url), new, Actor("dana", "cli"))


async def test_people_see_where_a_version_is_and_what_each_server_has(understudy: CommandLine, database):
    before = await understudy.beside("server", "list")
    nowhere = await understudy.beside("version", "show", "visits", "1")
    await record(database, "ERROR", "E212", "another artifact")
    shown = await understudy.beside("version", "show", "visits", "1")
    listed = await understudy.beside("server", "list")

    assert "No agent has reported: understudy serve agent runs one." in before.said
    assert "No server of onnx has been given it yet." in nowhere.said
    assert "onnx-0: E212 another artifact (attempt 5)" in shown.said
    assert "onnx-0" in listed.said


async def test_a_version_is_not_shown_as_available_at_a_server_that_does_not_answer_its_agent(
    understudy: CommandLine, database
):
    await record(database, "AVAILABLE")
    fine = await understudy.beside("version", "show", "visits", "1")
    await database.execute("UPDATE ModelServer SET problem = 'E215 the model server''s control at a:2: refused'")
    shown = await understudy.beside("version", "show", "visits", "1")
    listed = await understudy.beside("server", "list")

    assert "was AVAILABLE" not in fine.said
    assert "was AVAILABLE: control refused (E215)" in shown.said
    assert "did not answer its agent" in shown.said
    assert "was 1" in listed.said
    assert "control refused (E215)" in listed.said


async def test_a_version_is_kept_for_a_time_or_for_good_and_unloaded(understudy: CommandLine, database):
    kept = await understudy.beside("version", "load", "visits", "1", "--keep", "--json")
    tried = await understudy.beside("version", "unload", "visits", "1", "--dry-run", "--json")
    still = await understudy.beside("version", "show", "visits", "1", "--json")
    unloaded = await understudy.beside("version", "unload", "visits", "1")
    after = await understudy.beside("version", "show", "visits", "1", "--json")
    wrong = await understudy.beside("version", "load", "visits", "1", "--for", "soon")

    assert kept.document["loading"]["is_kept"]
    assert (tried.code, still.document["loading"]["is_kept"]) == (0, True)
    assert "visits 1 is wanted no more on the servers of onnx." in unloaded.said
    assert after.document["loading"]["wanted_until"] is None
    assert not after.document["loading"]["is_kept"]
    assert wrong.code == 2


async def test_a_version_that_no_server_has_is_made_champion_by_no_command_and_it_is_said_how(
    understudy: CommandLine, database
):
    await record(database, "ERROR", "E217", "the model server says: no model")
    change = ("model", "set", "visits", "--champion", "1", "--reason", "the first", "--yes")
    refused = await understudy.beside(*change)
    await database.execute("SELECT understudy_add_agent_endpoint((SELECT id FROM ModelVersion), 'onnx-0')")
    done = await understudy.beside(*change)

    assert refused.code == 7, refused
    assert "version 1 of visits is loaded on no server (onnx-0: ERROR E217), and cannot be champion" in refused.said
    assert "understudy version load visits 1 --wait" in refused.said
    assert done.code == 0, done


async def test_what_is_not_loaded_is_said_by_doctor_by_the_model_and_to_who_asks_about_an_entity(
    understudy: CommandLine, database
):
    await record(database, "FETCHING")
    await database.execute("SELECT understudy_add_agent_endpoint((SELECT id FROM ModelVersion), 'onnx-0')")
    await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "the first", "--yes")
    said = "wanted as champion, and 1 of 1 servers of onnx does not have it: onnx-0: FETCHING"

    doctor = await understudy.beside("doctor", "--json")
    shown = await understudy.beside("model", "show", "visits", "--json")
    explained = await understudy.beside("explain", "visits", "customer-42")
    await record(database, "AVAILABLE")
    after = await understudy.beside("model", "show", "visits", "--json")
    await database.execute("UPDATE ModelServer SET seen_at = now() - INTERVAL '5 minutes'")
    silent = await understudy.beside("doctor", "--json")

    findings = {finding["name"]: finding for finding in doctor.document["findings"]}
    assert (findings["visits 1 loading"]["what"], findings["visits 1 loading"]["state"]) == (said, "warning")
    assert shown.document["model"]["not_loaded"][0]["without"] == ["onnx-0: FETCHING"]
    assert said in " ".join(explained.said.split())
    assert after.document["model"]["not_loaded"] == []
    findings = {finding["name"]: finding for finding in silent.document["findings"]}
    assert findings["server onnx-0"]["what"].startswith("its agent has been silent for 5 m")
    assert findings["visits 1 loading"]["state"] == "warning"  # proxies call it all the same
    assert findings["visits 1 loading"]["what"].endswith("no agent reports a server of its group onnx")


async def test_no_rollout_begins_for_a_version_that_no_server_has(understudy: CommandLine, database, database_url):
    await record(database, "AVAILABLE")
    await database.execute("SELECT understudy_add_agent_endpoint((SELECT id FROM ModelVersion), 'onnx-0')")
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) SELECT 'visits', id FROM ModelVersion"
    )
    new = NewVersion("visits", "2", "visits/2", "onnx", SCHEMA, group_name="onnx")
    await register_version(PostgresRegistry(database_url), new, Actor("dana", "cli"))
    challenger = await database.fetchval("SELECT max(id) FROM ModelVersion")

    refused = await understudy.beside("rollout", "start", "visits", "2", "--reason", "better", "--yes")
    with pytest.raises(asyncpg.CheckViolationError, match="version 2 of visits is loaded on no server"):
        await database.execute("UPDATE ServingPolicy SET challenger_version = $1", challenger)

    assert refused.code != 0, refused
    assert await database.fetchval("SELECT count(*) FROM Rollout") == 0


async def test_a_group_without_a_server_is_said_at_once_with_those_there_are(
    understudy: CommandLine, database, tmp_path
):
    described = {"artifact_path": "visits/2", "framework": "onnx", "input_schema": SCHEMA}
    (tmp_path / "version.json").write_text(json.dumps(described))
    await record(database, "AVAILABLE")
    register = ("version", "register", "visits", "2", "--from", str(tmp_path / "version.json"), "--group", "onxn")

    tried = await understudy.beside(*register, "--dry-run")
    made = await understudy.beside(*register)
    waiting = await understudy.beside("version", "load", "visits", "2", "--wait", "--timeout", "1s")
    asked = await understudy.beside("version", "load", "visits", "2")
    checked = await understudy.beside("version", "check", "visits", "2")

    words = "no server of the group 'onxn' is known; there are: onnx"
    assert (tried.code, made.code, asked.code) == (0, 0, 0), (tried, made, asked)
    assert [words in done.said for done in (tried, made, asked, waiting, checked)] == [True] * 5
    assert ["group onxn" in done.said for done in (tried, made)] == [True, True]
    assert waiting.code == 1
    assert "understudy version load visits 2 --group onnx --wait" in waiting.said
    assert "add-endpoint" not in checked.said


async def test_a_version_that_agents_are_to_load_has_no_server_of_its_own_and_check_says_what_they_did(
    understudy: CommandLine, database
):
    await record(database, "ERROR", "E217", "the model server says: no model")

    checked = await understudy.beside("version", "check", "visits", "1")

    assert checked.code == 1
    said = "no server of the group 'onnx' has loaded the version; onnx-0: E217 the model server says: no model"
    assert said in checked.said
    assert "understudy version load visits 1 --wait" in checked.said


async def test_a_version_is_printed_as_the_file_that_registers_the_next_one(
    understudy: CommandLine, database, tmp_path
):
    shown = await understudy.beside("version", "show", "visits", "1", "--describe")
    (tmp_path / "next.json").write_text(shown.out)
    arguments = ("--from", str(tmp_path / "next.json"), "--artifact", "visits/2", "--group", "onnx")
    made = await understudy.beside("version", "register", "visits", "2", *arguments)
    misspelt = json.loads(shown.out)
    misspelt["frmework"] = misspelt.pop("framework")
    (tmp_path / "next.json").write_text(json.dumps(misspelt))
    refused = await understudy.beside("version", "register", "visits", "3", *arguments)
    like = await understudy.beside("version", "register", "visits", "3", "--like", "2", "--artifact", "a")

    assert (shown.code, made.code, refused.code, like.code) == (0, 0, 2, 2), (shown, made)
    assert {"artifact_path", "framework", "input_schema"} <= json.loads(shown.out).keys()
    names = await database.fetch("SELECT backend ->> 'model_name' FROM ModelVersion ORDER BY id")
    assert [row[0] for row in names] == [served_name("visits", "1"), served_name("visits", "2")]
    assert "frmework is no field of a version: did you mean framework?" in refused.said
    assert "--like takes the schemas of a version" in like.said


async def test_the_first_agent_of_all_may_be_on_its_way_and_is_waited_for_as_long_as_is_said(understudy: CommandLine):
    waited = await understudy.beside("version", "load", "visits", "1", "--wait", "--timeout", "1s")
    wrong = await understudy.beside("version", "load", "visits", "1", "--wait", "--timeout", "soon")

    assert waited.code == 1
    assert "visits 1 was not loaded within 1 s on the servers of onnx" in waited.said
    assert wrong.code == 2


async def test_a_version_is_registered_and_loaded_for_some_servers_of_its_group_and_for_all_again(
    understudy: CommandLine, database
):
    some = await understudy.beside("version", "load", "visits", "1", "--replicas", "1..4", "--json")
    said = await understudy.beside("version", "load", "visits", "1")
    wrong = await understudy.beside("version", "load", "visits", "1", "--replicas", "many")
    every = await understudy.beside("version", "load", "visits", "1", "--replicas", "all")
    without_group = await understudy.beside(
        "version", "register", "visits", "2", "--replicas", "2", "--from-server", "--endpoint", "a:1"
    )

    assert some.document["loading"]["replicas"] == "1..4"
    assert "visits 1 is wanted on 1..4 servers of onnx for 2h." in said.said
    assert "visits 1 is wanted on the servers of onnx for 2h." in every.said
    assert wrong.code == without_group.code == 2
    assert "--replicas: 'many' is no number of servers: say 2, 1..4, or all; from 1 to 64" in wrong.said
    assert "--replicas asks for what agents do, and no agent loads the version" in " ".join(without_group.said.split())
