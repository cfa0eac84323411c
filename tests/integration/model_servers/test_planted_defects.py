"""Each defect that is planted in a version, or in its server, is found by its validation, and named for a person."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import orjson
import pytest
from command import CommandLine, Done
from e2e.stack import Process, a_stack, register, wait_for_port
from worlds.managed_server import ManagedServer
from worlds.planted_defects import PLANTS, Plant, binary, grows_when_loaded, number, three_classes, two_outputs

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.memory.agent_store import MemoryAgentStore
from understudy.adapters.memory.last_loaded import MemoryLastLoaded
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.memory.validation import MemoryValidation
from understudy.core.loading.memory import FILLED_AT_MOST, MEBIBYTE
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.loading.agent import Agent
from understudy.loading.version_work import AgentServer
from understudy.loading.without_registry import WithoutRegistry

LOAD = ("--load-seconds", "0.5")
GOOD = (
    Plant("binary", binary, "", ""),
    Plant("number", number, "", ""),
    Plant("three classes", three_classes, "", ""),
    Plant("names of three classes", lambda: three_classes(named=True), "", ""),
    Plant("two outputs", lambda: two_outputs(score_index=1), "", ""),
)
VERSIONS = (*PLANTS, *GOOD)


def _name_of(plant: Plant) -> str:
    return plant.name.replace(" ", "-")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """Each version as its author leaves it, and the port of one server of all that need none of their own."""
    folder = tmp_path_factory.mktemp("versions")
    for place, plant in enumerate(VERSIONS):
        plant.make().write(folder / f"p{place}")
    plain = [place for place, plant in enumerate(VERSIONS) if not plant.server]
    with a_stack(folder, "") as stack:
        specs = (f"p{place}:1,file={folder}/p{place}/model.onnx{VERSIONS[place].flags}" for place in plain)
        yield folder, stack.start_model(*specs, name="plain")


@pytest.fixture
async def validated(
    understudy: CommandLine, database_url: str, tmp_path: Path, artifacts: tuple[Path, int]
) -> AsyncIterator[Callable[[Plant], Awaitable[Done]]]:
    """Validates a version as a person does, and returns what they read."""
    folder, port = artifacts
    with a_stack(tmp_path, "") as stack:

        async def validate(plant: Plant) -> Done:
            name, made = f"p{VERSIONS.index(plant)}", plant.make()
            place = port if not plant.server else free_port()
            if plant.server:
                arguments = ["-m", "worlds.odd_model_server", plant.server, f"{folder / name}/model.onnx", name]
                own = {"PYTHONPATH": ":".join(sys.path)}
                stack.processes["odd"] = Process("odd", [*arguments, str(place)], tmp_path, own)
                await asyncio.to_thread(wait_for_port, place)
            columns = {"input_schema": made.input_schema, "output_schema": made.output_schema}
            columns["backend"] = {"model_name": name}
            written = {key: orjson.dumps(value).decode() for key, value in columns.items()}
            await register(database_url, 1, [place], timeout_ms=plant.timeout_ms, **written)
            return await understudy.beside("version", "validate", "visits", "1", "--cases", str(folder / name), *LOAD)

        yield validate


@pytest.mark.parametrize("plant", PLANTS, ids=_name_of)
async def test_a_planted_defect_is_found_and_named(validated, plant: Plant):
    done = await validated(plant)

    sys.stdout.write(f"{plant.name}: {done.said}\n")
    assert done.code == 1, done
    assert "✖ visits 1 is not validated" in done.said
    assert re.search(rf"✖ {plant.step} .*{plant.words}", done.said), done.said


@pytest.mark.parametrize("plant", GOOD, ids=_name_of)
async def test_the_same_version_without_a_defect_is_validated(validated, plant: Plant):
    done = await validated(plant)

    assert done.code == 0, done
    assert "✔ cases 20 cases answered as expected ✔ robustness 100 hard calls, 0 of them refused" in done.said
    assert "✔ batches as expected in calls of 128 too ✔ load" in done.said


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncIterator[ManagedServer]:
    started = await asyncio.to_thread(ManagedServer, tmp_path)
    yield started
    await started.stop()


async def test_a_version_that_takes_three_times_the_memory_is_found_by_its_agent(managed: ManagedServer):
    own = await managed.measure()
    assert own is not None
    made = grows_when_loaded(90).write(managed.artifacts / "visits")
    store, now = MemoryAgentStore(asyncio.get_running_loop().time), asyncio.get_running_loop().time
    store.register(1, "visits", "1", made.name)
    store.place(1, Why.ASKED)
    agent = Agent(
        AgentServer("onnx-0", "onnx", "127.0.0.1:1"),
        store,
        managed.control,
        managed.stage,
        MemoryTelemetry(),
        validation=MemoryValidation(),
        memory=managed.budget(int((own.resident_bytes + 60 * MEBIBYTE) / FILLED_AT_MOST)),
        without_registry=WithoutRegistry(managed.control, managed.stage, MemoryLastLoaded()),
        now=now,
        on_progress=lambda: None,
    )
    async with asyncio.timeout(60):
        while store.state_of(1) is not LoadingState.ERROR:
            await agent.tick(store.epoch)
            await asyncio.sleep(0.05)
    await agent.close()
    loaded = await managed.control.loaded()

    sys.stdout.write(f"three times the memory: {store.problem_of(1)}\n")
    assert re.fullmatch(
        r"loaded it takes \d+ MiB of memory, [23](\.\d)? times the 32 MiB that were expected, and \d\d MiB are left: of"
        r" \d+ MiB 90% may be taken, and 0 MiB are by 0 versions, \d+ MiB by the server itself",
        store.problem_of(1) or "",
    )
    assert (store.error_of(1), loaded, store.has_endpoint(1)) == ("E214", set(), False)
