"""A canary through a real proxy: monitor, agent and proxy as processes before a server that takes configurations.

``make test-servers`` runs it on TensorFlow by TensorFlow Serving's rules, ``make test-tfserving`` on the real binary.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from command import CommandLine
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, predict, until
from e2e.load import Connection
from e2e.stack import a_stack
from servers.test_model_control import CONFIGURED, EmptyServer, server
from servers.test_real_servers import WIDTH

__all__ = ["server"]
pytestmark = pytest.mark.timeout(300)
NAMES = [f"f{place}" for place in range(WIDTH)]
DESCRIBED = {
    "framework": "tensorflow",
    "protocol": "tfserving",
    "backend": {"version": 1},
    "input_schema": {
        "features": [{"name": name, "dtype": "float32"} for name in NAMES],
        "tensors": [{"name": "x", "features": NAMES}],
    },
    "output_schema": {"tensor": "p"},
    "timeout_ms": 2_000,
}
AVAILABLE = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'"


class Canary:
    """The processes, and a caller of many entities."""

    def __init__(self, server: EmptyServer, lifecycle: Lifecycle, port: int) -> None:
        self.server = server
        self.lifecycle = lifecycle
        self._port = port
        self.row = server.running().rows[0]
        self.expected = server.running().scores[0]

    async def scores_by_version(self, entities: int = 60) -> dict[str, set[float]]:
        """Return the scores that each version gave for one row, of as many entities."""
        found: defaultdict[str, set[float]] = defaultdict(set)
        with closing(Connection("127.0.0.1", self._port)) as connection:
            for entity in range(entities):
                body = {"entity_id": f"e{entity}", "inputs": dict(zip(NAMES, self.row, strict=True))}
                answer = await predict(connection, orjson.dumps(body), GIVE_UP_SECONDS)
                found[answer["version"]].add(round(answer["prediction"]["score"], 4))
        return found


@pytest.fixture
async def canary(server: EmptyServer, tmp_path: Path, database_url: str) -> AsyncIterator[Canary]:
    await server.start()
    (tmp_path / "mounted").symlink_to(server.folder / "models")
    (tmp_path / "version.json").write_bytes(orjson.dumps(DESCRIBED))
    with a_stack(tmp_path, database_url) as stack:
        lifecycle = Lifecycle(stack)
        lifecycle.start_monitor()
        lifecycle.start_agent(
            {
                "UNDERSTUDY_SERVER_KIND": "tfserving",
                "UNDERSTUDY_SERVER_TARGET": server.target,
                "UNDERSTUDY_SERVER_CONTROL": server.target,
                "UNDERSTUDY_SERVER_MODELS_DIR": str(tmp_path / "mounted"),
                "UNDERSTUDY_STAGE_DIR": str(server.folder),
                "UNDERSTUDY_ARTIFACT_ROOT": str(server.folder),
            }
        )
        yield Canary(server, lifecycle, stack.start_proxy())


@pytest.mark.parametrize("server", CONFIGURED, indirect=True)
async def test_a_canary_shares_the_calls_of_its_model_and_outlives_neither_its_unload_nor_a_kill_of_the_server(
    canary: Canary, database_url: str, tmp_path: Path, understudy: CommandLine
):
    async def done(*arguments: str) -> None:
        result = await understudy.beside(*arguments)
        assert result.code == 0, result

    described = str(tmp_path / "version.json")
    for label, artifact in (("1", "good"), ("2", "other")):
        register = ("version", "register", "visits", label, "--from", described, "--artifact", artifact)
        await done(*register, "--group", "onnx")
        await done("version", "load", "visits", label, "--wait")
    change = ("model", "set", "visits", "--yes", "--reason", "a canary")
    await done(*change, "--champion", "1", "--challenger", "2", "--weight", "30")
    shared = await canary.scores_by_version()

    await done(*change, "--weight", "0")
    await done(*change, "--challenger", "none")
    await done("version", "unload", "visits", "2")
    await until(database_url, "SELECT count(*) FROM LoadedVersion WHERE state = 'END'", 1)
    alone = await canary.scores_by_version()
    loaded = await canary.server.control.loaded()
    await canary.server.kill()
    await canary.server.start()
    began = time.monotonic()
    while not await canary.server.control.loaded():
        assert time.monotonic() - began < GIVE_UP_SECONDS
        await asyncio.sleep(0.05)
    came_back = time.monotonic() - began
    again = await canary.scores_by_version()

    champion, challenger = round(canary.expected, 4), round(1 - canary.expected, 4)
    assert shared == {"1": {champion}, "2": {challenger}}
    assert alone == again == {"1": {champion}}
    assert len(loaded) == 1
    assert came_back < 5
