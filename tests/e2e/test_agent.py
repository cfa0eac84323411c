"""From a registered artifact to a served version, and back: proxy, monitor, agent and model server as processes."""

import asyncio
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from command import CommandLine
from e2e.load import Connection
from e2e.stack import PREDICT_BODIES, VISITS, Process, Stack, a_stack, sql, wait_for_port
from oci_registry_server import LOGINS_OF, PASSWORD, TOKEN, a_registry
from s3_server import LOGIN, an_s3_server, make_bucket, put_object

from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = pytest.mark.timeout(180)
GIVE_UP_SECONDS = 60.0


class Lifecycle:
    """A model server without models, its agent, and what both need to be started again."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.port = free_port()
        self.control_port = free_port()
        self.root = stack.folder / "artifacts"

    def start_server(self) -> None:
        stage = self._stack.folder / "stage/models"
        options = ("--port", str(self.port), "--repository", str(stage), "--control-port", str(self.control_port))
        arguments = ["-m", "understudy.entrypoints.modelserver", *options]
        self._stack.processes["server"] = Process("server", arguments, self._stack.folder)
        wait_for_port(self.control_port)

    def start_agent(self, store: Mapping[str, str] | None = None) -> None:
        environment = {
            "DATABASE_URL": self._stack.database_url,
            "UNDERSTUDY_SERVER_NAME": "onnx-0",
            "UNDERSTUDY_SERVER_GROUP": "onnx",
            "UNDERSTUDY_SERVER_TARGET": f"127.0.0.1:{self.port}",
            "UNDERSTUDY_SERVER_CONTROL": f"127.0.0.1:{self.control_port}",
            "UNDERSTUDY_STAGE_DIR": str(self._stack.folder / "stage"),
            "UNDERSTUDY_ARTIFACT_ROOT": str(self.root),
            "UNDERSTUDY_AGENT_METRICS_PORT": "0",
            **(store or {}),
        }
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "agent"]
        self._stack.processes["agent"] = Process("agent", arguments, self._stack.folder, environment)

    def start_monitor(self) -> None:
        environment = {"DATABASE_URL": self._stack.database_url, "UNDERSTUDY_MONITOR_METRICS_PORT": "0"}
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
        self._stack.processes["monitor"] = Process("monitor", arguments, self._stack.folder, environment)

    def kill(self, name: str) -> None:
        self._stack.processes[name].signal(signal.SIGKILL)
        self._stack.processes[name].child.wait(10)

    def put_artifact(self, label: int) -> str:
        """Put an example model where the agent reads artifacts, and return its path below there."""
        place = self.root / f"visits/{label}/model.onnx"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(example_version("visits", label).read())
        return f"visits/{label}/model.onnx"

    def put_cases(self, label: int, *cases: dict[str, Any]) -> str:
        """Put an example model and its cases where the agent reads artifacts, and return the folder's path below."""
        folder = (self.root / self.put_artifact(label)).parent
        (folder / "validation_cases.json").write_bytes(orjson.dumps(cases))
        return f"visits/{label}"

    def describe(self, label: int) -> Path:
        """Write what a person knows of the version, and return the file."""
        example = example_version("visits", label)
        described = {
            "framework": "sklearn",
            "input_schema": example.input_schema,
            "output_schema": example.output_schema,
            "timeout_ms": 1_000,
        }
        place = self._stack.folder / f"visits-{label}.json"
        place.write_bytes(orjson.dumps(described))
        return place


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def until(database_url: str, question: str, expected: Any) -> None:
    """Wait until a question to the database has an answer."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while (found := (await sql(database_url, question))[0][0]) != expected:
        assert time.monotonic() < give_up, f"{question}: {found}, not {expected}"
        await asyncio.sleep(0.05)


async def state_of(database_url: str, label: int) -> str:
    rows = await sql(
        database_url,
        "SELECT state FROM LoadedVersion JOIN ModelVersion ON id = model_version_id WHERE version = $1",
        str(label),
    )
    return str(rows[0][0]) if rows else ""


async def predict(connection: Connection, body: bytes, give_up_seconds: float = 0.0) -> Any:
    """Call the champion until it answers, and return the answer."""
    give_up = time.monotonic() + give_up_seconds
    while True:
        answer = await connection.post(VISITS, body)
        if answer.status == 200 or time.monotonic() > give_up:
            assert answer.status == 200, answer
            return answer.json
        await asyncio.sleep(0.1)


async def test_a_registered_artifact_is_served_survives_kills_and_is_unloaded_once_no_proxy_calls_it(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    lifecycle.start_agent()
    stack.start_proxy()
    for label in (1, 2):
        artifact = lifecycle.put_artifact(label)
        registered = await understudy.beside(
            *("version", "register", "visits", str(label), "--from", str(lifecycle.describe(label))),
            *("--artifact", artifact, "--group", "onnx"),
        )
        assert registered.code == 0, registered
    loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--json")
    assert loaded.code == 0, loaded

    set_policy = await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
    assert set_policy.code == 0, set_policy
    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        first = await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)

        lifecycle.kill("agent")
        lifecycle.kill("server")
        lifecycle.start_server()
        lifecycle.start_agent()
        again = await predict(connection, PREDICT_BODIES[1], GIVE_UP_SECONDS)
        await until(database_url, "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'", 2)

        refused = await understudy.beside("version", "unload", "visits", "1")
        unloaded = await understudy.beside("version", "unload", "visits", "2")
        assert (refused.code, unloaded.code) == (7, 0), (refused, unloaded)
        seen = await states_until_end(database_url, 2)
        last = await predict(connection, PREDICT_BODIES[2])

    assert [answer["version"] for answer in (first, again, last)] == ["1", "1", "1"]
    # The endpoint went first, and the server dropped the version when no proxy could call it any more.
    assert seen[:1] == ["QUIESCING"]
    assert seen[-1] == "END"
    rows = await sql(database_url, "SELECT version FROM ModelEndpoint JOIN ModelVersion v ON v.id = model_version_id")
    assert [row[0] for row in rows] == ["1"]


async def states_until_end(database_url: str, label: int) -> list[str]:
    """Return the states of a version without an endpoint, in order, until it has ended."""
    seen: list[str] = []
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while seen[-1:] != ["END"]:
        assert time.monotonic() < give_up, seen
        state = await state_of(database_url, label)
        if state != "AVAILABLE" and state not in seen[-1:]:
            seen.append(state)
        await asyncio.sleep(0.02)
    return seen


async def test_a_version_that_does_not_answer_its_cases_as_expected_is_not_announced_and_the_case_is_named(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    lifecycle.start_agent()
    inputs = orjson.loads(PREDICT_BODIES[0])["inputs"]
    good = {**inputs, "expected": 0.5, "tolerance_abs": 1}
    artifacts = {
        1: lifecycle.put_cases(1, good),
        2: lifecycle.put_cases(2, good, {**inputs, "case_id": "high", "expected": 7}),
    }
    for label, artifact in artifacts.items():
        registered = await understudy.beside(
            *("version", "register", "visits", str(label), "--from", str(lifecycle.describe(label))),
            *("--artifact", artifact, "--group", "onnx"),
        )
        assert registered.code == 0, registered

    loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--json")
    failed = await understudy.beside("version", "load", "visits", "2", "--wait", "--json")
    refused = await understudy.beside("model", "set", "visits", "--champion", "2", "--reason", "no", "--yes")

    assert loaded.code == 0, loaded
    assert failed.code == 1, failed
    (server,) = failed.document["loading"]["servers"]
    assert (server["state"], server["error_code"], server["will_retry"]) == ("ERROR", "E216", False)
    assert server["error"].startswith("case high (2 of 2): ")
    assert refused.code == 7, refused
    assert "version 2 of visits is loaded on no server (onnx-0: ERROR E216)" in refused.said
    ((endpoints,),) = await sql(database_url, "SELECT count(*) FROM ModelEndpoint")
    assert endpoints == 1


async def test_a_version_is_loaded_from_a_bucket_and_answers_and_one_whose_objects_were_changed_is_not(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    stack.start_proxy()
    with an_s3_server(stack.folder) as endpoint:
        make_bucket(endpoint, "models")
        for label in (1, 2):
            put_object(endpoint, "models", f"visits/{label}/model.onnx", example_version("visits", label).read())
        store = {"UNDERSTUDY_ARTIFACT_STORES": "s3://models/visits", "UNDERSTUDY_ARTIFACT_ENDPOINT": endpoint, **LOGIN}
        lifecycle.start_agent(store)
        for label in (1, 2):
            registered = await understudy.beside(
                *("version", "register", "visits", str(label), "--from", str(lifecycle.describe(label))),
                *("--artifact", f"s3://models/visits/{label}", "--group", "onnx"),
                **store,
            )
            assert registered.code == 0, registered
        pins = "SELECT count(*) FROM ModelVersion WHERE artifact_digest ~ '^sha256:'"
        assert (await sql(database_url, pins))[0][0] == 2  # before an agent has fetched anything
        loaded = [await understudy.beside("version", "load", "visits", label, "--wait", "--json") for label in "12"]
        assert [done.code for done in loaded] == [0, 0], loaded
        await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
        with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
            answer = await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)

        # A server beside whose stage is gone fetches again what was registered, and takes nothing else for it.
        lifecycle.kill("agent")
        shutil.rmtree(stack.folder / "stage/artifacts")
        lifecycle.kill("server")
        put_object(endpoint, "models", "visits/2/model.onnx", example_version("visits", 1).read())
        lifecycle.start_server()
        lifecycle.start_agent(store)
        question = "SELECT max(error_code) FROM LoadedVersion WHERE state = 'ERROR'"
        await until(database_url, question, "E212")
        await until(database_url, "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'", 1)

    assert answer["version"] == "1"
    assert LOGIN["AWS_SECRET_ACCESS_KEY"] not in stack.processes["agent"].log.read_text()


async def test_a_version_is_loaded_from_an_image_registry_by_the_digest_that_its_tag_had_when_it_was_registered(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    stack.start_proxy()
    with a_registry("token") as registry:
        content = example_version("visits", 1).read()
        manifest = registry.push("canary", [registry.file("model.onnx", content)])
        address = f"oci://{registry.name}/models/visits"
        logins = stack.folder / "config.json"
        logins.write_text(LOGINS_OF.format(registry.name))
        store = {"UNDERSTUDY_ARTIFACT_STORES": address, "UNDERSTUDY_OCI_LOGINS_FILE": str(logins)}
        registered = await understudy.beside(
            *("version", "register", "visits", "1", "--from", str(lifecycle.describe(1))),
            *("--artifact", f"{address}:canary", "--group", "onnx"),
            **store,
        )
        assert registered.code == 0, registered
        registry.push("canary", [registry.file("model.onnx", b"no model")])
        lifecycle.start_agent(store)
        loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--json")
        assert loaded.code == 0, loaded
        await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
        with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
            answer = await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)

    assert answer["version"] == "1"
    ((path,),) = await sql(database_url, "SELECT artifact_path FROM ModelVersion")
    assert path == f"{address}:canary@{manifest}"
    log = stack.processes["agent"].log.read_text()
    assert [secret for secret in (PASSWORD, TOKEN) if secret in log] == []
