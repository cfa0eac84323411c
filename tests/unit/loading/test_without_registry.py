"""What a server that comes back empty is given while Postgres is away, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
from virtual_time import run_in_virtual_time

from understudy.adapters.memory.artifact_stage import MemoryArtifactStage
from understudy.adapters.memory.last_loaded import MemoryLastLoaded
from understudy.adapters.memory.lease import MemoryLease
from understudy.adapters.memory.server_control import MemoryServerControl
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.loading.served_name import served_name
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.loading.without_registry import MAX_PAUSE_SECONDS, WithoutRegistry
from understudy.monitoring.worker import MonitorWorker
from understudy.ports.loading.agent_store import LoadingRecord, VersionAtServer
from understudy.ports.loading.last_loaded import LoadedModel

FIRST, SECOND, NEXT = (served_name("visits", version) for version in "123")
OPERATORS_OWN = "resnet50"


class SlowControl(MemoryServerControl):
    """A server that answers while it loads, which takes half a minute."""

    async def load(self, name: str, folder: Path, framework: str) -> None:
        await asyncio.sleep(30)
        await super().load(name, folder, framework)


class Outage:
    """Postgres is away, and a server that had the first two versions of visits was restarted: it is empty."""

    def __init__(self, folder: Path, control: MemoryServerControl) -> None:
        self.folder = folder
        self.control = control
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


def a_version(number: int) -> VersionAtServer:
    record = LoadingRecord(LoadingState.AVAILABLE, 1, may_retry=False, digest=f"sha256:{number}")
    return VersionAtServer(number, "visits", str(number), "", "onnx", None, 1.0, Why.ASKED, True, True, record)


def in_an_outage(
    folder: Path, scenario: Callable[[Outage], Awaitable[None]], *, control: MemoryServerControl | None = None
) -> None:
    async def run() -> None:
        outage = Outage(folder, control or MemoryServerControl())
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


def test_a_standby_ends_what_it_loads_once_postgres_answers_that_another_agent_leads(tmp_path):
    async def scenario(outage: Outage) -> None:
        now = asyncio.get_running_loop().time
        lease = MemoryLease(now)
        lease.available = False
        standby = MonitorWorker(
            lease,
            [],
            MemoryTelemetry(),
            holder="a:1:x",
            finish_seconds=1,
            now=now,
            unix=now,
            stranded=outage.without.look,
            answered=outage.without.close,
        )
        running = asyncio.create_task(standby.run())
        await asyncio.sleep(10)
        lease.available = True
        assert await lease.take_or_renew("b:2:y") is not None
        for _ in range(60):
            await asyncio.sleep(1)
            await lease.take_or_renew("b:2:y")
        standby.stop()
        await running

        assert await outage.loaded() == set()

    in_an_outage(tmp_path, scenario, control=SlowControl())


def test_nothing_more_is_loaded_once_another_agent_has_loaded_something(tmp_path):
    async def scenario(outage: Outage) -> None:
        outage.without.look()
        await asyncio.sleep(15)
        await MemoryServerControl.load(outage.control, NEXT, tmp_path, "onnx")

        await outage.look_for(90)

        assert len(await outage.loaded()) == 2  # the one that was under way is not taken back

    in_an_outage(tmp_path, scenario, control=SlowControl())


def test_a_load_that_fails_once_is_made_up_for(tmp_path):
    async def scenario(outage: Outage) -> None:
        outage.control.refuses = {SECOND}
        await outage.look_for(1)
        assert await outage.loaded() == {FIRST}
        outage.control.refuses = set()

        await outage.look_for(10)

        assert await outage.loaded() == {FIRST, SECOND}

    in_an_outage(tmp_path, scenario)


def test_a_server_that_is_restarted_again_and_again_gets_everything_again(tmp_path):
    async def scenario(outage: Outage) -> None:
        for _ in range(3):
            outage.control.restart()
            await outage.look_for(60)

            assert await outage.loaded() == {FIRST, SECOND}

    in_an_outage(tmp_path, scenario)


def test_what_another_agent_unloads_of_what_was_loaded_again_stays_unloaded(tmp_path):
    async def scenario(outage: Outage) -> None:
        await outage.look_for(5)
        await outage.control.unload(FIRST)

        await outage.look_for(60)

        assert await outage.loaded() == {SECOND}

    in_an_outage(tmp_path, scenario)


def test_a_version_that_is_not_on_the_stage_is_said_to_be_missing_once_and_never_to_be_loaded(tmp_path):
    async def scenario(outage: Outage) -> None:
        outage.stage.staged = {f"sha256:{FIRST}"}
        with structlog.testing.capture_logs() as logged:
            await outage.look_for(60)

        said = {line["event"]: (line["name"], line.get("problem")) for line in logged}
        assert len(logged) == 2
        assert said["agent.loaded_without_registry"] == (FIRST, None)
        assert said["agent.not_loaded_again"] == (SECOND, "not on the stage, or damaged there")

    in_an_outage(tmp_path, scenario)


def test_a_version_that_the_server_refuses_is_tried_ever_more_seldom(tmp_path):
    async def scenario(outage: Outage) -> None:
        outage.control.refuses = {FIRST, SECOND}
        with structlog.testing.capture_logs() as logged:
            await outage.look_for(600)

        assert outage.control.asked <= 2 * (5 + 600 / MAX_PAUSE_SECONDS)
        assert len(logged) == 2

    in_an_outage(tmp_path, scenario)


def test_what_could_not_be_kept_is_kept_by_a_later_round_that_finds_the_same(tmp_path):
    async def scenario(outage: Outage) -> None:
        outage.last.is_writable = False
        await outage.without.note([a_version(3)])
        await asyncio.sleep(1)
        outage.last.is_writable = True

        await outage.without.note([a_version(3)])
        await asyncio.sleep(1)

        assert {model.name for model in outage.last.kept} == {NEXT}

    in_an_outage(tmp_path, scenario)


def test_a_disk_that_hangs_holds_up_no_round_and_gets_what_the_last_one_found(tmp_path):
    async def scenario(outage: Outage) -> None:
        outage.last.goes_on = asyncio.Event()
        for found in ([a_version(1)], [a_version(1), a_version(2)], [a_version(3)]):
            async with asyncio.timeout(1):
                await outage.without.note(found)
            await asyncio.sleep(5)

        outage.last.goes_on.set()
        await asyncio.sleep(1)

        assert {model.name for model in outage.last.kept} == {NEXT}

    in_an_outage(tmp_path, scenario)


def test_an_agent_that_leads_again_keeps_what_it_finds_over_what_another_one_kept_meanwhile(tmp_path):
    async def scenario(outage: Outage) -> None:
        await outage.without.note([a_version(3)])
        await asyncio.sleep(1)
        await outage.without.close()
        await outage.last.keep(outage.models)

        await outage.without.note([a_version(3)])
        await asyncio.sleep(1)

        assert {model.name for model in outage.last.kept} == {NEXT}

    in_an_outage(tmp_path, scenario)
