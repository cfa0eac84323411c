"""An agent's control of real model servers, each in its own venv (``make test-servers``)."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers.test_real_servers import (
    DOORS,
    OTHER_VENVS,
    PROGRAMS,
    START_SECONDS,
    VENVS,
    Running,
    a_version,
    connected,
    rows_of,
    scores_of,
    stop,
)

from understudy.adapters._proto.understudy_tfserving_pb2 import ModelVersionStatus
from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.memory.agent_store import MemoryAgentStore
from understudy.adapters.memory.last_loaded import MemoryLastLoaded
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.memory.validation import MemoryValidation
from understudy.adapters.model_servers.control.kept_model import FOLDER as KEPT
from understudy.adapters.model_servers.control.kept_model import kept_name
from understudy.adapters.model_servers.control.model_service import ModelService
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import LAYOUTS
from understudy.adapters.model_servers.control.tfserving_control import TfServingControl
from understudy.adapters.model_servers.control.torchserve_control import TorchServeControl
from understudy.core.loading.served_name import served_name
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.errors import BackendUnavailable, BadAnswer, LoadRefused, ServerNotManageable
from understudy.loading.agent import Agent
from understudy.loading.memory_budget import MemoryBudget
from understudy.loading.version_work import AgentServer
from understudy.loading.without_registry import WithoutRegistry
from understudy.ports.loading.server_control import ServerControl

NAME, OTHER = served_name("visits", "1"), served_name("visits", "2")
FRAMEWORKS = {
    "mlserver": "sklearn",
    "triton": "python",
    "torchserve": "torch",
    "tensorflow": "tensorflow",
    "tfserving": "tensorflow",
}
CONFIGURED = ("tensorflow", "tfserving")
"""What takes TensorFlow Serving's configurations: TensorFlow by its rules, and the real binary."""


def started(command: Sequence[object], folder: Path, log: Path) -> "subprocess.Popen[bytes]":
    """Start a server that leads a process group of its own."""
    python = Path(str(command[0]))
    with log.open("ab") as writer:
        return subprocess.Popen(
            [*map(str, command)],
            stdout=writer,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        )


class EmptyServer:
    """A real server that starts without models, and the control of it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.framework = FRAMEWORKS[kind]
        self._ports = [free_port() for _ in range(5 if kind == "torchserve" else 2)]
        self.target = f"127.0.0.1:{self._ports[0]}"
        self._process: subprocess.Popen[bytes] | None = None
        self.control = self._control()

    async def start(self, *options: str) -> None:
        python = VENVS / OTHER_VENVS.get(self.kind, self.kind) / "bin" / "python"
        script = Path(__file__).parent / f"empty_{self.kind}.py"
        log = self.folder / "log.txt"
        self._process = await asyncio.to_thread(
            started, [python, script, self.folder, *self._ports, *options], self.folder, log
        )
        give_up = time.monotonic() + START_SECONDS
        while not await self._answers():
            has_ended = self._process.poll() is not None
            if has_ended or time.monotonic() > give_up:
                pytest.fail(f"{self.kind} did not start:\n{log.read_text(errors='replace')[-3_000:]}")
            await asyncio.sleep(0.2)

    def _control(self) -> ServerControl:
        models = self.folder / "models"
        if self.kind in CONFIGURED:
            return TfServingControl(self.target, models)
        if self.kind == "torchserve":
            return TorchServeControl(f"127.0.0.1:{self._ports[1]}", models)
        return RepositoryControl(self.target, RepositoryFolder(models, LAYOUTS[self.kind]), self.kind)

    async def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    async def close(self) -> None:
        await self.control.close()
        if self._process is not None:
            stop(self._process)

    def running(self) -> Running:
        expected = orjson.loads((self.folder / "expected.json").read_bytes())
        return Running([self.target], expected["rows"], expected["scores"])

    def version(self, name: str) -> Any:
        # An archive of TorchServe has a version of its own; the others have what the agent gives them.
        version = "1.0" if self.kind == "torchserve" else "1"
        return a_version(DOORS[self.kind], [self.target], model_name=name, version=version)

    async def scores(self, name: str) -> list[float | None]:
        version = self.version(name)
        async with connected(version) as backend:
            return await scores_of(backend, version, self.running().rows)

    async def has(self, name: str) -> bool:
        """Whether it says that it has a model; one that loads may answer no question."""
        with suppress(ServerNotManageable):
            return name in await self.control.loaded()
        return False

    async def _answers(self) -> bool:
        try:
            await self.control.loaded()
        except ServerNotManageable:
            return False
        return True


@pytest.fixture(params=FRAMEWORKS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EmptyServer]:
    if not (VENVS / OTHER_VENVS.get(request.param, request.param)).exists():
        pytest.skip(f"make test-servers installs {request.param}")
    if shutil.which(PROGRAMS.get(request.param, "sh")) is None:
        pytest.skip(f"{PROGRAMS[request.param]} is not on the PATH")
    made = EmptyServer(request.param, tmp_path)
    yield made
    await made.close()


async def test_what_is_loaded_answers_as_its_library_does_and_what_is_unloaded_is_gone(server: EmptyServer):
    await server.start()
    assert await server.control.loaded() == frozenset()
    assert (await server.control.describe()).startswith("tensorflow" if server.kind in CONFIGURED else server.kind)

    for name in (NAME, OTHER):
        await server.control.load(name, server.folder / "good", server.framework)
    assert await server.control.loaded() == {NAME, OTHER}
    assert await server.scores(NAME) == pytest.approx(server.running().scores, abs=1e-5)
    for _ in range(2):
        await server.control.unload(NAME)

    assert await server.control.loaded() == {OTHER}
    there = {path.name.removesuffix(".mar") for path in (server.folder / "models").iterdir()}
    assert there - {KEPT} == {OTHER}
    assert await server.scores(OTHER) == pytest.approx(server.running().scores, abs=1e-5)
    version = server.version(NAME)
    async with connected(version) as backend:
        with pytest.raises((BadAnswer, BackendUnavailable)):
            await backend.infer(rows_of(version, server.running().rows[:1]), 20.0)


async def test_a_broken_artifact_is_refused_with_the_servers_words_and_harms_no_other(server: EmptyServer):
    await server.start()
    await server.control.load(NAME, server.folder / "good", server.framework)

    for _ in range(2):
        async with asyncio.timeout(60):
            with pytest.raises(LoadRefused, match="the model server says: ") as refused:
                await server.control.load(OTHER, server.folder / "broken", server.framework)

    assert len(refused.value.detail) < 400
    assert await server.control.loaded() == {NAME}
    assert await server.scores(NAME) == pytest.approx(server.running().scores, abs=1e-5)


async def test_a_server_that_was_killed_is_empty_and_loads_again(server: EmptyServer):
    await server.start()
    await server.control.load(NAME, server.folder / "good", server.framework)

    await server.kill()
    with pytest.raises(ServerNotManageable):
        await server.control.loaded()
    await server.start()
    assert await server.control.loaded() == frozenset()
    await server.control.load(NAME, server.folder / "good", server.framework)

    assert await server.scores(NAME) == pytest.approx(server.running().scores, abs=1e-5)


@pytest.mark.parametrize("server", ["triton"], indirect=True)
async def test_triton_in_another_mode_is_said_to_need_the_flag(server: EmptyServer):
    await server.start("none")

    with pytest.raises(ServerNotManageable, match="start it with --model-control-mode=explicit"):
        await server.control.load(NAME, server.folder / "good", server.framework)
    assert list((server.folder / "models").iterdir()) == []


@pytest.mark.parametrize("server", ["torchserve"], indirect=True)
async def test_torchserve_with_its_model_api_off_is_said_to_need_the_flag(server: EmptyServer):
    await server.start("closed")

    with pytest.raises(ServerNotManageable) as refused:
        await server.control.load(NAME, server.folder / "good", server.framework)
    assert "--enable-model-api" in refused.value.next_step


@pytest.mark.parametrize("server", ["tensorflow"], indirect=True)
async def test_tensorflow_without_the_call_for_a_configuration_is_said_to_need_how_it_is_started(server: EmptyServer):
    await server.start("closed")

    with pytest.raises(ServerNotManageable, match="Method not implemented") as refused:
        await server.control.load(NAME, server.folder / "good", server.framework)
    assert "--model_config_file=" in refused.value.next_step
    assert [path.name for path in (server.folder / "models").iterdir()] == [KEPT]


@pytest.mark.parametrize("server", CONFIGURED, indirect=True)
async def test_the_model_that_stays_is_loaded_and_tells_starts_apart(server: EmptyServer):
    await server.start()
    await server.control.load(NAME, server.folder / "good", server.framework)
    before = await server.control.describe()
    service = ModelService(server.target)
    kept = await service.status(kept_name(before.removeprefix("tensorflow-serving start-")))

    await server.kill()
    await server.start()

    assert kept is not None
    assert (kept.state, kept.status.error_message) == (ModelVersionStatus.AVAILABLE, "")
    assert await server.control.describe() != before
    await service.close()


@pytest.mark.parametrize("server", CONFIGURED, indirect=True)
async def test_two_versions_of_a_model_answer_at_once_and_each_as_itself(server: EmptyServer, beside: "AgentBeside"):
    await server.start()
    beside.store.register(2, "visits", "2", "other", timeout_seconds=0.1, framework=server.framework)
    expected = server.running().scores

    beside.store.place(1, Why.CHAMPION)
    beside.store.place(2, Why.CHALLENGER)
    await beside.until(LoadingState.AVAILABLE)
    await beside.until(LoadingState.AVAILABLE, 2)
    champion, challenger = await asyncio.gather(server.scores(NAME), server.scores(OTHER))
    beside.store.place(2, None)
    await beside.until(LoadingState.END, 2)

    assert champion == pytest.approx(expected, abs=1e-5)
    assert challenger == pytest.approx([1 - score for score in expected], abs=1e-5)
    assert await server.control.loaded() == {NAME}
    assert await server.scores(NAME) == pytest.approx(expected, abs=1e-5)


class AgentBeside:
    """An agent of the server, whose records and placements are in this process; version 1 of visits is registered."""

    def __init__(self, server: EmptyServer) -> None:
        loop = asyncio.get_running_loop()
        self.woken = asyncio.Event()
        self.store = MemoryAgentStore(loop.time)
        self.store.register(1, "visits", "1", "good", timeout_seconds=0.1, framework=server.framework)
        stage, telemetry = FolderStage(server.folder / "stage", {"": FolderOrigin(server.folder)}), MemoryTelemetry()
        self.agent = Agent(
            AgentServer("s-0", "g", server.target),
            self.store,
            server.control,
            stage,
            telemetry,
            validation=MemoryValidation(),
            memory=MemoryBudget(stage, telemetry),
            without_registry=WithoutRegistry(server.control, stage, MemoryLastLoaded()),
            now=loop.time,
            on_progress=self.woken.set,
        )

    async def until(self, state: LoadingState, version_id: int = 1) -> None:
        """Let rounds follow each other, at progress and each second, until a version is in a state."""
        async with asyncio.timeout(60):
            while True:
                await self.agent.tick(1)
                self.woken.clear()
                if self.store.state_of(version_id) is state:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await self.woken.wait()


@pytest.fixture
async def beside(server: EmptyServer) -> AsyncIterator[AgentBeside]:
    made = AgentBeside(server)
    yield made
    await made.agent.close()


async def test_an_agent_brings_an_artifact_into_the_server_and_takes_it_out_again(
    server: EmptyServer, beside: AgentBeside
):
    await server.start()

    beside.store.place(1, Why.CHAMPION)
    await beside.until(LoadingState.AVAILABLE)
    assert await server.scores(NAME) == pytest.approx(server.running().scores, abs=1e-5)
    beside.store.place(1, None)
    await beside.until(LoadingState.END)

    assert await server.control.loaded() == frozenset()


async def test_an_agent_has_a_killed_server_load_again_at_once(server: EmptyServer, beside: AgentBeside):
    """Within five seconds beside the load itself, which is as long as after the first start: it imports libraries."""
    await server.start()
    began = time.monotonic()
    beside.store.place(1, Why.CHAMPION)
    await beside.until(LoadingState.AVAILABLE)
    first = time.monotonic() - began

    await server.kill()
    await beside.agent.tick(1)  # it does not answer
    await server.start()
    began = time.monotonic()
    await beside.agent.tick(1)  # it has come back empty
    await beside.until(LoadingState.AVAILABLE)
    took = time.monotonic() - began

    assert await server.scores(NAME) == pytest.approx(server.running().scores, abs=1e-5)
    assert took < first + 5


async def test_a_server_that_was_killed_without_postgres_has_what_it_had_from_the_stage(
    server: EmptyServer, beside: AgentBeside
):
    await server.start()
    beside.store.place(1, Why.CHAMPION)
    await beside.until(LoadingState.AVAILABLE)
    await beside.agent.tick(1)  # what was announced within a round is kept by the next one

    beside.store.available = False
    await beside.agent.close()  # as its worker does once the lease is lost
    await server.kill()
    beside.agent.look_without_registry()
    await server.start()
    async with asyncio.timeout(60):
        while not await server.has(NAME):
            beside.agent.look_without_registry()
            await asyncio.sleep(1)

    assert await server.scores(NAME) == pytest.approx(server.running().scores, abs=1e-5)
    beside.store.available = True
    await beside.until(LoadingState.AVAILABLE)
