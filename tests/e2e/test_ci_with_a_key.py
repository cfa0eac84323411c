"""CI's way: everything with a proxy's URL and a key, and no login of a database."""

import asyncio
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from command import CommandLine, Done
from e2e.stack import PATIENT_MS, Process, Stack, a_stack, sql

from understudy.adapters.dev_server.example_models import example_version


@pytest.fixture
def stack(database_url: str, tmp_path: Path) -> Iterator[Stack]:
    digest = sha256(b"secret").hexdigest()
    scopes = ["read", "operate", "outcomes", "predict"]
    asyncio.run(sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('robot', $1, $2)", digest, scopes))
    with a_stack(tmp_path, database_url) as started:
        started.start_proxy(auth=True)
        environment = {"DATABASE_URL": database_url, "UNDERSTUDY_MONITOR_METRICS_PORT": "0"}
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
        started.processes["monitor"] = Process("monitor", arguments, tmp_path, environment)
        yield started


@pytest.fixture
def ci(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """The command line where CI runs it: it knows a context, and nothing leads to the database."""
    for name in ("DATABASE_URL", "UNDERSTUDY_PROXY_URL", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    monkeypatch.setenv("UNDERSTUDY_CONTEXTS", str(tmp_path / "home" / "contexts.json"))
    key = tmp_path / "key"
    key.write_text("robot.secret\n")
    understudy = CommandLine(None)
    url = f"http://127.0.0.1:{stack.proxy_port}"
    done = understudy("context", "set", "prod", "--url", url, "--key-file", str(key))
    assert done.code == 0, done
    return understudy


def describe(folder: Path, label: int, port: int) -> Path:
    example = example_version("visits", label)
    described = {
        "artifact_path": f"s3://models/visits/{label}",
        "framework": "sklearn",
        "input_schema": example.input_schema,
        "output_schema": example.output_schema,
        "timeout_ms": PATIENT_MS,
        "endpoints": [f"127.0.0.1:{port}"],
    }
    file = folder / f"version-{label}.json"
    file.write_text(json.dumps(described))
    return file


def test_a_version_is_registered_rolled_out_and_waited_for_with_a_key_alone(ci, model_port, tmp_path, database_url):
    def run(*arguments: str, code: int = 0) -> Done:
        done = ci(*arguments)
        assert done.code == code, (arguments, done)
        assert "secret" not in done.out + done.err
        return done

    for label in (1, 2):
        file = describe(tmp_path, label, model_port(f"visits:{label}"))
        made = run("version", "register", "visits", str(label), "--from", str(file))
        assert f"registered visits {label} as staging" in made.said
    run("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
    begun = run("rollout", "start", "visits", "2", "--plan", "blue_green", "--reason", "retrain", "--yes")
    ended = run("rollout", "wait", "visits", "--timeout", "60s")
    shown = run("rollout", "show", "visits")
    models = run("model", "list", "--json")

    assert "has begun: the warm-up comes first" in begun.said
    assert "visits 2 is champion in the place of 1" in ended.said
    assert "verdicts, judged again" in shown.said or "champion" in shown.said
    assert models.json["models"][0]["policy"]["champion"] == "2"
    audit = asyncio.run(sql(database_url, "SELECT DISTINCT actor, via FROM RegistryAudit WHERE subject = 'version'"))
    assert {tuple(row) for row in audit} >= {("robot", "http")}
