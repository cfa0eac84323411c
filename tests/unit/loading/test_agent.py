"""An agent's rounds in virtual time, with the twins of the server, the stage and the records."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from virtual_time import run_in_virtual_time

from understudy.adapters.memory.agent_store import MemoryAgentStore
from understudy.adapters.memory.artifact_stage import MemoryArtifactStage
from understudy.adapters.memory.last_loaded import MemoryLastLoaded
from understudy.adapters.memory.server_control import MemoryServerControl
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.memory.validation import MemoryValidation
from understudy.core.loading.giving_way import KEPT_SECONDS, Transition
from understudy.core.loading.memory import MEBIBYTE, ProcessUse
from understudy.core.loading.served_name import served_name
from understudy.core.loading.state import MAX_ATTEMPTS, MAX_COUNTED, LoadingState
from understudy.core.loading.wanted import Why
from understudy.errors import ArtifactForbidden, ArtifactNotTaken, LeadershipLost, LoadRefused, RegistryUnavailable
from understudy.loading.agent import (
    QUIESCING_ROUND_SECONDS,
    Agent,
)
from understudy.loading.memory_budget import MemoryBudget
from understudy.loading.server_absence import AWAY_ROUND_SECONDS, MAX_AWAY_SECONDS
from understudy.loading.sudden_unplacing import DOUBT_SECONDS
from understudy.loading.unload_wait import LAST_CALLS_SECONDS, SILENT_SECONDS
from understudy.loading.version_work import AgentServer
from understudy.loading.without_registry import WithoutRegistry
from understudy.ports.loading.artifact_stage import Staged

ROUND_SECONDS = 5.0
NAME, NEXT = served_name("visits", "1"), served_name("visits", "2")


class World:
    """An agent with everything around it; version 1 and 2 of visits are registered, and their artifacts are there."""

    def __init__(
        self, folder: Path, memory_bytes: int | None = None, transition: Transition = Transition.AVAILABILITY
    ) -> None:
        self.memory_bytes = memory_bytes
        self.transition = transition
        self.taken: Callable[[], int] | None = None
        """How much the server's process takes; ``None``: that is not measured."""
        self.now = asyncio.get_running_loop().time
        self.store = MemoryAgentStore(self.now)
        self.control = MemoryServerControl()
        self.stage = MemoryArtifactStage(folder)
        self.validation = MemoryValidation()
        self.last = MemoryLastLoaded()
        self.telemetry = MemoryTelemetry()
        self.woken = asyncio.Event()
        for number in (1, 2):
            self.register(number, "visits", str(number))
        self.agent = self.new_agent()

    def register(self, number: int, model_name: str, label: str) -> None:
        """Register a version whose artifact is there."""
        self.store.register(number, model_name, label, f"visits/{number}")
        self.stage.artifacts[f"visits/{number}"] = b"weights of %d" % number

    async def load_models(self, count: int) -> None:
        """Let one version of each of so many models be loaded: m1 with the id 1, and so on."""
        for number in range(1, count + 1):
            self.register(number, f"m{number}", "1")
            self.store.place(number, Why.ASKED)
        await self.run_for(20)

    def new_agent(self) -> Agent:
        server = AgentServer("onnx-0", "onnx", "10.0.0.7:8500", self.transition)
        return Agent(
            server,
            self.store,
            self.control,
            self.stage,
            self.telemetry,
            validation=self.validation,
            memory=MemoryBudget(
                self.stage, self.telemetry, capacity_bytes=self.memory_bytes, measure=self.measure_process
            ),
            without_registry=WithoutRegistry(self.control, self.stage, self.last),
            now=self.now,
            on_progress=self.woken.set,
        )

    async def measure_process(self) -> ProcessUse | None:
        return None if self.taken is None else ProcessUse(self.taken(), "once")

    async def run_for(self, seconds: float) -> None:
        """Let rounds follow each other as the worker runs them: at progress, and else every five seconds."""
        end = self.now() + seconds
        while self.now() < end:
            await self.agent.tick(self.store.epoch)
            try:
                async with asyncio.timeout(min(ROUND_SECONDS, end - self.now())):
                    await self.woken.wait()
            except TimeoutError:
                continue
            self.woken.clear()

    async def loaded(self) -> set[str]:
        return set(await self.control.loaded())


def in_a_world(
    folder: Path,
    scenario: Callable[[World], Awaitable[None]],
    *,
    memory_bytes: int | None = None,
    transition: Transition = Transition.AVAILABILITY,
) -> None:
    async def run() -> None:
        world = World(folder, memory_bytes, transition)
        await scenario(world)
        await world.agent.close()

    run_in_virtual_time(run())


def test_a_wanted_version_is_fetched_loaded_and_then_gets_its_endpoint(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        await world.run_for(0.5)

        assert await world.loaded() == {NAME}
        assert world.store.state_of(1) is LoadingState.AVAILABLE
        assert world.store.has_endpoint(1)

    in_a_world(tmp_path, scenario)


def test_an_unwanted_version_loses_its_endpoint_first_and_is_unloaded_once_no_proxy_can_call_it(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        world.store.unread_proxies = 2

        world.store.place(1, None)
        await world.run_for(30)
        assert not world.store.has_endpoint(1)
        assert world.store.state_of(1) is LoadingState.QUIESCING
        assert await world.loaded() == {NAME}

        world.store.unread_proxies = 0
        await world.run_for(1 + LAST_CALLS_SECONDS - 0.1)  # the version's own time-out is a second
        assert await world.loaded() == {NAME}
        await world.run_for(0.2)  # and no round later

        assert await world.loaded() == set()
        assert world.store.state_of(1) is LoadingState.END

    in_a_world(tmp_path, scenario)


def test_a_version_is_unloaded_a_second_after_proxies_have_said_that_none_of_its_calls_is_left(tmp_path):
    async def scenario(world: World) -> None:
        world.store.register(3, "visits", "3", "visits/1", timeout_seconds=30.0)
        world.store.place(3, Why.ASKED)
        await world.run_for(1)
        world.store.unread_proxies = 1
        world.store.place(3, None)
        await world.run_for(5)

        world.store.unread_proxies = 0
        world.store.calls_are_over = True
        await world.run_for(LAST_CALLS_SECONDS - 0.1)
        assert await world.loaded() != set()
        await world.run_for(QUIESCING_ROUND_SECONDS + 0.1)

        assert await world.loaded() == set()

    in_a_world(tmp_path, scenario)


def test_a_proxy_that_never_says_that_it_has_read_the_removal_keeps_a_version_for_fifteen_minutes(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        world.store.unread_proxies = 1
        world.store.place(1, None)

        await world.run_for(SILENT_SECONDS)
        assert await world.loaded() == {NAME}
        await world.run_for(10)

        assert await world.loaded() == set()

    in_a_world(tmp_path, scenario)


def test_a_server_that_was_restarted_gets_its_versions_again_and_proxies_do_not_call_it_meanwhile(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        world.control.restart()

        await world.agent.tick(world.store.epoch)
        assert not world.store.has_endpoint(1)
        await world.run_for(1)

        assert await world.loaded() == {NAME}
        assert world.store.has_endpoint(1)

    in_a_world(tmp_path, scenario)


def test_a_server_that_comes_back_empty_is_noticed_within_a_second(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        await world.run_for(1)
        world.control.available = False
        await world.run_for(7.5)
        world.control.restart()
        world.control.available = True

        await world.run_for(1.1)

        assert await world.loaded() == {NAME}

    in_a_world(tmp_path, scenario)


def test_a_server_that_stays_away_is_looked_at_every_five_seconds_after_a_minute(tmp_path):
    async def scenario(world: World) -> None:
        world.control.available = False
        await world.run_for(MAX_AWAY_SECONDS)
        looked = len(world.store.reports)
        assert looked == pytest.approx(MAX_AWAY_SECONDS / AWAY_ROUND_SECONDS, abs=2)

        await world.run_for(60)

        assert len(world.store.reports) - looked == pytest.approx(60 / ROUND_SECONDS, abs=2)

    in_a_world(tmp_path, scenario)


def test_the_last_endpoint_of_a_version_with_a_role_stays_while_its_server_is_restarted(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION, has_role=True)
        await world.run_for(1)
        world.control.restart()

        await world.agent.tick(world.store.epoch)
        assert world.store.has_endpoint(1)
        await world.run_for(1)

        assert await world.loaded() == {NAME}
        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_while_the_server_is_away_nothing_is_concluded_and_it_is_said_which_server(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        await world.run_for(1)
        world.control.available = False

        await world.run_for(60)

        assert world.store.has_endpoint(1)
        assert world.store.reports[-1].problem.startswith("E215 ")
        assert world.telemetry.gauges["model_server_unmanageable",] == 1

    in_a_world(tmp_path, scenario)


def test_an_agent_that_is_killed_at_any_moment_leaves_what_the_next_one_finishes(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        for _ in range(6):
            await world.agent.tick(world.store.epoch)
            await world.agent.close()
            world.store.epoch += 1
            world.agent = world.new_agent()
        await world.run_for(1)

        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_a_load_that_fails_is_tried_five_times_and_then_when_a_person_asks(tmp_path):
    async def scenario(world: World) -> None:
        world.control.refuses.add(NAME)
        world.store.place(1, Why.CHAMPION)
        await world.run_for(600)

        assert world.telemetry.counts["load_failures_total", "E217"] == MAX_ATTEMPTS
        assert (world.store.state_of(1), world.store.error_of(1)) == (LoadingState.ERROR, "E217")
        assert not world.store.has_endpoint(1)
        world.control.refuses.clear()
        world.store.ask_again(1)
        await world.run_for(10)

        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_attempts_follow_after_one_two_four_and_eight_seconds(tmp_path):
    async def scenario(world: World) -> None:
        world.control.refuses.add(NAME)
        world.store.place(1, Why.CHAMPION)
        attempts = []
        for seconds in (0.5, 1, 2, 4, 8):
            await world.run_for(seconds)
            attempts.append(world.telemetry.counts["load_failures_total", "E217"])

        assert attempts == [1, 2, 3, 4, 5]

    in_a_world(tmp_path, scenario)


def test_a_defect_in_a_task_is_recorded_and_tried_as_often_as_any_failure(tmp_path):
    class DefectiveStage(MemoryArtifactStage):
        async def fetch(self, uri: str, expected: str | None) -> Staged:
            raise ValueError("Invalid IPv6 URL")

    async def scenario(world: World) -> None:
        world.stage = DefectiveStage(tmp_path)
        world.agent = world.new_agent()
        world.store.place(1, Why.CHAMPION)
        await world.run_for(600)

        assert world.telemetry.counts["load_failures_total", "E500"] == MAX_ATTEMPTS
        assert (world.store.state_of(1), world.store.error_of(1)) == (LoadingState.ERROR, "E500")

    in_a_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("refusal", "attempts"), [(ArtifactNotTaken, 1), (ArtifactForbidden, MAX_ATTEMPTS)], ids=["content", "login"]
)
def test_an_artifact_that_none_may_load_is_fetched_once_and_one_that_a_login_may_not_read_as_any_failure(
    tmp_path, refusal, attempts
):
    class RefusingStage(MemoryArtifactStage):
        async def fetch(self, uri: str, expected: str | None) -> Staged:
            raise refusal(uri)

    async def scenario(world: World) -> None:
        world.stage = RefusingStage(tmp_path)
        world.agent = world.new_agent()
        world.store.place(1, Why.CHAMPION)
        await world.run_for(600)

        assert world.telemetry.counts["load_failures_total", refusal.code] == attempts
        assert (world.store.state_of(1), world.store.error_of(1)) == (LoadingState.ERROR, refusal.code)

    in_a_world(tmp_path, scenario)


@pytest.mark.parametrize("state", [LoadingState.FETCHING, LoadingState.UNLOADING])
def test_an_attempt_that_ends_without_a_failure_is_begun_again_and_again_and_counted_as_far_as_a_record_goes(
    tmp_path, state
):
    async def scenario(world: World) -> None:
        await world.control.load(NAME, tmp_path, "onnx")
        world.store.place(1, Why.CHAMPION)
        await world.store.write(1, state, world.store.epoch, attempt=MAX_COUNTED)

        await world.agent.tick(world.store.epoch)

        (seen,) = await world.store.look(world.store.reports[-1], world.store.epoch)
        assert seen.record is not None
        assert (seen.record.state, seen.record.attempt) == (state, MAX_COUNTED)

    in_a_world(tmp_path, scenario)


def test_an_artifact_that_is_another_one_than_at_first_is_not_loaded_and_not_tried_again(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        world.store.place(1, None)
        await world.run_for(60)
        await world.stage.keep_only(frozenset())
        world.stage.artifacts["visits/1"] = b"other weights"

        world.store.place(1, Why.ASKED)
        await world.run_for(600)

        assert (world.store.state_of(1), world.store.error_of(1)) == (LoadingState.ERROR, "E212")
        assert world.telemetry.counts["load_failures_total", "E212"] == 1
        assert await world.loaded() == set()

    in_a_world(tmp_path, scenario)


def test_an_address_that_no_model_server_may_have_is_recorded_as_the_reason(tmp_path):
    async def scenario(world: World) -> None:
        world.store.refuses_endpoints = True
        world.store.place(1, Why.CHAMPION)
        world.store.place(2, Why.CHALLENGER)
        await world.run_for(600)

        assert {world.store.error_of(1), world.store.error_of(2)} == {"E203"}
        assert not world.store.has_endpoint(1)

    in_a_world(tmp_path, scenario)


def test_a_copy_of_which_nothing_is_recorded_is_not_announced_but_loaded_anew(tmp_path):
    async def scenario(world: World) -> None:
        await world.control.load(NAME, tmp_path, "onnx")
        world.store.place(1, Why.CHAMPION)
        await world.agent.tick(world.store.epoch)
        assert world.store.state_of(1) is LoadingState.UNLOADING

        await world.run_for(1)

        assert world.store.state_of(1) is LoadingState.AVAILABLE
        assert world.stage.staged != set()

    in_a_world(tmp_path, scenario)


def test_the_stage_keeps_what_is_recorded_and_nothing_else(tmp_path):
    async def scenario(world: World) -> None:
        world.stage.staged.add("sha256:" + "ab" * 32)
        world.store.place(1, Why.CHAMPION)
        await world.run_for(60)

        assert len(world.stage.staged) == 1
        assert "sha256:" + "ab" * 32 not in world.stage.staged

    in_a_world(tmp_path, scenario)


def test_a_copy_that_is_missing_after_each_fetch_is_a_failure_and_ends_as_one(tmp_path):
    class ForgetfulStage(MemoryArtifactStage):
        fetches = 0

        async def fetch(self, uri: str, expected: str | None) -> Staged:
            self.fetches += 1
            return await super().fetch(uri, expected)

        async def verified(self, digest: str) -> Path | None:
            return None

    async def scenario(world: World) -> None:
        world.stage = stage = ForgetfulStage(tmp_path)
        stage.artifacts["visits/1"] = b"weights"
        world.agent = world.new_agent()
        world.store.place(1, Why.CHAMPION)
        await world.run_for(600)

        assert stage.fetches == MAX_ATTEMPTS
        assert world.store.state_of(1) is LoadingState.ERROR
        assert world.telemetry.counts["load_failures_total", "E213"] == MAX_ATTEMPTS

    in_a_world(tmp_path, scenario)


def test_what_a_killed_agent_left_is_deleted_before_a_fetch_and_where_that_fails_versions_are_loaded(tmp_path):
    class FullStage(MemoryArtifactStage):
        calls: tuple[str, ...] = ()

        async def fetch(self, uri: str, expected: str | None) -> Staged:
            self.calls += ("fetch",)
            return await super().fetch(uri, expected)

        async def keep_only(self, digests: frozenset[str]) -> None:
            self.calls += ("clear",)
            raise RecursionError

    async def scenario(world: World) -> None:
        world.stage = stage = FullStage(tmp_path)
        stage.artifacts["visits/1"] = b"weights"
        world.agent = world.new_agent()
        world.store.place(1, Why.CHAMPION)
        await world.run_for(1)

        assert stage.calls[:2] == ("clear", "fetch")
        assert await world.loaded() == {NAME}

    in_a_world(tmp_path, scenario)


def test_a_registry_that_is_away_for_ten_minutes_is_missed_by_no_loaded_version_and_not_by_a_server_that_restarts(
    tmp_path,
):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        await world.run_for(1)
        there, world.stage.artifacts = world.stage.artifacts, {}
        world.store.place(2, Why.ASKED)

        await world.run_for(300)
        assert await world.loaded() == {NAME}
        assert world.store.has_endpoint(1)
        world.control.restart()
        await world.run_for(300)

        assert await world.loaded() == {NAME}
        assert world.store.has_endpoint(1)
        assert world.store.state_of(2) is LoadingState.ERROR
        world.stage.artifacts = there

    in_a_world(tmp_path, scenario)


def test_a_newcomer_that_cannot_be_loaded_does_not_touch_the_version_that_serves(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        await world.run_for(1)
        world.control.refuses.add(NEXT)
        world.store.place(2, Why.CHAMPION)
        world.store.place(1, None)

        await world.run_for(600)

        assert await world.loaded() == {NAME}
        assert world.store.has_endpoint(1)

    in_a_world(tmp_path, scenario)


def test_a_model_of_an_agent_that_nothing_is_known_of_is_unloaded_and_what_people_loaded_stays(tmp_path):
    async def scenario(world: World) -> None:
        stray = served_name("churn", "9")
        for name in (stray, "resnet"):
            await world.control.load(name, tmp_path, "onnx")

        await world.run_for(10)

        assert await world.loaded() == {"resnet"}

    in_a_world(tmp_path, scenario)


@pytest.mark.parametrize("why", [None, Why.CHAMPION])
def test_a_served_version_whose_endpoint_people_registered_is_not_unloaded_whether_it_is_wanted_or_not(tmp_path, why):
    async def scenario(world: World) -> None:
        await world.control.load(NAME, tmp_path, "onnx")
        world.store.register_endpoint(1)
        world.store.place(1, why, has_role=True)

        for _ in range(10):
            await world.agent.tick(world.store.epoch)
            await asyncio.sleep(ROUND_SECONDS)
            assert await world.loaded() == {NAME}

        assert world.store.state_of(1) is (None if why is None else LoadingState.AVAILABLE)
        assert world.store.has_endpoint(1)

    in_a_world(tmp_path, scenario)


@pytest.mark.parametrize("is_others", [False, True])
def test_an_endpoint_that_cannot_be_taken_back_does_not_hurry_the_rounds(tmp_path, is_others):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION, has_role=True)
        if is_others:
            world.store.register_endpoint(1)
        await world.run_for(1)
        world.store.place(1, None, has_role=True)
        world.woken.clear()

        await world.agent.tick(world.store.epoch)
        assert not world.woken.is_set()
        before = len(world.store.reports)
        await world.run_for(30)

        assert len(world.store.reports) - before == 30 / ROUND_SECONDS
        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_an_agent_that_stands_down_breaks_off_its_tasks_and_waits_anew_when_it_leads_again(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        await world.agent.tick(world.store.epoch)  # begins to fetch
        await world.agent.close()
        world.store.epoch += 1
        await world.run_for(1)
        assert world.store.state_of(1) is LoadingState.AVAILABLE
        world.store.place(1, None)
        await world.run_for(1 + LAST_CALLS_SECONDS - 0.1)
        await world.agent.close()
        await world.run_for(1 + LAST_CALLS_SECONDS - 0.1)
        assert await world.loaded() == {NAME}
        await world.run_for(2)
        assert await world.loaded() == set()

    in_a_world(tmp_path, scenario)


def test_an_agent_whose_lease_was_taken_writes_nothing_more(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        world.store.epoch = 2

        with pytest.raises(LeadershipLost):
            await world.agent.tick(1)

        assert world.store.state_of(1) is None

    in_a_world(tmp_path, scenario)


def test_without_postgres_nothing_is_unloaded(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        world.store.available = False
        world.store.place(1, None)

        with pytest.raises(RegistryUnavailable):
            await world.agent.tick(world.store.epoch)

        assert await world.loaded() == {NAME}

    in_a_world(tmp_path, scenario)


def test_dashboards_see_how_many_versions_are_in_which_state_and_how_many_are_missing(tmp_path):
    async def scenario(world: World) -> None:
        world.control.refuses.add(NEXT)
        world.store.place(1, Why.CHAMPION)
        world.store.place(2, Why.CHALLENGER)
        await world.run_for(600)

        assert world.telemetry.gauges["loaded_versions", "AVAILABLE"] == 1
        assert world.telemetry.gauges["loaded_versions", "ERROR"] == 1
        assert world.telemetry.gauges["versions_not_available",] == 1

    in_a_world(tmp_path, scenario)


def test_a_server_that_answers_and_lets_nothing_be_loaded_is_said_to_be_so_until_it_does_and_no_version_fails(tmp_path):
    async def scenario(world: World) -> None:
        world.control.is_off = True
        world.store.place(1, Why.CHAMPION)
        await world.run_for(20)
        assert world.store.reports[-1].problem == "E215 the model server lets nothing be loaded or dropped"
        assert world.telemetry.gauges["model_server_unmanageable",] == 1
        assert world.store.state_of(1) is LoadingState.LOADING

        world.control.is_off = False
        await world.run_for(20)
        assert world.store.reports[-1].problem == ""
        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_a_server_that_lets_nothing_be_loaded_is_not_said_to_be_so_once_nothing_is_wanted_of_it(tmp_path):
    async def scenario(world: World) -> None:
        world.control.is_off = True
        world.store.place(1, Why.ASKED)
        await world.run_for(12)
        assert world.store.reports[-1].problem

        world.control.is_off = False
        world.store.place(1, None)
        await world.run_for(20)
        assert world.store.reports[-1].problem == ""

    in_a_world(tmp_path, scenario)


def test_the_server_is_told_the_framework_that_was_registered(tmp_path):
    async def scenario(world: World) -> None:
        world.store.register(3, "visits", "3", "visits/1", framework="sklearn")
        world.store.place(3, Why.ASKED)
        await world.run_for(1)

        assert world.control.frameworks == {served_name("visits", "3"): "sklearn"}

    in_a_world(tmp_path, scenario)


def test_a_version_that_fails_a_case_gets_no_endpoint_is_dropped_and_is_not_tried_again_by_itself(tmp_path):
    async def scenario(world: World) -> None:
        world.validation.fails["visits", "1"] = "case 17 (17 of 20): 0.31 is not 0.64 ± 7.4e-05"
        world.store.place(1, Why.CHAMPION)
        world.store.place(2, Why.ASKED)
        await world.run_for(120)

        assert (world.store.state_of(1), world.store.error_of(1)) == (LoadingState.ERROR, "E216")
        assert not world.store.has_endpoint(1)
        assert await world.loaded() == {NEXT}
        assert world.validation.checked == [("visits", "1"), ("visits", "2")]

        del world.validation.fails["visits", "1"]
        world.store.ask_again(1)
        await world.run_for(5)
        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_an_agent_that_died_between_load_and_announcement_has_its_successor_ask_the_cases(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        await world.store.write(1, LoadingState.LOADING, world.store.epoch, attempt=1, digest="sha256:" + "ab" * 32)
        await world.control.load(NAME, tmp_path, "onnx")
        await world.run_for(1)

        assert world.validation.checked == [("visits", "1")]
        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_a_version_that_proxies_call_already_and_that_fails_a_case_is_not_dropped(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION, has_role=True)
        await world.run_for(1)
        world.control.restart()
        world.validation.fails["visits", "1"] = "case 1 (1 of 1): no"
        await world.run_for(30)

        assert world.store.error_of(1) == "E216"
        assert world.store.has_endpoint(1)
        assert await world.loaded() == {NAME}

    in_a_world(tmp_path, scenario)


def test_a_server_that_lets_nothing_be_loaded_is_asked_ever_more_seldom_and_each_minute_at_last(tmp_path):
    async def scenario(world: World) -> None:
        world.control.is_off = True
        world.store.place(1, Why.CHAMPION)
        await world.run_for(65)
        assert world.control.asked == 4  # after 5, 10 and 20 seconds
        await world.run_for(600)

        assert 4 + 9 <= world.control.asked <= 4 + 11
        assert world.store.reports[-1].problem == "E215 the model server lets nothing be loaded or dropped"

    in_a_world(tmp_path, scenario)


def test_a_server_that_is_started_again_with_its_control_on_is_asked_at_once(tmp_path):
    async def scenario(world: World) -> None:
        world.control.is_off = True
        world.store.place(1, Why.CHAMPION)
        await world.run_for(100)
        world.control.available = False
        await world.run_for(ROUND_SECONDS + 1)
        world.control.available, world.control.is_off = True, False
        await world.run_for(ROUND_SECONDS + 1)

        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_a_server_that_does_not_answer_while_it_loads_for_this_agent_is_not_said_to_be_away(tmp_path):
    async def scenario(world: World) -> None:
        world.control.goes_on = asyncio.Event()
        world.store.place(1, Why.CHAMPION)
        await world.run_for(60)
        assert world.store.state_of(1) is LoadingState.LOADING
        assert {report.problem for report in world.store.reports} == {""}

        world.control.goes_on.set()
        await world.run_for(1)
        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_what_became_of_a_validation_is_kept_with_the_build_and_the_digest_that_it_was_of(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        passed = world.store.validation_of(1)
        assert passed is not None
        assert (passed.passed, passed.said) == (True, "1 cases answered as expected")
        assert (passed.build, passed.digest) == (await world.control.describe(), world.store.digest_of(1))

        world.validation.fails["visits", "1"] = "case 1 (1 of 1): no"
        world.control.restart()
        await world.run_for(10)
        failed = world.store.validation_of(1)
        assert failed is not None
        assert (failed.passed, failed.said) == (False, "case 1 (1 of 1): no")

    in_a_world(tmp_path, scenario)


def test_a_version_that_was_asked_nothing_keeps_the_verdict_that_it_has(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        before = world.store.validation_of(1)
        world.validation.said = ""
        world.control.restart()
        await world.run_for(10)

        assert world.store.state_of(1) is LoadingState.AVAILABLE
        assert len(world.validation.checked) == 2
        assert world.store.validation_of(1) is before is not None

    in_a_world(tmp_path, scenario)


def test_a_version_that_requires_a_validation_has_it_said_to_what_validates(tmp_path):
    async def scenario(world: World) -> None:
        world.store.require_validation(2)
        world.store.place(1, Why.ASKED)
        world.store.place(2, Why.ASKED)
        await world.run_for(1)

        assert dict(zip(world.validation.checked, world.validation.required, strict=True)) == {
            ("visits", "1"): False,
            ("visits", "2"): True,
        }

    in_a_world(tmp_path, scenario)


def test_a_proxy_that_reports_and_never_reads_a_removal_is_waited_for_as_long_as_it_reports(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.ASKED)
        await world.run_for(1)
        world.store.unread_proxies = world.store.reporting_proxies = 1
        world.store.place(1, None)

        await world.run_for(4 * SILENT_SECONDS)
        held = await world.loaded()
        world.store.reporting_proxies = 0
        await world.run_for(10)

        assert held == {NAME}
        assert await world.loaded() == set()

    in_a_world(tmp_path, scenario)


def test_an_idle_version_stays_callable_and_is_wanted_again_without_a_load(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHALLENGER)
        await world.run_for(1)
        asked = world.control.asked
        world.store.rest(1)

        await world.run_for(600)
        rested = (await world.loaded(), world.store.has_endpoint(1))
        world.store.place(1, Why.CHALLENGER)
        await world.run_for(10)
        again = (world.control.asked, world.store.state_of(1))
        world.store.place(1, None)
        await world.run_for(30)

        assert rested == ({NAME}, True)
        assert again == (asked, LoadingState.AVAILABLE)
        assert await world.loaded() == set()

    in_a_world(tmp_path, scenario)


def test_forty_versions_on_a_server_with_room_for_ten_push_out_those_that_were_not_called_for_longest(tmp_path):
    """Each takes 32 MiB and a few bytes; the wanted one is the first, and stays."""

    async def scenario(world: World) -> None:
        for number in range(1, 41):
            world.register(number, "visits", str(number))
        names = {number: served_name("visits", str(number)) for number in range(1, 41)}
        world.store.place(1, Why.CHAMPION, has_role=True)
        most = 0
        for number in range(2, 41):
            world.store.place(number, Why.ASKED)
            for _ in range(60):
                await world.run_for(1)
                most = max(most, len(await world.loaded()))
                if world.store.state_of(number) is LoadingState.AVAILABLE:
                    break
            assert world.store.state_of(number) is LoadingState.AVAILABLE, number
            world.store.rest(number)
            await world.run_for(20)
            assert len(await world.loaded()) == min(number, 10)  # no more go than have to

        assert await world.loaded() == {names[1], *(names[number] for number in range(32, 41))}
        assert most == 10

    in_a_world(tmp_path, scenario, memory_bytes=int(10.1 * 32 * MEBIBYTE / 0.9))


def test_a_version_without_room_says_what_it_needs_and_is_loaded_once_there_is_some(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION, has_role=True)
        await world.run_for(1)
        world.store.place(2, Why.CHALLENGER)

        await world.run_for(60)
        refused = (world.store.state_of(2), world.store.error_of(2), await world.loaded())
        world.store.place(1, None)  # it has no role any more
        await world.run_for(30)

        assert refused == (LoadingState.ERROR, "E214", {NAME})
        assert world.store.expected_bytes_of(2) > 30 * MEBIBYTE
        assert world.store.reports[-1].room_bytes == 45 * MEBIBYTE
        assert await world.loaded() == {NEXT}

    in_a_world(tmp_path, scenario, memory_bytes=50 * MEBIBYTE)


def test_a_version_that_takes_more_than_was_left_is_dropped_again_and_gets_no_endpoint(tmp_path):
    async def scenario(world: World) -> None:
        world.taken = lambda: 50 * MEBIBYTE * len(world.control.frameworks)
        world.store.place(1, Why.CHAMPION)

        await world.run_for(1)
        problem = world.store.problem_of(1)
        await world.run_for(60)

        assert problem is not None
        assert problem.startswith(
            "loaded it takes 50 MiB of memory, 1.6 times the 32 MiB that were expected, and 45 MiB are left"
        )
        assert world.validation.checked == []
        assert await world.loaded() == set()
        assert not world.store.has_endpoint(1)
        assert world.store.error_of(1) == "E214"
        assert world.control.asked == 2  # to load and to drop it: what it takes is known now

    in_a_world(tmp_path, scenario, memory_bytes=50 * MEBIBYTE)


def test_while_a_version_is_slow_to_leave_no_further_one_makes_room(tmp_path):
    """It has a time-out of ten seconds: a wanted version is tried twice meanwhile."""

    async def scenario(world: World) -> None:
        for number in (3, 4, 5):
            world.store.register(number, "churn", str(number), f"churn/{number}", timeout_seconds=10.0)
            world.stage.artifacts[f"churn/{number}"] = b"weights of %d" % number
        for number in (3, 4):
            world.store.place(number, Why.ASKED)
            await world.run_for(5)
            world.store.rest(number)
        world.store.place(5, Why.CHALLENGER)

        await world.run_for(60)

        assert await world.loaded() == {served_name("churn", "4"), served_name("churn", "5")}

    in_a_world(tmp_path, scenario, memory_bytes=80 * MEBIBYTE)


ROOM_FOR_ONE, ROOM_FOR_TWO = 50 * MEBIBYTE, 80 * MEBIBYTE


def test_a_champion_before_makes_room_for_the_next_version_half_an_hour_after_the_change_and_no_sooner(tmp_path):
    async def scenario(world: World) -> None:
        world.store.register(3, "visits", "3", "visits/3")
        world.stage.artifacts["visits/3"] = b"weights of 3"
        world.store.place(1, Why.PREVIOUS_CHAMPION)
        world.store.place(2, Why.CHAMPION, has_role=True)
        await world.run_for(5)
        world.store.place(3, Why.ASKED)

        await world.run_for(KEPT_SECONDS - 60)
        before = await world.loaded()
        await world.run_for(120)

        assert before == {NAME, NEXT}
        assert await world.loaded() == {NEXT, served_name("visits", "3")}
        assert world.store.state_of(3) is LoadingState.AVAILABLE
        await world.run_for(300)
        assert await world.loaded() == {NEXT, served_name("visits", "3")}  # and it does not come back in its place

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_TWO)


def test_a_champion_leaves_for_the_next_version_while_another_server_has_it_and_it_is_this_servers_turn(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        world.store.others_serve = False
        await world.run_for(5)
        world.store.place(2, Why.ASKED)
        await world.run_for(60)
        alone = await world.loaded()
        world.store.put_elsewhere(1)
        await world.run_for(60)
        too_early = await world.loaded()
        world.store.others_serve = True
        await world.run_for(60)

        assert (alone, too_early) == ({NAME}, {NAME})
        assert await world.loaded() == {NEXT}
        assert world.store.state_of(2) is LoadingState.AVAILABLE
        assert world.store.state_of(1) is LoadingState.ERROR  # it is wanted still, and waits for room

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_ONE, transition=Transition.RESOURCE)


def test_a_next_version_that_cannot_be_loaded_gives_its_place_back_and_is_not_tried_for_ever(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        world.store.put_elsewhere(1)
        await world.run_for(5)
        world.control.refuses.add(NEXT)
        world.store.place(2, Why.ASKED)

        await world.run_for(600)
        asked = world.control.asked
        await world.run_for(600)

        assert await world.loaded() == {NAME}
        assert world.control.asked == asked
        assert world.store.state_of(1) is LoadingState.AVAILABLE
        assert (world.store.state_of(2), world.store.error_of(2)) == (LoadingState.ERROR, "E217")

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_ONE, transition=Transition.RESOURCE)


def register_for_churn(world: World) -> None:
    """Register version 5, of another model."""
    world.store.register(5, "churn", "5", "churn/5")
    world.stage.artifacts["churn/5"] = b"weights of 5"


# Versions without room are tried every five seconds: which is the first to be tried depends on when they were placed.
PHASES = (0.0, 1.0, 2.5, 4.0)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("why", [Why.CHAMPION, Why.PREVIOUS_CHAMPION, Why.ASKED])
def test_the_room_that_a_champion_gives_up_is_not_taken_by_a_version_of_another_model(tmp_path, why, phase):
    async def scenario(world: World) -> None:
        register_for_churn(world)
        world.store.place(1, Why.CHAMPION)
        world.store.put_elsewhere(1)
        await world.run_for(5)
        world.store.place(5, why)
        await world.run_for(10 + phase)

        world.store.place(2, Why.ASKED)
        await world.run_for(30)
        assert await world.loaded() == {NEXT}
        world.store.place(1, Why.PREVIOUS_CHAMPION)
        world.store.place(2, Why.CHAMPION)
        await world.run_for(60)

        assert await world.loaded() == {NEXT}

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_ONE, transition=Transition.RESOURCE)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("why", [Why.PREVIOUS_CHAMPION, Why.ASKED])
def test_the_room_of_a_champion_before_goes_to_the_next_version_and_not_to_another_model(tmp_path, why, phase):
    async def scenario(world: World) -> None:
        register_for_churn(world)
        world.store.register(3, "visits", "3", "visits/3")
        world.stage.artifacts["visits/3"] = b"weights of 3"
        world.store.place(1, Why.PREVIOUS_CHAMPION)
        world.store.place(2, Why.CHAMPION, has_role=True)
        await world.run_for(5)
        world.store.place(5, why)
        await world.run_for(10 + phase)
        world.store.place_earlier(1, KEPT_SECONDS)
        assert await world.loaded() == {NAME, NEXT}

        world.store.place(3, Why.ASKED)
        await world.run_for(30)

        assert await world.loaded() == {NEXT, served_name("visits", "3")}

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_TWO)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_the_champion_takes_its_place_back_before_another_model_does_where_the_next_version_fails(
    tmp_path, phase, is_loaded
):
    async def scenario(world: World) -> None:
        register_for_churn(world)
        if is_loaded:
            world.validation.fails["visits", "2"] = "case 1 differs"
        else:
            world.control.refuses.add(NEXT)
        world.store.place(1, Why.CHAMPION)
        world.store.put_elsewhere(1)
        await world.run_for(5)
        world.store.place(5, Why.CHAMPION)
        await world.run_for(10 + phase)

        world.store.place(2, Why.ASKED)
        await world.run_for(200)

        assert await world.loaded() == {NAME}
        assert world.store.state_of(2) is LoadingState.ERROR

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_ONE, transition=Transition.RESOURCE)


@pytest.mark.parametrize("phase", PHASES)
def test_room_that_no_version_of_its_model_comes_for_is_free_for_other_models(tmp_path, phase):
    async def scenario(world: World) -> None:
        register_for_churn(world)
        world.store.place(1, Why.CHAMPION)
        world.store.put_elsewhere(1)
        await world.run_for(5)
        world.store.place(5, Why.ASKED)
        world.control.refuses |= {NAME, NEXT}  # once they have left, neither can be loaded again
        await world.run_for(10 + phase)

        world.store.place(2, Why.ASKED)
        await world.run_for(60)

        assert await world.loaded() == {served_name("churn", "5")}

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_ONE, transition=Transition.RESOURCE)


def test_a_champion_comes_back_where_the_next_versions_artifact_is_gone_once_it_has_left(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION)
        world.store.put_elsewhere(1)
        await world.run_for(5)
        world.store.place(2, Why.ASKED)
        await world.run_for(1)
        assert world.store.error_of(2) == "E214"

        digest = world.store.digest_of(2)
        assert digest is not None
        world.stage.staged.remove(digest)
        del world.stage.artifacts["visits/2"]
        await world.run_for(60)

        assert await world.loaded() == {NAME}

    in_a_world(tmp_path, scenario, memory_bytes=ROOM_FOR_ONE, transition=Transition.RESOURCE)


@pytest.mark.parametrize(("gone", "is_doubted"), [(range(1, 9), True), (range(1, 6), True), (range(1, 4), False)])
def test_where_most_versions_are_placed_no_more_at_once_the_agent_waits_and_then_unloads_them(
    tmp_path, gone, is_doubted
):
    async def scenario(world: World) -> None:
        await world.load_models(8)
        assert len(await world.loaded()) == 8

        for number in gone:
            world.store.place(number, None)
        await world.run_for(DOUBT_SECONDS - 0.5)
        kept = [world.store.has_endpoint(number) for number in gone]
        await world.run_for(30)

        assert kept == [is_doubted] * len(gone)
        assert len(await world.loaded()) == 8 - len(gone)
        assert world.telemetry.counts["many_unplaced_total",] == is_doubted

    in_a_world(tmp_path, scenario)


def test_idle_versions_that_leave_together_are_doubted_and_raise_no_alert(tmp_path):
    async def scenario(world: World) -> None:
        await world.load_models(8)
        for number in range(1, 7):
            world.store.rest(number)
        await world.run_for(1)

        for number in range(1, 7):
            world.store.place(number, None)
        await world.run_for(DOUBT_SECONDS - 0.5)
        kept = [world.store.has_endpoint(number) for number in range(1, 7)]
        await world.run_for(30)

        assert all(kept)
        assert len(await world.loaded()) == 2
        assert world.telemetry.counts["many_unplaced_total",] == 0

    in_a_world(tmp_path, scenario)


@pytest.mark.parametrize("counted", [0, 1])
def test_versions_whose_time_ends_together_raise_no_alert_and_one_that_is_asked_for_still_does(tmp_path, counted):
    async def scenario(world: World) -> None:
        await world.load_models(8)

        for number in range(1, 7 - counted):
            world.store.end(number)
        for number in range(7 - counted, 7):
            world.store.place(number, None)
        await world.run_for(30)

        assert len(await world.loaded()) == 2
        assert world.telemetry.counts["many_unplaced_total",] == counted

    in_a_world(tmp_path, scenario)


def test_each_time_that_most_versions_are_gone_is_counted_once(tmp_path):
    async def scenario(world: World) -> None:
        await world.load_models(4)

        for _ in range(2):
            for number in range(1, 5):
                world.store.place(number, None)
            await world.run_for(DOUBT_SECONDS / 2)
            for number in range(1, 5):
                world.store.place(number, Why.ASKED)
            await world.run_for(DOUBT_SECONDS)

        assert world.telemetry.counts["many_unplaced_total",] == 2

    in_a_world(tmp_path, scenario)


def test_versions_that_are_placed_again_within_that_time_never_lose_their_endpoints(tmp_path):
    async def scenario(world: World) -> None:
        await world.load_models(4)
        asked = world.control.asked

        for number in range(1, 5):
            world.store.place(number, None)
        await world.run_for(DOUBT_SECONDS / 2)
        for number in range(1, 5):
            world.store.place(number, Why.ASKED)
        await world.run_for(60)

        assert all(world.store.has_endpoint(number) for number in range(1, 5))
        assert world.control.asked == asked

    in_a_world(tmp_path, scenario)


def test_while_it_doubts_that_most_versions_are_gone_an_agent_does_everything_else(tmp_path):
    async def scenario(world: World) -> None:
        await world.load_models(8)

        for number in range(1, 7):
            world.store.place(number, None)
        world.control.restart()
        await world.run_for(DOUBT_SECONDS / 2)

        assert await world.loaded() == {served_name("m7", "1"), served_name("m8", "1")}
        assert all(world.store.has_endpoint(number) for number in range(1, 9))

    in_a_world(tmp_path, scenario)


async def stranded(world: World, seconds: float) -> None:
    """Let the agent look at its server as its worker has it look each second while Postgres is away."""
    await world.agent.close()  # it leads no more
    for _ in range(int(seconds)):
        world.agent.look_without_registry()
        await asyncio.sleep(1)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_server_that_comes_back_empty_without_postgres_has_what_it_had_and_nothing_else(tmp_path, is_killed):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION, has_role=True)
        await world.run_for(5)
        world.store.available = False
        world.control.restart()
        if is_killed:
            world.agent = world.new_agent()

        await stranded(world, 5)
        assert await world.loaded() == {NAME}

        world.store.available = True
        asked = world.control.asked
        await world.run_for(30)
        assert world.store.state_of(1) is LoadingState.AVAILABLE
        assert world.control.asked == asked  # it is as if the server had never been away

    in_a_world(tmp_path, scenario)


def test_without_postgres_nothing_is_loaded_into_a_server_that_has_something_or_that_had_nothing(tmp_path):
    async def scenario(world: World) -> None:
        for number in (1, 2):
            world.store.place(number, Why.ASKED)
        await world.run_for(5)
        await world.control.unload(NAME)  # as another agent has decided meanwhile
        await stranded(world, 5)
        assert await world.loaded() == {NEXT}

        for number in (1, 2):
            world.store.place(number, None)
        await world.run_for(30)
        await stranded(world, 5)
        assert await world.loaded() == set()

    in_a_world(tmp_path, scenario)


def test_without_postgres_a_damaged_copy_is_not_loaded_and_the_other_versions_are(tmp_path):
    async def scenario(world: World) -> None:
        for number in (1, 2):
            world.store.place(number, Why.ASKED)
        await world.run_for(5)
        world.store.available = False
        world.control.restart()
        digest = world.store.digest_of(1)
        assert digest is not None
        world.stage.staged.remove(digest)

        await stranded(world, 5)

        assert await world.loaded() == {NEXT}

    in_a_world(tmp_path, scenario)


@pytest.mark.parametrize("restart_seconds", [0.5, 30.0])
def test_a_version_that_ends_its_server_is_given_up_and_the_champion_comes_back(tmp_path, restart_seconds):
    async def scenario(world: World) -> None:
        world.control.ends_at, world.control.restart_seconds = {NEXT}, restart_seconds
        world.store.place(1, Why.CHAMPION)
        await world.run_for(5)
        world.store.place(2, Why.ASKED)
        await world.run_for(MAX_ATTEMPTS * (restart_seconds + 30))

        assert world.control.ends == MAX_ATTEMPTS
        assert world.store.state_of(2) is LoadingState.ERROR
        assert world.store.error_of(2) == LoadRefused.code
        assert await world.loaded() == {NAME}
        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


def test_a_server_that_is_taken_away_during_loads_of_a_version_that_proxies_call_is_no_failure_of_it(tmp_path):
    async def scenario(world: World) -> None:
        world.store.place(1, Why.CHAMPION, has_role=True)  # so its last endpoint stays
        await world.run_for(5)
        world.control.ends_at = {NAME}
        world.control.restart()
        await world.run_for(600)

        assert world.control.ends > MAX_ATTEMPTS
        assert world.store.has_endpoint(1)

        world.control.ends_at.clear()
        await world.run_for(120)

        assert world.store.state_of(1) is LoadingState.AVAILABLE

    in_a_world(tmp_path, scenario)


class NeverAnswered(MemoryValidation):
    """A validation that never ends, as one that ends its agent."""

    begun = 0

    async def check(self, *asked: object, **more: object) -> str:
        del asked, more
        self.begun += 1
        await asyncio.Event().wait()
        return ""


def test_a_version_that_ends_its_agent_again_and_again_is_given_up(tmp_path):
    async def scenario(world: World) -> None:
        world.validation = endless = NeverAnswered()
        world.agent = world.new_agent()
        world.store.place(1, Why.ASKED)
        for _ in range(2 * MAX_ATTEMPTS):
            await world.run_for(3)
            await world.agent.close()
            world.agent = world.new_agent()

        assert endless.begun == MAX_ATTEMPTS
        assert world.store.state_of(1) is LoadingState.ERROR
        assert world.store.error_of(1) == LoadRefused.code

    in_a_world(tmp_path, scenario)


def test_a_drain_takes_every_endpoint_back_and_is_over_once_no_proxy_can_call_it(tmp_path):
    async def scenario(world: World) -> None:
        await world.load_models(6)
        world.store.rest(1)  # an idle one, which else would stay
        world.store.unread_proxies = 1
        draining = asyncio.get_running_loop().create_task(world.agent.lifetime.drained(60.0))
        world.agent.lifetime.drain()

        await world.run_for(3)
        assert not any(world.store.has_endpoint(number) for number in range(1, 7))
        assert world.store.reports[-1].is_draining
        assert not draining.done()
        world.store.unread_proxies = 0
        world.store.calls_are_over = True
        await world.run_for(LAST_CALLS_SECONDS + 2 * QUIESCING_ROUND_SECONDS)

        assert draining.done()
        assert draining.result()
        await world.run_for(60)
        assert not any(world.store.has_endpoint(number) for number in range(1, 7))

    in_a_world(tmp_path, scenario)


def test_a_drain_keeps_the_last_endpoint_of_a_version_with_a_role_until_another_server_has_it(tmp_path):
    async def scenario(world: World) -> None:
        world.store.calls_are_over = True
        world.store.place(1, Why.CHAMPION, has_role=True)
        await world.run_for(1)
        draining = asyncio.get_running_loop().create_task(world.agent.lifetime.drained(60.0))
        world.agent.lifetime.drain()

        await world.run_for(20)
        assert world.store.has_endpoint(1)
        assert not draining.done()
        world.store.place(1, Why.CHAMPION, has_role=False)  # it is not the last one any more
        await world.run_for(LAST_CALLS_SECONDS + 4 * QUIESCING_ROUND_SECONDS)

        assert not world.store.has_endpoint(1)
        assert draining.done()

    in_a_world(tmp_path, scenario)


def test_a_drain_takes_the_endpoints_of_a_server_back_that_does_not_answer(tmp_path):
    async def scenario(world: World) -> None:
        world.store.calls_are_over = True
        world.store.place(1, Why.CHAMPION)
        await world.run_for(1)
        world.control.available = False
        world.agent.lifetime.drain()

        await world.run_for(LAST_CALLS_SECONDS + 4 * QUIESCING_ROUND_SECONDS)

        assert not world.store.has_endpoint(1)
        assert await world.agent.lifetime.drained(0.1)

    in_a_world(tmp_path, scenario)


def test_a_drained_server_gets_nothing_again_until_its_agent_is_started_anew(tmp_path):
    async def scenario(world: World) -> None:
        world.store.calls_are_over = True
        world.store.place(1, Why.CHAMPION)
        await world.run_for(1)
        world.agent.lifetime.drain()
        await world.run_for(10)
        world.store.place(2, Why.ASKED)
        await world.run_for(30)
        assert await world.loaded() == set()

        await world.agent.close()
        world.agent = world.new_agent()
        await world.run_for(5)

        assert await world.loaded() == {NAME, NEXT}

    in_a_world(tmp_path, scenario)


def test_a_drain_is_not_over_by_a_reading_that_came_before_an_endpoint_of_the_same_moment(tmp_path):
    async def scenario(world: World) -> None:
        looking, goes_on = asyncio.Event(), asyncio.Event()
        check, look = world.validation.check, world.store.look

        async def slow_check(*of: Any, **how: Any) -> str:
            await looking.wait()
            return await check(*of, **how)

        async def late_look(*report: Any) -> Any:
            found = await look(*report)
            if world.agent.lifetime.is_draining and not looking.is_set():
                looking.set()  # the validation ends between what was read and what follows from it
                await goes_on.wait()
            return found

        world.validation.check, world.store.look = slow_check, late_look  # type: ignore[assignment,method-assign]
        world.store.place(1, Why.CHAMPION, has_role=True)
        await world.run_for(1)
        assert world.store.state_of(1) is LoadingState.LOADING
        world.agent.lifetime.drain()
        asyncio.get_running_loop().call_later(1.0, goes_on.set)
        await world.run_for(5)

        assert world.store.has_endpoint(1)
        assert not await world.agent.lifetime.drained(0.1)

    in_a_world(tmp_path, scenario)
