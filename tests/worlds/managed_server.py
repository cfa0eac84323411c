"""A model server as a process that loads models while it runs, and what an agent has beside it."""

import subprocess
import sys
from pathlib import Path

from understudy.adapters.artifacts.folder_origin import FolderOrigin
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.model_servers.control.process_memory import ProcessMemory
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.core.loading.memory import PAD_BYTES
from understudy.loading.memory_budget import MemoryBudget


class ManagedServer:
    """Started when it is made; it answers then."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "understudy.entrypoints.modelserver", "--port", "0"]
        repository = folder / "models"
        self.process = subprocess.Popen(
            [*command, "--repository", str(repository), "--control-port", str(port)], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        (folder / "pid").write_text(str(self.process.pid))
        self.artifacts = folder / "artifacts"
        self.artifacts.mkdir()
        self.stage = FolderStage(folder / "stage", {"": FolderOrigin(self.artifacts)})
        self.measure = ProcessMemory(folder / "pid").use
        self.control = RepositoryControl(f"127.0.0.1:{port}", RepositoryFolder(repository))

    def budget(self, capacity_bytes: int, pad_bytes: int = PAD_BYTES) -> MemoryBudget:
        return MemoryBudget(
            self.stage,
            MemoryTelemetry(),
            capacity_bytes=capacity_bytes,
            measure=self.measure,
            pad_bytes=pad_bytes,
        )

    async def stop(self) -> None:
        await self.control.close()
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
