"""A model server without models, its agent and a monitor as processes, and artifacts for them."""

import asyncio
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from e2e.load import Connection
from e2e.stack import VISITS, Process, Stack, sql, wait_for_port

from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

GIVE_UP_SECONDS = 60.0


class Lifecycle:
    """A model server without models, its agent, and what both need to be started again.

    Each of several on one stack has a name, under which their processes are ``server`` and ``agent``, a dash and that.
    """

    def __init__(self, stack: Stack, name: str = "") -> None:
        self._stack = stack
        self.server_name = name or "onnx-0"
        self.server, self.agent = (f"{process}-{name}" if name else process for process in ("server", "agent"))
        self._stage = stack.folder / (f"stage-{name}" if name else "stage")
        self.port = free_port()
        self.control_port = free_port()
        self.root = stack.folder / "artifacts"

    def start_server(self, *more: str, module: str = "understudy.entrypoints.modelserver") -> None:
        """Start the server without models; ``more`` are further options, ``module`` is what reads them."""
        stage = self._stage / "models"
        options = ("--port", str(self.port), "--repository", str(stage), "--control-port", str(self.control_port))
        arguments = ["-m", module, *options, *more]
        tests = {"PYTHONPATH": str(Path(__file__).parents[1])}  # where a module of the tests' own is found
        self._stack.processes[self.server] = Process(self.server, arguments, self._stack.folder, tests)
        wait_for_port(self.control_port)

    def start_agent(self, store: Mapping[str, str] | None = None) -> None:
        environment = {
            "DATABASE_URL": self._stack.database_url,
            "UNDERSTUDY_SERVER_NAME": self.server_name,
            "UNDERSTUDY_SERVER_GROUP": "onnx",
            "UNDERSTUDY_SERVER_TARGET": f"127.0.0.1:{self.port}",
            "UNDERSTUDY_SERVER_CONTROL": f"127.0.0.1:{self.control_port}",
            "UNDERSTUDY_STAGE_DIR": str(self._stage),
            "UNDERSTUDY_ARTIFACT_ROOT": str(self.root),
            "UNDERSTUDY_AGENT_METRICS_PORT": "0",
            **(store or {}),
        }
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "agent"]
        self._stack.processes[self.agent] = Process(self.agent, arguments, self._stack.folder, environment)

    def start_monitor(self, name: str = "monitor", metrics_port: int = 0) -> None:
        environment = {
            "DATABASE_URL": self._stack.database_url,
            "UNDERSTUDY_MONITOR_METRICS_PORT": str(metrics_port),
            "UNDERSTUDY_INSTANCE": name,
        }
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
        self._stack.processes[name] = Process(name, arguments, self._stack.folder, environment)

    async def register(self, label: str) -> None:
        """Register a version of the example model, which agents load."""
        example, artifact = example_version("visits", 1), self.put_artifact(1)
        new = NewVersion("visits", label, artifact, "sklearn", example.input_schema, example.output_schema)
        actor = Actor("test", "cli", "it is loaded")
        await register_version(PostgresRegistry(self._stack.database_url), new._replace(group_name="onnx"), actor)

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


async def until(database_url: str, question: str, expected: Any, seconds: float = GIVE_UP_SECONDS) -> None:
    """Wait until a question to the database has an answer."""
    give_up = time.monotonic() + seconds
    while (found := (await sql(database_url, question))[0][0]) != expected:
        assert time.monotonic() < give_up, f"{question}: {found}, not {expected}"
        await asyncio.sleep(0.05)


async def predict(connection: Connection, body: bytes, give_up_seconds: float = 0.0) -> Any:
    """Call the champion until it answers, and return the answer."""
    give_up = time.monotonic() + give_up_seconds
    while True:
        answer = await connection.post(VISITS, body)
        if answer.status == 200 or time.monotonic() > give_up:
            assert answer.status == 200, answer
            return answer.json
        await asyncio.sleep(0.1)
