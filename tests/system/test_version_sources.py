"""A label of a model registry that moves registers a version and starts its rollout, once, with a key alone."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from command import Done
from e2e.lifecycle import Lifecycle
from e2e.stack import Stack, a_stack, register, sql, wait_for_port
from loopback.mlflow import MlflowServer, an_mlflow_server
from loopback.oci_registry import a_registry
from unit.core.rollout.sources.test_source_webhook import signed

from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = pytest.mark.timeout(600)
MLMODEL = """
signature:
  inputs: '[{"type": "tensor", "name": "input", "tensor-spec": {"dtype": "float32", "shape": [-1, 9]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}]'
"""


@pytest.fixture
def stack(database_url: str, tmp_path: Path, model_port: Callable[[str], int]) -> Iterator[Stack]:
    digest, scopes = sha256(b"secret").hexdigest(), ["read:visits", "operate:visits", "register:visits"]
    asyncio.run(sql(database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('robot', $1, $2)", digest, scopes))
    champion = asyncio.run(register(database_url, 1, [model_port("visits:1")]))
    asyncio.run(
        sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)
    )
    with a_stack(tmp_path, database_url) as started:
        started.start_proxy(auth=True)
        yield started


@pytest.fixture
def registry() -> Iterator[MlflowServer]:
    with an_mlflow_server() as there:
        there.mlmodel = MLMODEL
        yield there


class Follower:
    """``understudy source`` where nothing names a database: a proxy's URL and a key."""

    def __init__(self, folder: Path, stack: Stack, source: str) -> None:
        self.file, self._folder = folder / "sources.yaml", folder
        self.file.write_text(f"model: visits\nwebhook_secret_env: HOOK_SECRET\n{source}")
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "UNDERSTUDY_PROXY_URL": f"http://127.0.0.1:{stack.proxy_port}",
            "UNDERSTUDY_CREDENTIAL": "robot.secret",
            "UNDERSTUDY_STATE_DIR": str(folder / "no-demo"),
            "REGISTRY_LOGIN": "of-mlflow",
            "HOOK_SECRET": "of both sides",
            "COLUMNS": "80",
            "NO_COLOR": "1",
        }

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        program = [sys.executable, "-m", "understudy.entrypoints.cli", "source", *arguments, "-f", str(self.file)]
        return subprocess.Popen(
            program, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, *arguments: str) -> Done:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert "of-mlflow" not in out + err
        return Done(process.returncode, out, err)

    def once(self) -> tuple[int, dict[str, Any]]:
        """Return the exit code of one look, and its report."""
        done = self("follow", "--once", "--json")
        assert "Traceback" not in done.err, done.err
        return done.code, done.document["sources"][0]

    @contextmanager
    def following(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        process = self.start("follow", *arguments)
        try:
            yield process
        finally:
            process.terminate()
            out, err = process.communicate(timeout=60)
            (self._folder / "follow.log").write_text(out + err)
        assert process.returncode == 0, out + err


@pytest.fixture
def follower(tmp_path: Path, stack: Stack, registry: MlflowServer, model_port: Callable[[str], int]) -> Follower:
    return Follower(
        tmp_path,
        stack,
        f"kind: mlflow\nurl: {registry.url}\nregistered_model: eu.visits\nalias: challenger\n"
        f"endpoints: 127.0.0.1:{model_port('visits:2')}\nplan: blue_green\ntoken_env: REGISTRY_LOGIN\n",
    )


def there_are(database_url: str) -> tuple[list[str], list[str]]:
    """The labels of versions, and the challengers of rollouts."""
    versions = asyncio.run(sql(database_url, "SELECT version FROM ModelVersion ORDER BY id"))
    rollouts = asyncio.run(
        sql(
            database_url,
            "SELECT v.version FROM Rollout r JOIN ModelVersion v ON v.id = r.challenger_version"
            " WHERE r.kind = 'rollout'",
        )
    )
    return [row["version"] for row in versions], [row["version"] for row in rollouts]


def test_an_alias_that_moves_registers_the_version_and_starts_its_rollout_and_the_same_alias_does_nothing(
    follower, registry, database_url
):
    registry.login = "Bearer of-mlflow"
    unset = follower("show", "--json").document["sources"][0]
    assert (unset["state"], follower.once()[0], there_are(database_url)) == ("unset", 0, (["1"], []))

    registry.aliases["eu.visits", "challenger"] = "2"
    shown = follower("show")
    assert "version 2 is not registered" in " ".join(shown.out.split())
    assert there_are(database_url) == (["1"], [])
    code, moved = follower.once()
    assert (code, moved["state"], moved["registered"]) == (0, "done", True), moved
    assert moved["started"] is not None
    for _ in range(2):
        code, same = follower.once()
        assert (code, same["state"], same["registered"], same["started"]) == (0, "done", False, None)
    assert there_are(database_url) == (["1", "2"], ["2"])

    [begun] = asyncio.run(sql(database_url, "SELECT started_by, reason FROM Rollout WHERE kind = 'rollout'"))
    assert begun["started_by"] == "robot"
    assert begun["reason"] == "mlflow: eu.visits@challenger is version 2, registered by ana"
    [made] = asyncio.run(
        sql(database_url, "SELECT actor, via FROM RegistryAudit WHERE subject = 'version' AND version = '2' LIMIT 1")
    )
    assert tuple(made) == ("robot", "http")


def test_a_registry_that_is_away_or_names_another_version_of_the_label_changes_nothing(
    follower, registry, database_url
):
    registry.is_broken = True
    code, away = follower.once()
    assert (code, away["state"]) == (69, "away")
    assert "500" in away["detail"]

    registry.is_broken, registry.login = False, "Bearer another"
    code, denied = follower.once()
    assert (code, denied["state"]) == (69, "away")
    assert "401" in denied["detail"]
    assert "of-mlflow" not in json.dumps(denied)

    registry.login = None
    registry.aliases["eu.visits", "challenger"] = "1"
    code, taken = follower.once()
    assert (code, taken["state"]) == (1, "refused")
    assert "registered from something else" in taken["detail"]

    registry.aliases["eu.visits", "challenger"] = "3"
    registry.mlmodel = MLMODEL.replace("9]", "8]")
    code, unlike = follower.once()
    assert (code, unlike["state"]) == (1, "refused")
    assert "is unlike version 1" in unlike["detail"]
    assert there_are(database_url) == (["1"], [])


def test_a_process_that_is_killed_between_the_two_and_two_at_once_start_one_rollout(follower, registry, database_url):
    registry.aliases["eu.visits", "challenger"] = "2"
    killed = follower.start("follow", "--once", "--json")
    give_up = time.monotonic() + 90
    while there_are(database_url)[0] == ["1"] and time.monotonic() < give_up:
        time.sleep(0.01)
    killed.kill()
    killed.communicate(timeout=60)
    assert there_are(database_url)[0] == ["1", "2"]

    both = [follower.start("follow", "--once", "--json") for _ in range(2)]
    for one in both:
        one.communicate(timeout=120)
    follower.once()

    assert there_are(database_url) == (["1", "2"], ["2"])


def test_a_signed_webhook_has_the_label_looked_at_at_once_and_another_does_not(follower, registry, database_url):
    hooks, metrics = free_port(), free_port()
    body = b'{"entity": "model_version_alias", "action": "created", "data": {"alias": "challenger"}}'
    with follower.following("--every", "1h", "--webhook-port", str(hooks), "--metrics-port", str(metrics)):
        wait_for_port(hooks)
        until(lambda: len(registry.asked) == 1)
        registry.aliases["eu.visits", "challenger"] = "2"
        assert posted(hooks, body, {}) == 401
        assert posted(hooks, body, signed(body, at=time.time(), secret="another")) == 401
        assert len(registry.asked) == 1
        assert posted(hooks, body, signed(body, at=time.time())) == 204
        until(lambda: there_are(database_url) == (["1", "2"], ["2"]))
        until(lambda: 'source_looks_total{source="visits@challenger",state="done"} 1.0' in page(metrics))
        assert 'source_away_seconds{source="visits@challenger"} 0.0' in page(metrics)
        registry.is_broken = True
        assert posted(hooks, body, signed(body, at=time.time())) == 204
        until(lambda: 'source_looks_total{source="visits@challenger",state="away"} 1.0' in page(metrics))


def test_a_key_that_may_only_read_says_what_would_be_done_and_does_nothing(follower, registry, database_url):
    registry.aliases["eu.visits", "challenger"] = "2"
    asyncio.run(sql(database_url, "UPDATE ApiKey SET scopes = '{read:visits}'"))

    shown = follower("show", "--json").document["sources"][0]
    code, refused = follower.once()

    assert (shown["state"], shown["detail"]) == ("waiting", "version 2 is not registered")
    assert (code, refused["state"], refused["registered"]) == (1, "refused", False)
    assert "register" in refused["detail"]
    assert there_are(database_url) == (["1"], [])


def test_a_tag_that_moves_is_registered_loaded_by_agents_and_rolled_out_with_its_own_steps_once(
    stack, database_url, tmp_path
):
    lifecycle, hooks = Lifecycle(stack), free_port()
    lifecycle.start_server()
    lifecycle.start_monitor()
    with a_registry() as images:
        address = f"oci://{images.name}/models/visits"
        lifecycle.start_agent({"UNDERSTUDY_ARTIFACT_STORES": address})
        follower = Follower(
            tmp_path, stack, f"kind: oci\nurl: {address}:canary\ngroup: onnx\nrequire_validation: true\n"
        )
        assert follower.once()[1]["state"] == "unset"
        asked = {"org.opencontainers.image.version": "2026.11", "dev.understudy.rollout.steps": "1, 5,25,50"}
        model = images.file("model.onnx", example_version("visits", 2).read())
        digest = images.push("canary", [model], annotations=asked)
        with follower.following("--every", "1s", "--webhook-port", str(hooks)), follower.following("--every", "1s"):
            wait_for_port(hooks)
            assert posted(hooks, b"{}", {}) == 401
            assert posted(hooks, b"{}", {"authorization": "Bearer of both sides"}) == 204
            until(lambda: there_are(database_url) == (["1", "2026.11"], ["2026.11"]))
        code, again = follower.once()
        moved = images.push("canary", [images.file("model.onnx", example_version("visits", 3).read())])
        other = follower.once()[1]

    assert (code, again["state"], again["started"]) == (0, "done", None)
    assert (other["state"], other["label"]) == ("waiting", moved.removeprefix("sha256:")[:12])
    made = asyncio.run(sql(database_url, "SELECT version, artifact_path FROM ModelVersion ORDER BY id"))
    assert [row["artifact_path"] for row in made[1:]] == [f"{address}:canary@{one}" for one in (digest, moved)]
    [begun] = asyncio.run(sql(database_url, "SELECT plan, reason FROM Rollout WHERE kind = 'rollout'"))
    assert [step["weight_percent"] for step in json.loads(begun["plan"])["steps"]] == [1, 5, 25, 50, 100]
    assert begun["reason"] == f"oci: {address}:canary is {digest}"


def until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def posted(port: int, body: bytes, headers: dict[str, str]) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())
