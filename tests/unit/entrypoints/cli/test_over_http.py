"""Where each command goes once a context names a proxy: there, or nowhere, with a word about what to do."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import CommandLine

from understudy.entrypoints.cli.shared.startup.noun_group import load
from understudy.entrypoints.cli.shared.startup.nouns import NOUNS

WHY = ("--reason", "a test", "--yes")
OVER_HTTP = {
    "ab list": (),
    "ab outcomes import": ("outcomes.csv",),
    "ab plan": ("visits",),
    "ab report": ("visits", "--metric", "converted"),
    "ab stop": ("visits", "12"),
    "apply": ("-f", "visits.yaml", *WHY),
    "audit list": ("visits", "--actor", "k1", "--via", "http", "--since", "24h"),
    "diff": ("-f", "visits.yaml"),
    "drift report": ("visits",),
    "drift skew": ("visits",),
    "explain": ("visits", "entity-1"),
    "key create": ("--scope", "read"),
    "key list": (),
    "key revoke": ("0123456789ab",),
    "model list": (),
    "model restore": ("visits", "3", *WHY),
    "model set": ("visits", "--weight", "1", *WHY),
    "model show": ("visits",),
    "plan": ("visits", "7"),
    "rollback": ("visits", *WHY),
    "rollout abort": ("visits", *WHY),
    "rollout approve": ("visits", *WHY),
    "rollout list": (),
    "rollout pause": ("visits", *WHY),
    "rollout promote": ("visits", *WHY),
    "rollout resume": ("visits", *WHY),
    "rollout show": ("visits",),
    "rollout start": ("visits", "7", "--watch", *WHY),
    "rollout wait": ("visits",),
    "rollout watch": ("visits",),
    "server list": (),
    "shadow report": ("visits",),
    "version add-endpoint": ("visits", "7", "models:8001"),
    "version check": ("visits", "7"),
    "version diff": ("visits", "6", "7"),
    "version list": (),
    "version load": ("visits", "7"),
    "version remove-endpoint": ("visits", "7", "models:8001"),
    "version register": ("visits", "7", "--from", "version.json", "--endpoint", "127.0.0.1:1"),
    "version restore": ("visits", "7", "--reason", "a test"),
    "version retire": ("visits", "7", "--reason", "a test"),
    "version show": ("visits", "7"),
    "version unload": ("visits", "7"),
    "version validate": ("visits", "7"),
}
"""Commands that a key is enough for, each with words that it takes."""
ON_THE_DATABASE = {
    "db archive": ("--to", "archive"),
    "db check": (),
    "db downgrade": ("base",),
    "db index-entities": (),
    "db partitions": (),
    "db psql": ("-c", "SELECT 1"),
    "db upgrade": (),
    "doctor": (),
    "drift baseline set": ("visits", "7", "--from-log", "--reason", "a test"),
    "entity forget": ("visits", "entity-1", *WHY),
    "log query": ("SELECT 1",),
    "log replay": ("visits", "7"),
    "log show": ("01a1fa3d-d729-7257-ba41-af1b3c130b99",),
    "log tail": (),
    "shadow examples": ("visits",),
    "subscription add": ("oncall", "--receiver", "chat"),
    "subscription list": (),
    "subscription remove": ("oncall",),
    "subscription test": ("oncall",),
}
"""Commands that work on the database alone."""
OF_THEIR_OWN = {
    *("context list", "context remove", "context set", "context show", "context use"),
    *("demo", "examples register", "examples traffic", "modelserver", "predict"),
    *("serve agent", "serve console", "serve monitor", "serve proxy", "server drain"),
    *("source follow", "source show"),
}
"""Commands that ask neither for another's work: they run a process, call one that is named, keep contexts, or ask
another registry first (tests/system/test_version_sources.py has those with a key)."""


def leaves(name: str, command: Any) -> Iterator[str]:
    verbs = getattr(command, "commands", None)
    if verbs is None:
        yield name
    else:
        for verb, one in verbs.items():
            yield from leaves(f"{name} {verb}", one)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line under a context whose proxy is not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    contexts = tmp_path / "contexts.json"
    monkeypatch.setenv("UNDERSTUDY_CONTEXTS", str(contexts))
    schema = {"features": [{"name": "age", "dtype": "float32"}]}
    described = {"artifact_path": "s3://m", "framework": "sklearn", "input_schema": schema}
    (tmp_path / "version.json").write_text(json.dumps(described))
    (tmp_path / "visits.yaml").write_text("model: visits\nchampion: '1'\n")
    (tmp_path / "outcomes.csv").write_text(
        "event_id,model,entity_id,name,value,occurred_at\ne1,visits,c,converted,1,2026-11-20T13:00:00Z\n"
    )
    command = CommandLine(None)
    assert command("context", "set", "prod", "--url", "http://127.0.0.1:1").code == 0
    return command


def test_every_command_says_whether_a_key_is_enough_for_it():
    known = {leaf for noun in NOUNS for leaf in leaves(noun, load(noun))}

    assert known == OVER_HTTP.keys() | ON_THE_DATABASE.keys() | OF_THEIR_OWN


@pytest.mark.deep
def test_a_command_under_a_context_goes_to_its_proxy_or_says_how_to_go_to_the_database(ask):
    ways = {name: ask(*name.split(), *words) for name, words in (OVER_HTTP | ON_THE_DATABASE).items()}

    assert {name: ways[name] for name in OVER_HTTP if ways[name].code != 69 or "E516" not in ways[name].said} == {}
    assert {name: ways[name] for name in ON_THE_DATABASE if ways[name].code != 2} == {}
    for name in ON_THE_DATABASE:
        assert all(words in ways[name].said for words in ("E225", "context prod names a proxy", "DATABASE_URL")), name


@pytest.mark.parametrize(
    "words",
    [("rollout", "show", "visits", "--slices"), ("ab", "report", "visits", "--metric", "m", "--html", "f.html")],
)
def test_what_only_the_database_has_is_refused_with_the_way_there(ask, words):
    refused = ask(*words)

    assert (refused.code, "E225" in refused.said) == (2, True)


WITHOUT_GRPC = """
import json, sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("grpc", "fastapi", "redis", "google", "prometheus_client", "uvicorn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from understudy.entrypoints.cli.main import run
found = {}
for line in sys.argv[1:]:
    sys.stderr = said = __import__("io").StringIO()
    found[line] = [run(json.loads(line)), said.getvalue()]
print(json.dumps(found))
"""


@pytest.mark.deep
def test_a_command_that_a_key_is_not_enough_for_says_so_before_it_asks_for_another_extra(tmp_path):
    lines = [json.dumps([*name.split(), *words]) for name, words in ON_THE_DATABASE.items()]
    environment = {"UNDERSTUDY_PROXY_URL": "http://127.0.0.1:1", "UNDERSTUDY_STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GRPC, *lines], capture_output=True, text=True, timeout=120, check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **environment},
    )  # fmt: skip

    said = json.loads(done.stdout.splitlines()[-1])
    assert {line: found for line, found in said.items() if found[0] != 2 or "E225" not in found[1]} == {}
