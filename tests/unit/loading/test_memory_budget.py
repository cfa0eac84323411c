"""What an agent tells of its server's memory, and what it keeps in mind of a version's."""

from pathlib import Path

from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.loading.memory import MEBIBYTE, PAD_BYTES, ProcessUse
from understudy.core.loading.state import LoadingState
from understudy.loading.memory_budget import Loaded, MemoryBudget
from understudy.ports.loading.agent_store import LoadingRecord, VersionAtServer


class Server:
    """A server's process, which a version of 40 MiB makes grow, and an agent's account of it."""

    def __init__(self, folder: Path) -> None:
        self.resident = 100
        self.telemetry = MemoryTelemetry()
        self.artifacts = folder / "artifacts"
        self.artifacts.mkdir()
        (self.artifacts / "model.onnx").write_bytes(b"model")
        self.stage = FolderStage(folder / "stage", {"": FolderOrigin(self.artifacts)})
        self.budget = MemoryBudget(self.stage, self.telemetry, capacity_bytes=1_000 * MEBIBYTE, measure=self.measure)

    async def measure(self) -> ProcessUse:
        return ProcessUse(self.resident * MEBIBYTE, "once")

    async def grow(self) -> None:
        self.resident += 40

    async def version(self, memory_bytes: int | None = None) -> VersionAtServer:
        staged = await self.stage.fetch("model.onnx", None)
        record = LoadingRecord(
            LoadingState.AVAILABLE, 1, may_retry=False, digest=staged.digest, memory_bytes=memory_bytes
        )
        return VersionAtServer(1, "m", "1", "", "onnx", None, 1.0, None, False, False, record)

    async def residue(self, *versions: VersionAtServer) -> float:
        await self.budget.look(versions, {one.version_id for one in versions}, is_idle=True)
        return self.telemetry.gauges["model_server_memory_bytes", "residue"] / MEBIBYTE


async def test_what_was_expected_is_told_beside_what_was_measured_and_is_a_tenth_more_at_the_next_load(tmp_path):
    server = Server(tmp_path)

    first = await server.budget.load(await server.version(), server.grow)
    assert first is not None
    second = await server.budget.load(await server.version(first.memory_bytes), server.grow)

    assert first.memory_bytes == 40 * MEBIBYTE
    assert PAD_BYTES <= first.expected_bytes < PAD_BYTES + 100
    assert second == Loaded(44 * MEBIBYTE, 40 * MEBIBYTE)


async def test_the_residue_is_told_of_a_server_that_grows_from_load_to_load(tmp_path):
    server = Server(tmp_path)
    version = await server.version(40 * MEBIBYTE)
    assert await server.residue() == 0

    found = []
    for _ in range(3):
        await server.grow()
        found.append(await server.residue(version))
        server.resident -= 10  # it should give back 40
        found.append(await server.residue())

    assert found == [0, 0, 30, 20, 60, 50]
