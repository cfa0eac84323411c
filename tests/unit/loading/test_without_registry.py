"""What a server that comes back empty is given while Postgres is away, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from virtual_time import run_in_virtual_time

from understudy.adapters.memory.artifact_stage import MemoryArtifactStage
from understudy.adapters.memory.last_loaded import MemoryLastLoaded
from understudy.adapters.memory.server_control import MemoryServerControl
from understudy.core.loading.served_name import served_name
from understudy.loading.without_registry import WithoutRegistry
from understudy.ports.loading.last_loaded import LoadedModel

FIRST, SECOND, NEXT = (served_name("visits", version) for version in "123")
OPERATORS_OWN = "resnet50"


class Outage:
    """Postgres is away, and a server that had the first two versions of visits was restarted: it is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control = MemoryServerControl()
        self.stage = MemoryArtifactStage(folder)
        self.last = MemoryLastLoaded()
        self.models = [LoadedModel(name, f"sha256:{name}", "onnx") for name in (FIRST, SECOND)]
        self.last.kept = frozenset(self.models)
        self.stage.staged = {model.digest for model in self.models}
        self.without = WithoutRegistry(self.control, self.stage, self.last)

    async def look_for(self, seconds: int) -> None:
        """Look each second, as a worker has it done that cannot ask for its lease."""
        for _ in range(seconds):
            self.without.look()
            await asyncio.sleep(1)

    async def load(self, *names: str) -> None:
        """Load models as others do: another agent, or an operator."""
        for name in names:
            await self.control.load(name, self.folder, "onnx")

    async def loaded(self) -> set[str]:
        return set(await self.control.loaded())


def in_an_outage(folder: Path, scenario: Callable[[Outage], Awaitable[None]]) -> None:
    async def run() -> None:
        outage = Outage(folder)
        await scenario(outage)
        await outage.without.close()

    run_in_virtual_time(run())


def test_a_server_that_has_what_another_agent_gave_it_is_left_alone(tmp_path):
    async def scenario(outage: Outage) -> None:
        await outage.load(NEXT)  # which is on no list of this agent

        await outage.look_for(20)

        assert await outage.loaded() == {NEXT}
        assert outage.control.asked == 1

    in_an_outage(tmp_path, scenario)


def test_what_operators_loaded_themselves_does_not_keep_a_server_from_what_it_had(tmp_path):
    async def scenario(outage: Outage) -> None:
        await outage.load(OPERATORS_OWN)

        await outage.look_for(2)

        assert await outage.loaded() == {OPERATORS_OWN, FIRST, SECOND}

    in_an_outage(tmp_path, scenario)
