"""What the command line says through a real proxy with a key of one model: the cause, and not what lies beside it."""

import asyncio
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from command import CommandLine, Done
from e2e.stack import Stack, a_stack, register, sql

pytestmark = pytest.mark.timeout(300)
SCOPES = ["read:visits", "operate:visits", "register:visits", "outcomes:visits"]
EVENTS = """event_id,model,entity_id,name,value,occurred_at
e1,visits,c,converted,1,2026-11-20T13:00:00Z
e2,digits,c,converted,1,2026-11-20T13:00:00Z
"""


@pytest.fixture
def stack(database_url: str, tmp_path: Path) -> Iterator[Stack]:
    digest = sha256(b"secret").hexdigest()
    asyncio.run(sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('robot', $1, $2)", digest, SCOPES))
    asyncio.run(register(database_url, 1, [1]))
    asyncio.run(
        sql(
            database_url,
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " SELECT 'digits', '1', artifact_path, framework, input_schema FROM ModelVersion",
        )
    )
    server = (
        "INSERT INTO ModelServer (name, group_name, target, build) VALUES ('demo-0', 'demo', 'a:1', 'understudy 1')"
    )
    asyncio.run(sql(database_url, server))
    with a_stack(tmp_path, database_url) as started:
        started.start_proxy(auth=True)
        yield started


@pytest.fixture
def ask(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line in a folder of its own, with the proxy's URL and the key alone."""
    folder = tmp_path / "ci"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("UNDERSTUDY_CONTEXTS", str(folder / "contexts.json"))
    monkeypatch.setenv("CI_KEY", "robot.secret")
    understudy = CommandLine(None)
    url = f"http://127.0.0.1:{stack.proxy_port}"
    assert understudy("context", "set", "prod", "--url", url, "--key-env", "CI_KEY").code == 0
    assert understudy("context", "set", "prod", "--url", url).code == 0  # and its key stays
    return understudy


def described(folder: Path) -> str:
    file = folder / "version.json"
    schema = {"features": [{"name": "age", "dtype": "float32"}]}
    file.write_text(json.dumps({"artifact_path": "visits/6", "framework": "onnx", "input_schema": schema}))
    return str(file)


def refused(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done
    assert [one for one in words if one not in done.said] == [], done


def test_what_a_key_may_not_do_is_said_with_its_cause(ask: CommandLine, stack: Stack, tmp_path: Path):
    (tmp_path / "digits.yaml").write_text("model: digits\nchampion: '1'\n")
    (tmp_path / "outcomes.csv").write_text(EVENTS)
    version = ("--from", described(tmp_path))

    typo = ask("version", "register", "vists", "6", *version)
    policy = ask("diff", "-f", str(tmp_path / "digits.yaml"))
    servers = ask("server", "list")
    audit = ask("audit", "list", "--limit", "2")
    looked_at = ask("ab", "outcomes", "import", str(tmp_path / "outcomes.csv"), "--dry-run")
    imported = ask("ab", "outcomes", "import", str(tmp_path / "outcomes.csv"))
    ask("context", "set", "none", "--url", f"http://127.0.0.1:{stack.proxy_port}")
    keyless = ask("model", "list", UNDERSTUDY_CONTEXT="none")

    refused(typo, 7, "E403", "'register:vists'; this one has register:visits")
    refused(policy, 2, "the key may not read the model 'digits'", "this one has read:visits")
    refused(servers, 7, "'read' for all models; this one has read:visits")
    refused(audit, 7, "understudy audit list MODEL")
    refused(looked_at, 1, "1 of 2 rows can be used; nothing was stored, 1 cannot:")
    refused(imported, 1, "1 new outcome events of 2 rows", "line 3: model the key may not send outcomes of digits")
    refused(keyless, 7, "E401", "no key was sent")


def test_a_version_is_registered_and_loaded_for_some_servers_of_a_group(
    ask: CommandLine, tmp_path: Path, database_url: str
):
    added = "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('operator', $1, '{read,operate,register}')"
    asyncio.run(sql(database_url, added, sha256(b"secret").hexdigest()))
    registered = ("version", "register", "visits", "6", "--from", described(tmp_path), "--group", "demo")
    load, key = ("version", "load", "visits", "6"), "operator.secret"

    made = ask(*registered, "--replicas", "2", CI_KEY=key)
    shown = ask(*load, "--json", CI_KEY=key)
    ranged = ask(*load, "--replicas", "1..4", CI_KEY=key)
    every = ask(*load, "--replicas", "all", CI_KEY=key)

    assert made.code == 0, made
    assert shown.document["loading"]["replicas"] == "2"
    assert "visits 6 is wanted on 1..4 servers of demo for 2h." in ranged.said
    assert "visits 6 is wanted on the servers of demo for 2h." in every.said


def test_a_group_that_no_server_is_of_is_said_with_a_key_of_the_model_alone(ask: CommandLine, tmp_path: Path):
    registered = ("version", "register", "visits", "6", "--from", described(tmp_path), "--group", "demos")

    tried = ask(*registered, "--dry-run")
    made = ask(*registered)
    loaded = ask("version", "load", "visits", "6", "--wait", "--timeout", "1s")

    words = "no server of the group 'demos' is known; there are: demo"
    assert (tried.code, made.code) == (0, 0), (tried, made)
    assert "group demos" in tried.said
    assert words in made.said
    refused(loaded, 1, words, "understudy version load visits 6 --group demo --wait")
