"""The same predict suite against real model servers, each in its own venv (``make test-servers``)."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
import pytest

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.model_servers.connect import connect
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.tensors import Row
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded

VENVS = Path(__file__).parents[2] / ".venv-servers"
START_SECONDS = 100.0
STOP_SECONDS = 20.0
CALL_SECONDS = 20.0
WIDTH = 6


class Door(NamedTuple):
    """One way into one server."""

    server: str
    settings: dict[str, Any]
    input_name: str = "x"
    output: Mapping[str, Any] = MappingProxyType({"tensor": "p"})
    port: int = 0
    """Which of the server's ports."""
    is_frame: bool = False
    """Whether each feature is an input of its own, the column of a data frame."""


TORCHSERVE_OIP = {"service_path": "org.pytorch.serve.grpc.openinference.GRPCInferenceService"}
DOORS = {
    "mlserver": Door(
        "mlserver",
        {"protocol": "oip", "backend": {"version": "v1"}},
        "predict",
        {"tensor": "predict_proba", "shape": [2], "score_index": 1, "dtype": "float32"},
    ),
    "mlserver typed": Door(
        "mlserver",
        {"protocol": "oip", "backend": {"typed_contents": True}},
        "predict",
        {"tensor": "predict_proba", "shape": [2], "score_index": 1},
    ),
    "mlserver http": Door(
        "mlserver",
        {"protocol": "oip-http", "backend": {"version": "v1"}},
        "predict",
        {"tensor": "predict_proba", "shape": [2], "score_index": 1, "dtype": "float32"},
        port=1,
    ),
    "mlflow": Door(
        "mlflow", {"protocol": "mlflow", "backend": {}}, output={"shape": [2], "score_index": 1}, is_frame=True
    ),
    "mlflow records": Door(
        "mlflow",
        {"protocol": "mlflow", "backend": {"format": "dataframe_records"}},
        output={"shape": [2], "score_index": 1},
        is_frame=True,
    ),
    "triton": Door("triton", {"protocol": "oip", "backend": {"version": "1"}}),
    "torchserve": Door("torchserve", {"protocol": "torchserve", "backend": {"version": "1.0"}}),
    "torchserve oip": Door("torchserve", {"protocol": "oip", "backend": TORCHSERVE_OIP}),
    "tensorflow": Door("tensorflow", {"protocol": "tfserving", "backend": {"version": 1}}),
    "tensorflow latest": Door("tensorflow", {"protocol": "tfserving", "backend": {"version": 0}}),
    "tfserving": Door("tfserving", {"protocol": "tfserving", "backend": {"version": 1}}),
    "tfserving latest": Door("tfserving", {"protocol": "tfserving", "backend": {"version": 0}}),
    "tfserving http": Door("tfserving", {"protocol": "tfserving-http", "backend": {"version": "1"}}, port=1),
}
OTHER_VENVS = {"tfserving": "tensorflow"}
"""Of a server that is a program of its own: what makes its model."""
PROGRAMS = {"tfserving": "tensorflow_model_server"}
"""Servers that no package index has."""


class Running(NamedTuple):
    """A server that runs, and what its own library predicts for some rows."""

    endpoints: list[str]
    rows: list[list[float]]
    scores: list[float]


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End the server and everything that it started: it leads a process group of its own."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """Servers by name, started when first asked for."""
    with ExitStack() as stack:
        yield _Servers(stack, tmp_path_factory)


class _Servers(dict[str, Running]):
    def __init__(self, stack: ExitStack, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self._stack = stack
        self._folders = folders

    def __missing__(self, name: str) -> Running:
        folder = self._folders.mktemp(name)
        ports = [free_port() for _ in range(5)]
        python = VENVS / OTHER_VENVS.get(name, name) / "bin" / "python"
        script = Path(__file__).parent / f"start_{name}.py"
        log = self._stack.enter_context((folder / "log.txt").open("wb"))
        process = subprocess.Popen(
            [python, script, folder, *map(str, ports)],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        )
        self._stack.callback(stop, process)
        endpoints = [f"127.0.0.1:{port}" for port in ports]
        _wait_until_ready(name, endpoints, process, folder)
        expected = orjson.loads((folder / "expected.json").read_bytes())
        self[name] = Running(endpoints, expected["rows"], expected["scores"])
        return self[name]


def _wait_until_ready(name: str, endpoints: list[str], process: "subprocess.Popen[bytes]", folder: Path) -> None:
    door = next(door for door in DOORS.values() if door.server == name)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is None and asyncio.run(_is_ready(a_version(door, endpoints))):
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    pytest.fail(f"{name} did not start:\n" + (folder / "log.txt").read_text(errors="replace")[-3_000:])


async def _is_ready(version: ModelVersion) -> bool:
    async with connected(version) as backend:
        return await backend.ready(1.0) and await _answers(backend, version)


async def _answers(backend: Any, version: ModelVersion) -> bool:
    """TorchServe's Ping is well before its workers are."""
    try:
        await backend.infer(rows_of(version, [[0.0] * WIDTH]), CALL_SECONDS)
    except (BadAnswer, BackendUnavailable, DeadlineExceeded):
        return False
    return True


def a_version(door: Door, endpoints: Sequence[str], width: int = WIDTH, **changed: Any) -> ModelVersion:
    names = [f"f{index}" for index in range(width)]
    row = {
        "id": 1,
        "version": "1",
        "status": "champion",
        "endpoints": [endpoints[door.port]],
        "input_schema": {
            "features": [{"name": name, "dtype": "float32"} for name in names],
            **({} if door.is_frame else {"tensors": [{"name": door.input_name, "features": names}]}),
        },
        "output_schema": door.output,
        "deterministic": True,
        "cache_ttl_seconds": 0,
        "timeout_ms": 500,
        "protocol": door.settings["protocol"],
        "backend": {**door.settings["backend"], **changed},
    }
    return version_from_row("example", row)


def rows_of(version: ModelVersion, rows: Sequence[Sequence[float]]) -> list[Row]:
    schema = version.input_schema
    return [schema.assemble({f"f{index}": value for index, value in enumerate(row)}).row for row in rows]


async def scores_of(backend: Any, version: ModelVersion, rows: Sequence[Sequence[float]]) -> list[float | None]:
    """Everything between a caller's features and the score it gets, but for the HTTP."""
    packed, scores = rows_of(version, rows), []
    size = backend.rows_per_call or len(packed)
    for start in range(0, len(packed), size):
        some = packed[start : start + size]
        tensor = await backend.infer(some, CALL_SECONDS)
        predictions = predictions_of(version.output_schema, tensor, len(some), batch=version.input_schema.batch)
        scores += [prediction.score for prediction in predictions if isinstance(prediction, Prediction)]
    return scores


@asynccontextmanager
async def connected(version: ModelVersion) -> AsyncIterator[Any]:
    backend = connect(version)
    try:
        yield backend
    finally:
        await backend.close()


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    chosen = DOORS[request.param]
    program = PROGRAMS.get(chosen.server)
    if program is not None and shutil.which(program) is None:
        pytest.skip(f"{program} is not on the PATH: make test-tfserving runs this where it is")
    if not (VENVS / OTHER_VENVS.get(chosen.server, chosen.server)).exists():
        pytest.skip(f"make test-servers installs {chosen.server}")
    return chosen


@pytest.fixture
def server(door: Door, servers: dict[str, Running]) -> Running:
    return servers[door.server]


async def test_one_row_gets_the_score_that_the_models_own_library_gives(door: Door, server: Running):
    version = a_version(door, server.endpoints)
    async with connected(version) as backend:
        scores = await scores_of(backend, version, server.rows[:1])

    assert scores == pytest.approx(server.scores[:1], abs=1e-5)


async def test_the_rows_of_a_batch_are_answered_in_their_order(door: Door, server: Running):
    version = a_version(door, server.endpoints)
    async with connected(version) as backend:
        scores = await scores_of(backend, version, server.rows)

    assert scores == pytest.approx(server.scores, abs=1e-5)


async def test_calls_at_the_same_time_each_get_their_own_answer(door: Door, server: Running):
    version = a_version(door, server.endpoints)
    async with connected(version) as backend:
        answers = await asyncio.gather(*(scores_of(backend, version, [row]) for row in server.rows))

    assert [score for (score,) in answers] == pytest.approx(server.scores, abs=1e-5)


async def test_it_says_that_it_is_ready(door: Door, server: Running):
    async with connected(a_version(door, server.endpoints)) as backend:
        assert await backend.ready(5.0)


async def test_inputs_of_the_wrong_width_are_a_bad_answer_and_harm_nobody_else(door: Door, server: Running):
    version, wrong = a_version(door, server.endpoints), a_version(door, server.endpoints, width=WIDTH - 1)
    async with connected(version) as good, connected(wrong) as bad:
        for _ in range(4):
            with pytest.raises(BadAnswer):
                await bad.infer(rows_of(wrong, [[0.0] * (WIDTH - 1)]), CALL_SECONDS)

        assert await scores_of(good, version, server.rows[:1]) == pytest.approx(server.scores[:1], abs=1e-5)


async def test_a_model_that_the_server_does_not_have_is_refused(door: Door, server: Running):
    # MLflow's requests name no model: there the path is another one's.
    absent: dict[str, Any] = {"path_prefix": "/absent"} if door.server == "mlflow" else {"model_name": "absent"}
    version = a_version(door, server.endpoints, **absent)
    async with connected(version) as backend:
        with pytest.raises((BadAnswer, BackendUnavailable)):
            await backend.infer(rows_of(version, server.rows[:1]), CALL_SECONDS)


async def test_calls_given_up_at_their_deadline_leave_the_server_well(door: Door, server: Running):
    version = a_version(door, server.endpoints)
    async with connected(version) as backend:
        rows = rows_of(version, server.rows[:1])
        outcomes = await asyncio.gather(*(backend.infer(rows, 0.0005) for _ in range(20)), return_exceptions=True)

        scores = await scores_of(backend, version, server.rows)

    assert any(isinstance(outcome, DeadlineExceeded) for outcome in outcomes)
    assert scores == pytest.approx(server.scores, abs=1e-5)
