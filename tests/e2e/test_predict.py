"""``understudy predict`` against a real proxy, and ``understudy db psql`` against a real Postgres."""

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import pytest
from command import CommandLine
from e2e.stack import a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.bootstrap.psql import find_psql

INPUTS = json.dumps(example_rows("visits")[42].inputs)
SCOPES = {"caller": ["predict"], "reader": ["predict", "read"], "operator": ["predict", "read", "operate"]}


async def prepare(database_url: str, champion_port: int, challenger_port: int) -> None:
    """Register two versions of visits and three keys."""
    first = await register(database_url, 1, [champion_port])
    await register(database_url, 2, [challenger_port])
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", first)
    for name, scopes in SCOPES.items():
        digest = sha256(b"secret").hexdigest()
        await sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ($1, $2, $3)", name, digest, scopes)


def test_a_call_says_who_answered_and_what_is_wrong_is_said_as_the_proxy_says_it(
    understudy: CommandLine, database_url: str, tmp_path: Path, model_port
):
    asyncio.run(prepare(database_url, model_port("visits:1"), model_port("visits:2")))
    (tmp_path / "inputs.json").write_text(INPUTS)
    with a_stack(tmp_path, database_url) as stack:
        where = {"UNDERSTUDY_PROXY_URL": f"http://127.0.0.1:{stack.start_proxy(auth=True)}"}
        caller, reader, operator = ({**where, "UNDERSTUDY_CREDENTIAL": f"{name}.secret"} for name in SCOPES)
        asked = ("predict", "visits", "--entity", "customer-42")

        given = understudy(*asked, "--inputs", "@inputs.json", **caller)
        piped = understudy(*asked, "--inputs", "-", "--json", stdin=INPUTS, **caller)
        example = understudy(*asked, "--trace", **reader)
        traced = understudy(*asked, "--trace", "--json", **reader)
        forced = understudy(*asked, "--inputs", INPUTS, "--force-version", "2", **operator)
        no_key = understudy(*asked, **where)
        no_scope = understudy(*asked, "--inputs", INPUTS, "--force-version", "2", **reader)
        bad = understudy(*asked, "--inputs", '{"x": 1}', **caller)
        unknown = understudy("predict", "nobody", "--entity", "e", "--inputs", "{}", **operator)

    assert [done.code for done in (given, piped, example, traced, forced)] == [0] * 5, (given, example, forced)
    assert given.out.startswith("score 0.8438902   visits 1, champion\n")
    assert "upstream" in given.out
    call = piped.document["call"]
    assert (call["answer"]["version"], call["trace_id"], call["assignment"]) == ("1", None, None)
    assert set(call["server_timing_ms"]) == {"route", "features", "upstream"}
    assert "inputs: the example of GET /v1/models/visits" in example.err
    assert "md5(visits:customer-42) mod 100" in example.out
    assert traced.document["call"]["assignment"]["reason"] == "bucket"
    assert forced.out.splitlines()[0].endswith("   visits 2, forced")
    assert [done.code for done in (no_key, no_scope, bad, unknown)] == [7, 7, 2, 4]
    assert "understudy key create --scope predict" in no_key.said
    assert "understudy key create --scope operate" in no_scope.said
    assert "/inputs/x: is not an input of this version" in bad.err


def test_a_proxy_that_is_not_there_and_inputs_that_cannot_be_read_are_said(understudy: CommandLine):
    nobody = {"UNDERSTUDY_PROXY_URL": f"http://127.0.0.1:{free_port()}"}

    away = understudy("predict", "visits", "--entity", "e", "--inputs", "{}", **nobody)
    no_file = understudy("predict", "visits", "--entity", "e", "--inputs", "@nothing.json", **nobody)
    no_json = understudy("predict", "visits", "--entity", "e", "--inputs", "{", **nobody)
    no_object = understudy("predict", "visits", "--entity", "e", "--inputs", "[1]", **nobody)
    no_address = understudy("predict", "visits", "--entity", "e", UNDERSTUDY_PROXY_URL="127.0.0.1:8080")

    assert [done.code for done in (away, no_file, no_json, no_object, no_address)] == [69, 2, 2, 2, 2]
    assert "UNDERSTUDY_PROXY_URL" in away.err
    assert "nothing.json cannot be read: No such file" in no_file.err
    assert "UNDERSTUDY_PROXY_URL" in no_address.err


@pytest.mark.skipif(find_psql() is None, reason="no psql on this machine")
def test_the_sql_prompt_opens_the_registry_and_fails_as_the_statement_does(understudy: CommandLine):
    good = understudy("db", "psql", "-c", "CREATE TABLE seen ()")
    again = understudy("db", "psql", "-c", "CREATE TABLE seen ()")
    away = understudy("db", "psql", "-c", "SELECT 1", DATABASE_URL=f"postgresql://nobody@127.0.0.1:{free_port()}/none")

    assert [done.code for done in (good, again, away)] == [0, 1, 69]
