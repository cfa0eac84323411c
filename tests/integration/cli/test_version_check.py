"""``understudy version check``, against real Postgres and model servers of which some are not well."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from command import CommandLine
from contract.servers import Behaviour, running
from e2e.stack import register, sql

from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = pytest.mark.timed  # the check waits for a server for two seconds
WIDE = orjson.dumps({"features": [{"name": "x", "dtype": "float32", "shape": [3]}]}).decode()


def schema_with(feature: dict[str, Any]) -> str:
    """Return the example's ``input_schema`` and one more input, each a tensor of its own."""
    features = example_version("visits", 2).input_schema["features"]
    return orjson.dumps({"features": [*features, feature]}).decode()


@pytest.fixture
async def served(database_url: str, model_port: Callable[[str], int]) -> dict[str, int]:
    """Model ``visits``: champion 1, and version 2 with two model servers, of which one is dead; returns the ports."""
    ports = {"1": model_port("visits:1"), "2": model_port("visits:2"), "dead": free_port()}
    champion = await register(database_url, 1, [ports["1"]])
    await register(database_url, 2, [ports["2"], ports["dead"]])
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)
    return ports


async def test_a_version_of_which_one_server_answers_is_ready_and_the_dead_one_is_named(
    served, understudy: CommandLine
):
    done = await understudy.beside("version", "check", "visits", "2", "--json")
    text = await understudy.beside("version", "check", "visits", "2")

    found = done.document
    assert (done.code, text.code) == (0, 0)
    assert (found["ready"], found["against"], found["problems"], found["warnings"]) == (True, "1", 0, 1)
    problems = {server["endpoint"]: server["problem"] for server in found["servers"]}
    assert problems == {f"127.0.0.1:{served['2']}": "", f"127.0.0.1:{served['dead']}": "nothing listens there"}
    assert all(server["seconds"] > 0 for server in found["servers"])
    assert found["warm_up"] == {"passed": True, "detail": "5 example calls answered"}
    assert found["input_differences"] == {"breaking": [], "possible": []}
    assert text.out.startswith("✔ visits 2 is ready for callers. 0 problems, 1 warning.\n")
    assert f"! server 127.0.0.1:{served['dead']}: nothing listens there" in text.said
    assert "✔ inputs every call that fits 1 fits 2 too" in text.said
    assert "→ understudy rollout start visits 2" in text.said


async def test_a_version_that_no_server_answers_for_is_not_ready(served, database_url, understudy: CommandLine):
    await register(database_url, 3, [served["dead"]])
    await register(database_url, 4, [])

    dead = await understudy.beside("version", "check", "visits", "3", "--json")
    none = await understudy.beside("version", "check", "visits", "4")

    assert (dead.code, dead.document["problems"], dead.document["warm_up"]) == (1, 1, None)
    assert none.code == 1
    assert none.out.startswith("✖ visits 4 is not ready for callers. 1 problem, 1 warning.\n")
    assert "understudy version add-endpoint visits 4 HOST:PORT" in none.said
    assert "rollout start" not in none.said


async def test_a_server_that_does_not_serve_the_version_says_so(served, database_url, understudy: CommandLine):
    async with running(Behaviour(ready=False)) as (unready,):
        await register(database_url, 3, [unready.port])
        done = await understudy.beside("version", "check", "visits", "3", "--json")

    (server,) = done.document["servers"]
    assert (done.code, server["problem"]) == (1, "it says that it does not serve the version")


async def test_a_server_that_says_it_serves_the_version_and_refuses_its_calls_is_found(
    served, database_url, understudy: CommandLine
):
    await register(
        database_url, 3, [served["2"]], input_schema=schema_with({"name": "basket", "dtype": "float32", "default": 0})
    )

    done = await understudy.beside("version", "check", "visits", "3", "--json")

    assert (done.code, done.document["servers"][0]["problem"]) == (1, "")
    assert not done.document["warm_up"]["passed"]
    (problem,) = (finding for finding in done.document["findings"] if finding["state"] == "problem")
    assert (problem["name"], problem["what"]) == ("warm-up", done.document["warm_up"]["detail"])


async def test_inputs_that_differ_are_a_problem_for_callers_of_the_champion_and_none_for_those_of_a_like_version(
    served, database_url, understudy: CommandLine
):
    async with running(Behaviour()) as (server,):
        for label in (3, 4):
            schemas = {"input_schema": WIDE, "output_schema": '{"tensor": "p"}'}
            await register(database_url, label, [server.port], backend=f'{{"version": "{label}"}}', **schemas)
        champions = await understudy.beside("version", "check", "visits", "4", "--json")
        likes = await understudy.beside("version", "check", "visits", "4", "--against", "3", "--json")

    assert (champions.code, champions.document["problems"]) == (1, 1)
    assert "x: new and required, and version 1 refuses calls that have it" in " ".join(
        champions.document["input_differences"]["breaking"]
    )
    assert (likes.code, likes.document["against"], likes.document["ready"]) == (0, "3", True)


async def test_before_there_is_a_champion_and_of_the_champion_itself_no_inputs_are_compared(
    served, database_url, understudy: CommandLine
):
    await register(database_url, 1, [served["dead"]], model_name="digits")

    first = await understudy.beside("version", "check", "digits", "1")
    champion = await understudy.beside("version", "check", "visits", "1")

    assert "the model has no champion yet" in first.said
    assert champion.code == 0
    assert champion.out.startswith("✔ visits 1 is ready for callers. All is well.\n")
    assert "it is the champion itself" in champion.said


async def test_a_row_that_nobody_can_use_and_a_token_that_is_not_there_are_findings(
    served, database_url, understudy: CommandLine
):
    await register(database_url, 3, [served["2"]], input_schema='{"features": [{"name": "x", "dtype": "decimal"}]}')
    await register(database_url, 4, [served["2"]], backend='{"token_env": "UNDERSTUDY_BACKEND_TOKEN_CHURN"}')

    unusable = await understudy.beside("version", "check", "visits", "3")
    secret = await understudy.beside("version", "check", "visits", "4")
    beside_unusable = await understudy.beside("version", "check", "visits", "2", "--against", "3")

    assert (unusable.code, secret.code, beside_unusable.code) == (1, 1, 0)
    assert "✖ schema input_schema.features[0] (x).dtype" in unusable.said
    assert "UNDERSTUDY_BACKEND_TOKEN_CHURN" in secret.said
    assert "! inputs version 3, which it would be compared with" in beside_unusable.said


async def test_what_is_not_registered_is_not_found(served, understudy: CommandLine):
    for arguments in (["visits", "9"], ["nobody", "1"], ["visits", "2", "--against", "9"]):
        done = await understudy.beside("version", "check", *arguments)

        assert (done.code, "→" in done.err) == (4, True), done
    itself = await understudy.beside("version", "check", "visits", "2", "--against", "2")
    assert (itself.code, "version 2 of visits is compared with itself" in itself.said) == (2, True)


async def test_its_output_is_its_finding_alone_whatever_its_parts_log(served, database_url, understudy: CommandLine):
    await register(database_url, 4, [])
    await sql(
        database_url,
        "INSERT INTO ModelEndpoint (model_version_id, target)"
        " SELECT id, 'nowhere.invalid:8001' FROM ModelVersion WHERE model_name = 'visits' AND version = '4'",
    )

    done = await understudy.beside("version", "check", "visits", "4", "--json")

    assert (done.code, len(done.out.splitlines())) == (1, 1)


async def test_a_retired_version_gets_no_role_however_well_it_answers(served, database_url, understudy: CommandLine):
    retired = await register(database_url, 3, [served["2"]])
    await sql(database_url, "UPDATE ModelVersion SET status = 'retired' WHERE id = $1", retired)

    done = await understudy.beside("version", "check", "visits", "3", "--json")

    (problem,) = (finding for finding in done.document["findings"] if finding["state"] == "problem")
    assert (done.code, problem["name"]) == (1, "status")


async def test_a_first_champion_that_nothing_serves_is_warned_of_and_mended_by_the_commands_that_are_named(
    served, database_url, understudy: CommandLine
):
    await register(database_url, 3, [served["dead"]])
    dead, alive = f"127.0.0.1:{served['dead']}", f"127.0.0.1:{served['2']}"
    version = ("visits", "3")

    warned = await understudy.beside("model", "set", "visits", "--champion", "3", "--reason", "try", "--yes")
    last = await understudy.beside("version", "remove-endpoint", *version, dead)
    checked = await understudy.beside("version", "check", *version)
    added = await understudy.beside("version", "add-endpoint", *version, alive)
    removed = await understudy.beside("version", "remove-endpoint", *version, dead)
    back = await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "back", "--yes")

    assert warned.code == 0
    assert f"! 3 answers no call from here: {dead}: nothing listens there" in warned.said
    assert "understudy version add-endpoint visits 3 HOST:PORT" in warned.said
    assert (last.code, "is the last endpoint of version 3 of visits, which is the champion" in last.said) == (7, True)
    assert f"understudy version remove-endpoint visits 3 {dead}" in checked.said
    assert (added.code, removed.code, back.code) == (0, 0, 0)
    assert "answers no call" not in back.said
