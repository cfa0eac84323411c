"""One real model server, and the agent beside it, as processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson
from e2e.stack import Process, Stack, sql

from rigs.server_memory.kinds import ROOT, Kind
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.torchserve_control import TorchServeControl
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.errors import ServerNotManageable
from understudy.ports.registry.registry import Actor

ACTOR: Final = Actor("rig", "cli", "its memory is measured")
GIVE_UP_SECONDS: Final = 900.0
LOOK_SECONDS: Final = 0.1
_STATE = """
    SELECT state, error_code, error, memory_bytes FROM LoadedVersion
    JOIN ModelVersion AS version ON version.id = model_version_id WHERE model_name = $1 AND version = $2
"""


class Member:
    """A server of ``kind``, and its agent, which is told that it has ``capacity_bytes``.

    The group has the kind's name. Artifacts lie in ``models``; ``environment`` is what the server finds there beside
    this process' own.
    """

    def __init__(
        self,
        stack: Stack,
        name: str,
        kind: Kind,
        capacity_bytes: int,
        *,
        models: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.folder = stack.folder / name
        self.folder.mkdir(exist_ok=True)
        self._models = models
        self._environment = environment or {}
        self._stack = stack
        self._capacity_bytes = capacity_bytes
        self._ports = [free_port() for _ in range(5 if kind.server == "torchserve" else 2)]
        self.metrics_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._loading = PostgresLoadingRegistry(stack.database_url, timeout_seconds=5.0)

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self._process is not None
        return self._process.pid

    async def start_server(self) -> None:
        """Start the server without models, and wait until it answers its control."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                env={
                    **os.environ,
                    "PATH": f"{self.kind.python.parent}:{os.environ['PATH']}",  # Triton's processes look for it there
                    **self._environment,
                },
            )
        (self.folder / "pid").write_text(str(self.pid))
        control = self._control()
        give_up = time.monotonic() + GIVE_UP_SECONDS
        try:
            while True:
                with suppress(ServerNotManageable):
                    await control.loaded()
                    return
                if self._process.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError(
                        f"{self.name} did not start: {(self.folder / 'server.log').read_text()[-2_000:]}"
                    )
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await control.close()

    def stop_server(self) -> None:
        """Kill the server and all that it has started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)
        self._process = None

    def start_agent(self) -> None:
        """Start the agent, which measures the server's process."""
        environment = {
            "DATABASE_URL": self._stack.database_url,
            "UNDERSTUDY_SERVER_NAME": f"{self.name}-0",
            "UNDERSTUDY_SERVER_GROUP": self.name,
            "UNDERSTUDY_SERVER_KIND": self.kind.server,
            "UNDERSTUDY_SERVER_TARGET": f"127.0.0.1:{self._ports[0]}",
            "UNDERSTUDY_SERVER_CONTROL": f"127.0.0.1:{self._control_port}",
            "UNDERSTUDY_SERVER_MEMORY_BYTES": str(self._capacity_bytes),
            "UNDERSTUDY_SERVER_PID_FILE": str(self.folder / "pid"),
            "UNDERSTUDY_STAGE_DIR": str(self.folder),
            "UNDERSTUDY_ARTIFACT_ROOT": str(self._models.resolve()),
            "UNDERSTUDY_AGENT_METRICS_PORT": str(self.metrics_port),
        }
        arguments = ["-m", "understudy.entrypoints.cli", "serve", "agent"]
        self._stack.processes[f"agent-{self.name}"] = Process(
            f"agent-{self.name}", arguments, self._stack.folder, environment
        )

    async def load(self, model: str, version: str) -> None:
        """Have a version loaded, and wait until it is available."""
        await self._loading.load(model, version, ACTOR, group_name=None, seconds=None)
        await self._until(model, version, "AVAILABLE")

    async def unload(self, model: str, version: str) -> None:
        """Have a version unloaded, and wait until the server has dropped it."""
        await self._loading.unload(model, version, ACTOR)
        await self._until(model, version, "END")

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return what the agent has logged of an event, the oldest first."""
        lines = self._stack.processes[f"agent-{self.name}"].log.read_bytes().splitlines()
        logged = [orjson.loads(line) for line in lines if line.startswith(b"{")]
        return [one for one in logged if one.get("event") == event]

    async def _until(self, model: str, version: str, state: str) -> None:
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:
            rows = await sql(self._stack.database_url, _STATE, model, version)
            if rows and rows[0]["state"] == state:
                return
            has_ended = self._stack.processes[f"agent-{self.name}"].child.poll() is not None
            if has_ended or (rows and rows[0]["state"] == "ERROR") or time.monotonic() > give_up:
                raise RuntimeError(f"{model} {version} is not {state}: {[dict(row) for row in rows]}")
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def _control_port(self) -> int:
        return self._ports[0] if self.kind.server in ("mlserver", "triton") else self._ports[1]

    def _command(self) -> list[str]:
        if self.kind.server == "understudy":
            port, control = self._ports
            options = ("--port", port, "--repository", self.folder / "models", "--control-port", control)
            return [sys.executable, "-m", "understudy.entrypoints.modelserver", *map(str, options)]
        script = ROOT / "tests/servers" / f"empty_{self.kind.server}.py"
        return [str(part) for part in (self.kind.python, script, self.folder, *self._ports)]

    def _control(self) -> RepositoryControl | TorchServeControl:
        models = self.folder / "models"
        if self.kind.server == "torchserve":
            return TorchServeControl(f"127.0.0.1:{self._control_port}", models)
        return RepositoryControl(f"127.0.0.1:{self._control_port}", RepositoryFolder(models), self.kind.server)


@asynccontextmanager
async def a_member(
    stack: Stack,
    name: str,
    kind: Kind,
    capacity_bytes: int,
    *,
    models: Path,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Member]:
    """Give a server that runs, and its agent; afterwards both are ended."""
    member = Member(stack, name, kind, capacity_bytes, models=models, environment=environment)
    try:
        await member.start_server()
        member.start_agent()
        yield member
    finally:
        agent = stack.processes.pop(f"agent-{name}", None)
        if agent is not None:
            agent.stop()
        member.stop_server()
