"""CI's way: everything with a proxy's URL and a key, and no login of a database."""

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import CommandLine, Done
from e2e.stack import PATIENT_MS, Process, Stack, a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.client import Client, Entity

pytestmark = pytest.mark.timeout(600)
EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "github" / "policies.yml"
WALL = """
import os, sys

def wall(event, arguments):
    if event == "socket.connect" and arguments[1][:2] != ("127.0.0.1", int(os.environ["ONLY_PORT"])):
        raise PermissionError(13, "walled off")
    if event in ("subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn"):
        raise PermissionError(13, "walled off")

sys.addaudithook(wall)
"""


@pytest.fixture
def stack(database_url: str, tmp_path: Path) -> Iterator[Stack]:
    digest = sha256(b"secret").hexdigest()
    scopes = ["read", "operate", "register", "outcomes", "predict"]
    asyncio.run(sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('robot', $1, $2)", digest, scopes))
    with a_stack(tmp_path, database_url) as started:
        started.start_proxy(auth=True)
        environment = {"DATABASE_URL": database_url, "UNDERSTUDY_MONITOR_METRICS_PORT": "0"}
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
        started.processes["monitor"] = Process("monitor", arguments, tmp_path, environment)
        yield started


INTERRUPTIBLE = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " runpy.run_module('understudy.entrypoints.cli', run_name='__main__', alter_sys=True)"
)
"""A command as from a terminal: what a shell starts in the background ignores Ctrl-C."""


class WalledCommandLine:
    """The command line where CI runs it: its process can connect to one port and start no other process.

    That does not rest on what the environment leaves out: an audit hook of the interpreter refuses all else.
    """

    def __init__(self, folder: Path, port: int) -> None:
        walls = folder / "walls"
        walls.mkdir()
        (walls / "sitecustomize.py").write_text(WALL)
        self._folder = folder
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "PYTHONPATH": str(walls),
            "ONLY_PORT": str(port),
            "COLUMNS": "80",
            "NO_COLOR": "1",
        }

    def __call__(self, *arguments: str, **environment: str) -> Done:
        program = [sys.executable, "-m", "understudy.entrypoints.cli", *arguments]
        done = subprocess.run(
            program,
            check=False,
            cwd=self._folder,
            env={**self._environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def first_line(self, *arguments: str) -> tuple[str, int]:
        """Return the first line of a command that goes on, and how it ended when it was interrupted then."""
        program = [sys.executable, "-c", INTERRUPTIBLE, *arguments]
        environment = {**self._environment, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            program, cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            return line, process.wait(60)


@pytest.fixture
def ci(stack: Stack, tmp_path: Path) -> WalledCommandLine:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text("robot.secret\n")
    understudy = WalledCommandLine(tmp_path, stack.proxy_port)
    url = f"http://127.0.0.1:{stack.proxy_port}"
    done = understudy("context", "set", "prod", "--url", url, "--key-file", str(key))
    assert (done.code, done.err) == (0, ""), done
    return understudy


def test_the_command_line_of_these_tests_reaches_no_database_even_with_a_login_of_it(tmp_path, database_url):
    refused = WalledCommandLine(tmp_path, 1)("model", "list", DATABASE_URL=database_url)

    assert refused.code == 69
    assert "walled off" in refused.said


def commands_of(job: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the words of each command of a workflow's job, with the environment that its step has of its own."""
    for step in job["steps"]:
        _, command, words = step.get("run", "").rpartition(".venv/bin/understudy ")
        if command:
            for name, value in variables.items():
                words = words.replace(f"${name}", value)
            yield shlex.split(words.partition(" || ")[0]), step["env"]


def test_the_workflow_that_is_shown_compares_and_applies_with_two_keys_and_no_login(stack, database_url, tmp_path):
    digest = sha256(b"secret").hexdigest()
    asyncio.run(sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('looker', $1, '{read}')", digest))
    asyncio.run(register(database_url, 1, [1]))
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "visits.yaml").write_text("model: visits\nchampion: 1\n")
    secrets = {
        "${{ secrets.UNDERSTUDY_READ_KEY }}": "looker.secret",
        "${{ secrets.UNDERSTUDY_OPERATE_KEY }}": "robot.secret",
    }
    workflow = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    ci = WalledCommandLine(tmp_path, stack.proxy_port)

    def run(job: str, **as_: str) -> Done:
        [(words, environment)] = commands_of(workflow["jobs"][job], {"GITHUB_SHA": "0ebae150"})
        keys = {name: secrets[value] for name, value in environment.items()}
        return ci(*words, **{**keys, "UNDERSTUDY_PROXY_URL": f"http://127.0.0.1:{stack.proxy_port}", **as_})

    asked, refused = run("diff"), run("apply", UNDERSTUDY_CREDENTIAL="looker.secret")
    merged, asked_again = run("apply"), run("diff")

    assert "UNDERSTUDY_PROXY_URL" in workflow["env"]
    codes = (asked.code, refused.code, merged.code, asked_again.code)
    assert codes == (1, 7, 0, 0), (asked, refused, merged, asked_again)
    [changed] = asyncio.run(sql(database_url, "SELECT actor, via, reason FROM PolicyAudit"))
    assert (changed["actor"], "commit 0ebae150" in changed["reason"]) == ("robot", True), changed


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


def write_outcomes(folder: Path, called: Mapping[str, datetime]) -> Path:
    """Every other entity did what was hoped for, right after its call."""
    lines = [
        f"e-{entity},visits,{entity},converted,{number % 2},{at.isoformat()}"
        for number, (entity, at) in enumerate(called.items())
    ]
    file = folder / "outcomes.csv"
    file.write_text("\n".join(["event_id,model,entity_id,name,value,occurred_at", *lines]))
    return file


def what_a_person_on_call_does(ci: WalledCommandLine, run: Callable[..., Done], database: CommandLine) -> None:
    line, code = ci.first_line("rollout", "watch", "visits", "--json-lines")
    assert (json.loads(line)["rollout"]["challenger"], code) == ("2", 130)
    for same_words in (
        ("ab", "list", "visits", "--json"), ("ab", "list", "--utc"), ("explain", "visits", "entity-1"),
        ("explain", "visits", "entity-1", "--json"), ("audit", "list", "--limit", "3", "--json"),
        ("audit", "list", "visits", "--actor", "robot", "--via", "http", "--since", "24h", "--utc"),
        ("model", "restore", "visits", "2", "--dry-run"), ("version", "diff", "visits", "1", "2"),
        ("version", "show", "visits", "2"), ("version", "show", "visits", "2", "--json"), ("server", "list"),
    ):  # fmt: skip
        assert run(*same_words).out == database(*same_words).out
    for refused in (
        ("version", "load", "visits", "2", "--for", "1h"), ("version", "unload", "visits", "2"),
        ("shadow", "report", "visits"), ("drift", "report", "visits", "9"),
    ):  # fmt: skip
        over_http, stored = ci(*refused), database(*refused)
        assert (over_http.code, stored.err in over_http.err) == (stored.code, True), (over_http, stored)
    drift = ci("drift", "report", "visits")
    assert (drift.code, drift.out.startswith("visits")) == (database("drift", "report", "visits").code, True), drift
    number = run("ab", "list", "visits", "--json").json["tests"][0]["id"]
    assert "is over, and decides nothing" in run("ab", "stop", "visits", str(number)).said
    assert "what changed within an hour around visits" in run("explain", "visits").said
    tried, stored = run("rollback", "visits", "--dry-run"), database("rollback", "visits", "--dry-run")
    assert ("nothing was changed" in tried.said, tried.out) == (True, stored.out), (tried, stored)
    back = run("rollback", "visits", "--reason", "it burns", "--yes")
    assert ("weight 0 committed as generation" in back.said, "1 of 1 live proxies" in back.said) == (True, True), back
    again = run("rollback", "visits", "--reason", "it burns", "--yes", code=1)
    assert "nothing to roll back" in again.said


def test_a_version_is_validated_with_a_key_alone_by_the_proxy_that_reaches_its_servers(ci, model_port, tmp_path):
    made = ci("version", "register", "visits", "2", "--from", str(describe(tmp_path, 2, model_port("visits:2"))))
    assert made.code == 0, made
    cases, inputs = tmp_path / "cases.csv", example_rows("visits")[0].inputs
    cases.write_text(f"case_id,expected,{','.join(inputs)}\nwrong,-1,{','.join(map(str, inputs.values()))}\n")

    good = ci("version", "validate", "visits", "2", "--load-seconds", "0.2")
    unlike = ci("version", "validate", "visits", "2", "--cases", str(cases), "--no-robustness", "--load-seconds", "0")
    nothing = ci("version", "validate", "visits", "2", "--no-robustness", "--load-seconds", "0")
    long = ci("version", "validate", "visits", "2", "--load-seconds", "11")

    assert (good.code, unlike.code) == (0, 1), (good, unlike)
    assert "visits 2 is validated" in good.said
    assert "100 hard calls" in good.said
    assert "calls in 0.2 s, 4 at a time" in good.said
    assert "case wrong (1 of 1)" in unlike.said
    assert (nothing.code, long.code) == (7, 2), (nothing, long)
    assert "nothing was asked" in nothing.said
    assert "load_seconds" in long.said


def test_a_version_is_registered_checked_rolled_out_and_tried_with_a_key_alone(
    ci, model_port, tmp_path, database_url, stack
):
    def run(*arguments: str, code: int = 0) -> Done:
        done: Done = ci(*arguments)
        assert done.code == code, (arguments, done)
        assert "secret" not in done.out + done.err
        return done

    for label in (1, 2):
        file = describe(tmp_path, label, model_port(f"visits:{label}"))
        made = run("version", "register", "visits", str(label), "--from", str(file))
        assert f"registered visits {label} as staging" in made.said
    checked = run("version", "check", "visits", "2")
    policy = tmp_path / "visits.yaml"
    policy.write_text("model: visits\nchampion: '1'\nguard: alert\n")
    tried = run("apply", "-f", str(policy), "--dry-run", "--reason", "first")
    run("apply", "-f", str(policy), "--yes", "--reason", "first")
    same = run("diff", "-f", str(policy))
    planned = run("rollout", "start", "visits", "2", "--plan", "5,100", "--dry-run")
    begun = run("rollout", "start", "visits", "2", "--plan", "blue_green", "--reason", "retrain", "--yes")
    ended = run("rollout", "wait", "visits", "--timeout", "60s")
    shown, listed = run("rollout", "show", "visits"), run("rollout", "list", "visits", "--json")

    assert "visits 2 is ready for callers" in checked.said
    assert ("Would apply 1 policy" in tried.said, "as its file says" in same.said) == (True, True)
    assert "Nothing was started" in planned.said
    assert "has begun: the warm-up comes first" in begun.said
    assert "visits 2 is champion in the place of 1" in ended.said
    assert shown.out.startswith("visits  1 → 2")
    assert [one["challenger"] for one in listed.json["rollouts"] if one["kind"] == "rollout"] == ["2"]

    database = CommandLine(database_url)
    for same_words in (
        ("version", "list", "--utc"), ("version", "list", "--json"), ("rollout", "list", "visits", "--utc"),
        ("key", "list", "--json"),
    ):  # fmt: skip
        code, words = (7, "") if same_words[0] == "key" else (0, database(*same_words).out)
        assert run(*same_words, code=code).out == words

    run("model", "set", "visits", "--challenger", "1", "--weight", "50", "--reason", "a test", "--yes")
    called: dict[str, datetime] = {}
    with Client(f"http://127.0.0.1:{stack.proxy_port}", "robot.secret") as client:
        for number in range(200):
            client.predict("visits", Entity(f"entity-{number}", example_rows("visits")[0].inputs))
            called[f"entity-{number}"] = datetime.now(UTC)
    imported = run("ab", "outcomes", "import", str(write_outcomes(tmp_path, called)))
    give_up = time.monotonic() + 60
    declare = ("ab", "report", "visits", "--metric", "converted", "--looks", "2", "--within", "5s")
    while (declared := ci(*declare)).code != 0 and time.monotonic() < give_up:
        time.sleep(0.5)
    assert declared.code == 0, declared
    other = run("ab", "report", "visits", "--metric", "converted", "--within", "3d", code=5)
    needed = run("db", "check", code=2)

    assert "200 new outcome events of 200 rows" in imported.said
    assert "converted" in declared.said, declared
    assert "declared with other --within" in other.said
    assert "E225" in needed.said
    what_a_person_on_call_does(ci, run, database)
    audit = asyncio.run(sql(database_url, "SELECT DISTINCT actor, via FROM RegistryAudit WHERE subject = 'version'"))
    assert ("robot", "http") in {tuple(row) for row in audit}
    [test] = asyncio.run(sql(database_url, "SELECT created_by FROM Experiment"))
    assert test["created_by"] == "robot"
