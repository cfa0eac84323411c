"""What is TensorFlow Serving's own: its configuration is total, and no call tells of that, or of the server's build."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
from contract.tfserving_server import TfServingLike
from servers.tfserving_core import END

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.model_servers.control.kept_model import FOLDER, MAX_KEPT
from understudy.adapters.model_servers.control.tfserving_control import TfServingControl
from understudy.core.loading.served_name import served_name
from understudy.errors import LoadRefused, ServerNotManageable

NAME, OTHER = served_name("visits", "1"), served_name("visits", "2")
FRAMEWORK = "tensorflow"


class World:
    """A server, artifacts, and the agents that come one after the other."""

    def __init__(self, folder: Path) -> None:
        self.server = TfServingLike(free_port())
        self.models = folder / "models"
        self.good, self.broken = folder / "good", folder / "broken"
        for artifact, content in ((self.good, b"weights"), (self.broken, b"no model")):
            artifact.mkdir()
            (artifact / "saved_model.pb").write_bytes(content)
        self._agents: list[TfServingControl] = []

    def agent(self, **options: Any) -> TfServingControl:
        """Return the control of another agent, which knows what the one before has left in files."""
        self._agents.append(TfServingControl(f"127.0.0.1:{self.server.port}", self.models, **options))
        return self._agents[-1]

    def configured(self) -> set[str]:
        """Return the names in the configuration that the server has taken last, without that of the kept model."""
        return {name for name in self.server.core.configurations[-1] if not name.startswith("understudy-keep-")}

    async def waits_in_a_load(self) -> None:
        assert await asyncio.to_thread(self.server.loads.acquire, timeout=30)

    async def close(self) -> None:
        for agent in self._agents:
            await agent.close()
        await self.server.stop()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.server.start()
    yield made
    if made.server.goes_on is not None:
        made.server.goes_on.set()
    await made.close()


async def test_each_configuration_has_all_that_is_loaded_as_version_1_of_its_own_folder(world):
    agent = world.agent()
    await agent.load(NAME, world.good, FRAMEWORK)
    await agent.load(OTHER, world.good, FRAMEWORK)

    kept, *models = world.server.requests[-1].config.model_config_list.config
    assert kept.name.startswith("understudy-keep-")
    assert [one.name for one in models] == [NAME, OTHER]
    for one in models:
        assert one.base_path == str(world.models / one.name)
        assert one.model_platform == "tensorflow"
        assert list(one.model_version_policy.specific.versions) == [1]


async def test_the_next_agent_drops_nothing_that_the_one_before_has_loaded(world):
    await world.agent().load(NAME, world.good, FRAMEWORK)

    agent = world.agent()
    assert await agent.loaded() == {NAME}
    await agent.load(OTHER, world.good, FRAMEWORK)

    assert await agent.loaded() == {NAME, OTHER}
    assert world.configured() == {NAME, OTHER}


async def test_a_model_whose_name_begins_with_a_dot_stays_loaded_when_another_one_is(world):
    agent, hidden = world.agent(), served_name(".visits", "1")
    await agent.load(hidden, world.good, FRAMEWORK)

    await agent.load(OTHER, world.good, FRAMEWORK)

    assert await agent.loaded() == {hidden, OTHER}
    assert world.configured() == {hidden, OTHER}


@pytest.mark.parametrize("name", [b"two\nlines", b"no utf-8 \xff", b".visits~1.part"])
async def test_a_folder_that_no_agent_has_made_is_asked_for_nowhere(world, name):
    (world.models / os.fsdecode(name) / "1").mkdir(parents=True)
    agent = world.agent()

    await agent.load(NAME, world.good, FRAMEWORK)

    assert await agent.loaded() == {NAME}
    assert world.configured() == {NAME}


async def test_the_next_agent_waits_for_a_load_that_the_one_before_has_begun_and_keeps_it(world):
    world.server.goes_on = Event()
    began = asyncio.create_task(world.agent().load(NAME, world.good, FRAMEWORK))
    await world.waits_in_a_load()
    began.cancel()
    agent = world.agent(reload_seconds=0.2)
    load = asyncio.create_task(agent.load(OTHER, world.good, FRAMEWORK))
    await world.server.looked_at(5)
    assert len(world.server.requests) == 2  # the kept model, and the first one beside it
    world.server.goes_on.set()
    await load

    assert await agent.loaded() == {NAME, OTHER}


async def test_a_model_whose_folder_has_gone_is_left_out_since_it_would_keep_the_server_from_finding_others(world):
    agent = world.agent()
    await agent.load(NAME, world.good, FRAMEWORK)
    (world.models / NAME).rename(world.models.parent / "gone")

    await agent.load(OTHER, world.good, FRAMEWORK)

    assert await agent.loaded() == {OTHER}


async def test_what_has_failed_is_left_out_again_and_loads_once_it_is_mended(world):
    agent = world.agent()
    await agent.load(OTHER, world.good, FRAMEWORK)
    for _ in range(2):
        with pytest.raises(LoadRefused, match=r"the model server says: Could not parse saved_model\.pb$"):
            await agent.load(NAME, world.broken, FRAMEWORK)
    assert world.configured() == {OTHER}
    assert not (world.models / NAME).exists()

    await agent.load(NAME, world.good, FRAMEWORK)

    assert await agent.loaded() == {NAME, OTHER}


async def test_what_has_failed_for_an_agent_that_was_cut_off_is_tried_anew(world):
    agent = world.agent()
    await agent.load(OTHER, world.good, FRAMEWORK)
    (world.models / NAME / "1").mkdir(parents=True)
    (world.models / NAME / "1/saved_model.pb").write_bytes(b"no model")
    configuration = {**world.server.core.configurations[-1], NAME: str(world.models / NAME)}
    await asyncio.to_thread(world.server.core.reload, configuration)
    assert world.server.core.states[NAME].state == END

    await world.agent().load(NAME, world.good, FRAMEWORK)

    assert await agent.loaded() == {NAME, OTHER}


async def test_a_server_that_takes_no_empty_configuration_drops_its_last_model_all_the_same(world):
    world.server.refuses_empty = True
    await world.server.restart()
    agent = world.agent()
    await agent.load(NAME, world.good, FRAMEWORK)

    await agent.unload(NAME)

    assert await agent.loaded() == frozenset()
    assert world.server.core.states[NAME].state == END
    assert [path.name for path in world.models.iterdir()] == [FOLDER]


async def test_a_server_that_is_unsure_of_a_configuration_is_asked_whether_it_has_the_model(world):
    world.server.is_unsure = True
    agent = world.agent(not_yet_seconds=0.5)

    await agent.load(NAME, world.good, FRAMEWORK)
    assert await agent.loaded() == {NAME}
    await agent.unload(NAME)

    assert await agent.loaded() == frozenset()


async def test_a_model_that_the_server_has_not_looked_for_yet_is_waited_for(world):
    world.server.answers_early = True
    agent = world.agent()
    for _ in range(2):
        await agent.load(NAME, world.good, FRAMEWORK)
        assert await agent.loaded() == {NAME}
        await agent.unload(NAME)

    assert await agent.loaded() == frozenset()


async def test_a_server_that_is_late_with_its_answer_is_looked_at_until_it_has_loaded(world):
    world.server.goes_on = Event()
    agent = world.agent(reload_seconds=0.1)
    load = asyncio.create_task(agent.load(NAME, world.good, FRAMEWORK))
    await world.waits_in_a_load()
    await world.server.looked_at(3)  # it is asked again once its answer was late
    assert not load.done()
    assert await agent.loaded() == frozenset()

    world.server.goes_on.set()
    await load

    assert await agent.loaded() == {NAME}


async def test_a_load_has_an_end(world):
    world.server.goes_on = Event()
    agent = world.agent(reload_seconds=0.1, load_seconds=0.5)

    with pytest.raises(LoadRefused, match=r"is not loaded after 0\.5 s"):
        await agent.load(NAME, world.good, FRAMEWORK)


@pytest.mark.parametrize("files", [[], ["model.onnx"], ["a/saved_model.pb", "b/saved_model.pb"]])
async def test_an_artifact_without_one_saved_model_is_refused_before_the_server_waits_for_it_without_end(
    world, tmp_path, files
):
    (tmp_path / "other").mkdir()
    for name in files:
        (tmp_path / "other" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "other" / name).write_bytes(b"weights")
    agent = world.agent()

    with pytest.raises(LoadRefused, match=r"the artifact has \d folders with a saved_model.pb"):
        await agent.load(NAME, tmp_path / "other", FRAMEWORK)

    assert world.configured() == set()


async def test_a_server_that_does_not_see_the_folder_is_said_to_need_the_path_and_is_given_no_model(world, tmp_path):
    agent = world.agent(seen_as=tmp_path / "elsewhere", reload_seconds=0.2, not_yet_seconds=0.1)

    with pytest.raises(ServerNotManageable, match=r"does not see .*elsewhere.*not answered within 0\.2 s") as refused:
        await agent.load(NAME, world.good, FRAMEWORK)

    assert "UNDERSTUDY_SERVER_MODELS_DIR" in refused.value.next_step
    assert world.configured() == set()
    assert not (world.models / NAME).exists()


async def test_a_server_that_sees_the_folder_by_another_path_is_given_that_one(world, tmp_path):
    world.models.mkdir()
    (tmp_path / "mounted").symlink_to(world.models)
    agent = world.agent(seen_as=tmp_path / "mounted")

    await agent.load(NAME, world.good, FRAMEWORK)

    assert world.server.core.configurations[-1][NAME] == str(tmp_path / "mounted" / NAME)
    assert await agent.loaded() == {NAME}


async def test_a_first_model_that_fails_leaves_a_server_that_was_started_with_an_empty_file_well(world):
    world.server.was_configured = False
    await world.server.restart()
    agent = world.agent(reload_seconds=1, load_seconds=5)
    with pytest.raises(LoadRefused):
        await agent.load(NAME, world.broken, FRAMEWORK)
    await agent.load(OTHER, world.good, FRAMEWORK)

    await agent.load(NAME, world.good, FRAMEWORK)

    assert await agent.loaded() == {NAME, OTHER}


async def test_a_server_without_the_call_is_said_to_be_not_manageable_and_how_it_is_started(world):
    world.server.takes_configurations = False
    await world.server.restart()
    agent = world.agent()

    with pytest.raises(ServerNotManageable, match=r"control at .*: Method not found.*may be another kind") as refused:
        await agent.load(NAME, world.good, FRAMEWORK)

    assert refused.value.code == "E215"
    assert "--model_config_file=" in refused.value.next_step
    assert not (world.models / NAME).exists()


async def test_changes_that_are_asked_for_together_are_made_one_after_the_other_and_none_is_lost(world):
    agent = world.agent()
    names = [served_name("visits", str(number)) for number in range(6)]
    await asyncio.gather(*(agent.load(name, world.good, FRAMEWORK) for name in names))
    assert await agent.loaded() == set(names)

    late = served_name("visits", "late")
    await asyncio.gather(*map(agent.unload, names[:3]), agent.load(late, world.good, FRAMEWORK))

    assert await agent.loaded() == {*names[3:], late}


@pytest.mark.parametrize("looks", range(1, 13))
async def test_an_agent_that_is_cut_off_anywhere_in_a_change_drops_nothing_else_and_the_next_one_ends_it(world, looks):
    before = world.agent()
    await before.load(OTHER, world.good, FRAMEWORK)
    event = world.server.core.states[OTHER].event
    for change in (before.load(NAME, world.good, FRAMEWORK), before.unload(NAME)):
        cut_off = asyncio.create_task(change)
        looked_at = asyncio.create_task(world.server.looked_at(looks))
        await asyncio.wait([cut_off, looked_at], return_when=asyncio.FIRST_COMPLETED)
        for task in (cut_off, looked_at):
            task.cancel()

        await world.agent().load(NAME, world.good, FRAMEWORK)

        assert await world.agent().loaded() == {NAME, OTHER}
        assert world.server.core.states[OTHER].event == event  # it was available all the time


@pytest.mark.parametrize("seed", range(4))
async def test_after_any_loads_unloads_and_restarts_the_server_has_what_the_last_of_them_asked_for(world, seed):
    draw, agent, expected = Random(seed), world.agent(), set()
    names = [served_name("visits", str(number)) for number in range(4)]
    for _ in range(15):
        name = draw.choice(names)
        match draw.choice(("load", "load", "break", "unload", "agent", "server")):
            case "load":
                await agent.load(name, world.good, FRAMEWORK)
                expected.add(name)
            case "break" if name not in expected:
                with pytest.raises(LoadRefused, match="Could not parse"):
                    await agent.load(name, world.broken, FRAMEWORK)
            case "unload":
                await agent.unload(name)
                expected.discard(name)
            case "agent":
                agent = world.agent()
            case "server":
                await world.server.restart()
                expected.clear()

        assert await agent.loaded() == expected


async def test_a_build_is_a_start_of_the_server_which_the_next_agent_knows_again(world):
    agent = world.agent()
    before = await agent.describe()
    assert await agent.describe() == before
    await agent.load(NAME, world.good, FRAMEWORK)
    assert await agent.describe() == before
    assert await world.agent().describe() == before

    await world.server.restart()

    after = set(await asyncio.gather(agent.describe(), agent.describe()))
    assert before not in after
    assert len(after) == 1


async def test_models_that_only_stay_are_few_and_go_with_the_start_that_they_were_made_for(world):
    for _ in range(3 * MAX_KEPT):
        await world.agent().describe()  # each finds a server that was given nothing yet
    assert 1 < len(list((world.models / FOLDER).iterdir())) <= MAX_KEPT + 1

    await world.agent().load(NAME, world.good, FRAMEWORK)

    assert len(list((world.models / FOLDER).iterdir())) == 1


async def test_nothing_is_written_for_a_server_that_does_not_answer(world):
    await world.server.stop()

    with pytest.raises(ServerNotManageable, match=r"the model server's control at [\d.:]+: nothing listens there$"):
        await world.agent().describe()

    assert not world.models.exists()


async def test_a_folder_that_cannot_be_used_is_named(world):
    world.models.write_bytes(b"a file")

    with pytest.raises(ServerNotManageable, match=f"{world.models} cannot be used: "):
        await world.agent().describe()
