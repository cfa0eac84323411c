"""What the database refuses on the command line comes with a command, in place of its advice in SQL."""

import shlex

import pytest
from command import CommandLine
from e2e.stack import register, sql


@pytest.fixture(autouse=True)
async def _registered(database_url: str) -> None:
    """Model ``visits``: champion 1, versions 2, 3 and 4, and an arm of 9 %; model ``digits`` without a policy."""
    champion, *_, arm = [await register(database_url, label, [9000 + label]) for label in (1, 2, 3, 4)]
    await register(database_url, 1, [], model_name="digits")
    await sql(
        database_url,
        "INSERT INTO ServingPolicy (model_name, champion_version, arms) VALUES ('visits', $1, jsonb_build_array("
        "jsonb_build_object('version_id', $2::BIGINT, 'first', 91, 'last', 99)))",
        champion,
        arm,
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("model set visits --challenger 2 --weight 150", "model set visits --weight 0 --reason '…' sends"),
        ("model set visits --challenger 2 --weight 95", "model set visits --weight 91 --reason '…' is the largest"),
        (
            "model set visits --shadow 2 --shadow-percent 150",
            "model set visits --shadow-percent 100 --reason '…'",
        ),
        (
            "model set visits --input-sample-percent 150",
            "model set visits --input-sample-percent 0 --reason '…'",
        ),
        ("model set visits --challenger 1", "model show visits shows which version has which role"),
        ("model set visits --shadow 1", "model show visits shows which version has which role"),
        ("model set visits --weight 5", "model set visits --challenger VERSION --weight 5 --reason '…' names"),
        ("model set visits --salt ''", "model set visits --salt none --reason '…' is the formula"),
        ("model set visits --shadow 4", "model set visits --arm 4=0 … ends"),
        ("model set digits --weight 5", "model set digits --champion VERSION --reason '…' names"),
        ("rollback digits", "model list shows the models there are"),
    ],
)
async def test_a_refusal_names_the_command_that_helps(database_url, asked, said):
    refused = await CommandLine(database_url).beside(*shlex.split(asked), "--reason", "try", "--yes")

    assert (refused.code, "E203 The database refused the change" in refused.err) == (7, True)
    assert f"→ understudy {said}" in refused.said
    assert "UPDATE" not in refused.said


async def test_no_rollout_beside_arms_and_no_arm_beside_a_rollout_name_commands(database_url, model_port):
    understudy = CommandLine(database_url)
    await sql(database_url, "UPDATE ModelEndpoint SET target = $1", f"127.0.0.1:{model_port('visits:2')}")
    start = ("rollout", "start", "visits", "2", "--reason", "try", "--yes")

    beside_arms = await understudy.beside(*start)
    await understudy.beside("model", "set", "visits", "--arm", "none", "--reason", "as it said", "--yes")
    begun = await understudy.beside(*start)
    beside_rollout = await understudy.beside("model", "set", "visits", "--arm", "4=5", "--reason", "try", "--yes")

    assert "→ understudy model set visits --arm none --reason '…' ends their test" in beside_arms.said
    assert begun.code == 0
    assert "understudy rollout wait visits" in beside_rollout.said


async def test_a_version_without_model_servers_gets_one_by_a_command(database_url):
    understudy = CommandLine(database_url)

    tried = await understudy.beside("version", "add-endpoint", "digits", "1", "127.0.0.1:9009", "--dry-run")
    none_yet = await understudy.beside("version", "show", "digits", "1", "--json")
    made = await understudy.beside("version", "add-endpoint", "digits", "1", "127.0.0.1:9009", "--json")
    nonsense = await understudy.beside("version", "add-endpoint", "digits", "1", "9009")
    unknown = await understudy.beside("version", "add-endpoint", "digits", "7", "127.0.0.1:9009")

    second = await understudy.beside("version", "add-endpoint", "digits", "1", "127.0.0.1:9010")
    tried_away = await understudy.beside("version", "remove-endpoint", "digits", "1", "127.0.0.1:9009", "--dry-run")
    away = await understudy.beside("version", "remove-endpoint", "digits", "1", "127.0.0.1:9009", "--json")
    unknown_server = await understudy.beside("version", "remove-endpoint", "digits", "1", "127.0.0.1:9009")

    assert (tried.code, "nothing was written" in tried.said) == (0, True)
    assert (second.code, unknown_server.code) == (0, 4)
    assert "digits 1 would be served by 127.0.0.1:9010; nothing was written" in tried_away.said
    assert away.json["version"]["endpoints"] == ["127.0.0.1:9010"]
    assert none_yet.json["version"]["endpoints"] == []
    assert made.json["version"]["endpoints"] == ["127.0.0.1:9009"]
    assert (nonsense.code, unknown.code) == (7, 4)
