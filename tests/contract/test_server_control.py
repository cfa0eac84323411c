"""What every ``ServerControl`` does: the twin, our own server, and servers like Triton, TorchServe and TF Serving."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from contract.http_server import HttpModelServer
from contract.repository_server import TritonLike
from contract.tfserving_server import TfServingLike
from contract.torchserve_server import TorchServeLike

from understudy.adapters.dev_server.catalog import ModelCatalog
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.dev_server.oip import SERVER_NAME
from understudy.adapters.dev_server.repository import ModelRepository
from understudy.adapters.dev_server.server import ControlServer
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.memory.server_control import MemoryServerControl
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import LAYOUTS
from understudy.adapters.model_servers.control.tfserving_control import TfServingControl
from understudy.adapters.model_servers.control.torchserve_control import TorchServeControl
from understudy.core.loading.served_name import served_name
from understudy.errors import LoadRefused, ServerNotManageable
from understudy.ports.loading.server_control import ServerControl

NAME, OTHER, BROKEN = served_name("visits", "1"), served_name("visits", "2"), served_name("visits", "3")


@dataclass(frozen=True)
class Opened:
    """A control, models that its server can load and cannot, and what happens to the server."""

    control: ServerControl
    good: Path
    broken: Path
    restart: Callable[[], Awaitable[object]]
    stop: Callable[[], Awaitable[object]]


class RealServer:
    """The control server in this process; started again it has forgotten its models, as a process has."""

    def __init__(self, repository: Path, port: int) -> None:
        self._repository = repository
        self._port = port
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        repository = ModelRepository(ModelCatalog([]), self._repository)
        await self._stack.enter_async_context(ControlServer(repository, self._port))

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()


@pytest.fixture(params=["twin", "own server", "triton", "torchserve", "tfserving"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    good, broken = tmp_path / "good", tmp_path / "broken"
    good.mkdir()
    (good / "model.onnx").write_bytes(example_version("visits", 1).read())
    broken.mkdir()
    (broken / "model.onnx").write_bytes(b"no model")
    if request.param == "twin":
        twin = MemoryServerControl()
        twin.refuses.add(BROKEN)

        async def restart() -> None:
            twin.restart()

        async def stop() -> None:
            twin.available = False

        yield Opened(twin, good, broken, restart, stop)
        return
    port = free_port()
    if request.param == "torchserve":
        for artifact in (good, broken):
            (artifact / "model.onnx").rename(artifact / "model.mar")
        management = TorchServeLike(tmp_path / "store", port)
        await management.start()
        controlled = TorchServeControl(f"127.0.0.1:{port}", tmp_path / "store")
        yield Opened(controlled, good, broken, management.restart, management.stop)
        await controlled.close()
        await management.stop()
        return
    if request.param == "tfserving":
        for artifact in (good, broken):
            (artifact / "model.onnx").rename(artifact / "saved_model.pb")
        serving = TfServingLike(port)
        await serving.start()
        configured = TfServingControl(f"127.0.0.1:{port}", tmp_path / "models")
        yield Opened(configured, good, broken, serving.restart, serving.stop)
        await configured.close()
        await serving.stop()
        return
    server: RealServer | TritonLike
    if request.param == "own server":
        server, layout = RealServer(tmp_path / "repository", port), LAYOUTS["understudy"]
    else:
        server, layout = TritonLike(tmp_path / "repository", port), LAYOUTS["triton"]
    await server.start()
    control = RepositoryControl(f"127.0.0.1:{port}", RepositoryFolder(tmp_path / "repository", layout))
    yield Opened(control, good, broken, server.restart, server.stop)
    await control.close()
    await server.stop()


async def test_what_was_loaded_is_listed_and_what_was_unloaded_is_not(opened):
    assert await opened.control.loaded() == frozenset()

    await opened.control.load(NAME, opened.good, "onnx")
    await opened.control.load(OTHER, opened.good, "onnx")
    assert await opened.control.loaded() == {NAME, OTHER}
    await opened.control.unload(NAME)

    assert await opened.control.loaded() == {OTHER}


async def test_loading_and_unloading_again_changes_nothing(opened):
    for _ in range(2):
        await opened.control.load(NAME, opened.good, "onnx")
    assert await opened.control.loaded() == {NAME}
    for _ in range(2):
        await opened.control.unload(NAME)

    assert await opened.control.loaded() == frozenset()


async def test_a_model_that_cannot_be_loaded_is_refused_with_the_servers_words_and_harms_no_other(opened):
    await opened.control.load(NAME, opened.good, "onnx")

    with pytest.raises(LoadRefused, match="the model server says: ") as refused:
        await opened.control.load(BROKEN, opened.broken, "onnx")

    assert refused.value.code == "E217"
    assert await opened.control.loaded() == {NAME}


async def test_a_server_that_was_started_again_has_nothing_loaded_and_loads_again(opened):
    await opened.control.load(NAME, opened.good, "onnx")

    await opened.restart()
    assert await opened.control.loaded() == frozenset()
    await opened.control.load(NAME, opened.good, "onnx")

    assert await opened.control.loaded() == {NAME}


async def test_a_server_that_is_away_is_said_to_be_so_by_every_call(opened):
    await opened.stop()

    for call in (
        opened.control.describe,
        opened.control.loaded,
        lambda: opened.control.load(NAME, opened.good, "onnx"),
        lambda: opened.control.unload(NAME),
    ):
        with pytest.raises(ServerNotManageable) as refused:
            await call()
        assert refused.value.code == "E215"


async def test_what_an_agent_that_was_cut_off_left_of_a_model_goes_and_other_models_parts_stay(tmp_path):
    folder, repository = tmp_path / "good", tmp_path / "repository"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(example_version("visits", 1).read())
    for name in (NAME, OTHER):
        (repository / f".{name}~left.part" / "1").mkdir(parents=True)
    port = free_port()
    server = RealServer(repository, port)
    await server.start()
    control = RepositoryControl(f"127.0.0.1:{port}", RepositoryFolder(repository))

    await control.load(NAME, folder, "onnx")
    await control.close()
    await server.stop()

    assert sorted(path.name for path in repository.iterdir()) == sorted([f".{OTHER}~left.part", NAME])


async def test_a_build_has_a_name_and_a_number(opened):
    assert len((await opened.control.describe()).split()) == 2


@pytest.fixture
async def triton(tmp_path: Path) -> AsyncIterator[tuple[TritonLike, RepositoryControl, Path]]:
    (tmp_path / "good").mkdir()
    (tmp_path / "good/model.onnx").write_bytes(b"weights")
    port = free_port()
    server = TritonLike(tmp_path / "repository", port)
    await server.start()
    control = RepositoryControl(f"127.0.0.1:{port}", RepositoryFolder(tmp_path / "repository", LAYOUTS["triton"]))
    yield server, control, tmp_path / "good"
    await control.close()
    await server.stop()


async def test_an_unload_ends_once_the_server_has_dropped_the_model_and_its_files_go_after_that(triton, tmp_path):
    _, control, good = triton
    await control.load(NAME, good, "onnx")

    await control.unload(NAME)

    assert list((tmp_path / "repository").iterdir()) == []


async def test_a_model_that_is_ready_with_a_reason_is_being_dropped_and_does_not_count_as_loaded(triton):
    server, control, good = triton
    await control.load(NAME, good, "onnx")
    server.reason_beside_ready = "unloading"

    assert await control.loaded() == frozenset()
    with pytest.raises(LoadRefused, match="lists it as READY unloading"):
        await control.load(OTHER, good, "onnx")


async def test_a_server_in_another_mode_is_said_to_need_the_flag(triton):
    server, control, good = triton
    server.is_explicit = False

    for call in (control.load(NAME, good, "onnx"), control.unload(NAME)):
        with pytest.raises(ServerNotManageable, match="start it with --model-control-mode=explicit") as refused:
            await call
        assert refused.value.code == "E215"


async def test_a_servers_words_are_one_line(triton, tmp_path):
    _, control, _ = triton
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/model.onnx").write_bytes(b"no model")

    with pytest.raises(LoadRefused, match=r"Internal: no weights At: x$"):
        await control.load(NAME, tmp_path / "broken", "onnx")


async def test_a_state_with_the_name_of_its_enum_before_it_is_understood(triton):
    server, control, good = triton
    server.prefix = "State."

    await control.load(NAME, good, "onnx")
    assert await control.loaded() == {NAME}
    await control.unload(NAME)

    assert await control.loaded() == frozenset()


@pytest.mark.parametrize(
    ("kind", "command"), [("understudy", "modelserver"), ("mlserver", "mlserver start"), ("triton", "tritonserver")]
)
async def test_how_the_server_is_to_be_started_is_said_for_its_kind(tmp_path, kind, command):
    control = RepositoryControl(f"127.0.0.1:{free_port()}", RepositoryFolder(tmp_path), kind)

    with pytest.raises(ServerNotManageable, match=r"nothing listens there$") as refused:
        await control.loaded()

    assert command in refused.value.next_step
    await control.close()


async def test_a_port_for_grpc_is_said_to_be_another_kind_of_server_than_torchserve(tmp_path):
    port = free_port()
    serving = TfServingLike(port)
    await serving.start()
    control = TorchServeControl(f"127.0.0.1:{port}", tmp_path)

    with pytest.raises(ServerNotManageable, match="it may be another kind of server than UNDERSTUDY_SERVER_KIND says"):
        await control.describe()
    await control.close()
    await serving.stop()


async def test_no_file_is_copied_for_a_server_in_another_mode(triton, tmp_path):
    server, control, good = triton
    server.is_explicit = False

    with pytest.raises(ServerNotManageable):
        await control.load(NAME, good, "onnx")

    assert list((tmp_path / "repository").glob("*")) == []


@pytest.mark.parametrize(("kind", "state"), [("triton", "LOADING"), ("mlserver", "State.UNKNOWN")])
async def test_files_are_not_replaced_while_the_server_loads_them_for_an_agent_of_before(triton, tmp_path, kind, state):
    server, _, good = triton
    (tmp_path / "repository" / NAME / "1").mkdir(parents=True)
    (tmp_path / "repository" / NAME / "1/half").write_bytes(b"read")
    server.loading = state
    control = RepositoryControl(server.target, RepositoryFolder(tmp_path / "repository", LAYOUTS["triton"]), kind)
    load = asyncio.create_task(control.load(NAME, good, "onnx"))
    await server.looked_at(3)
    assert (tmp_path / "repository" / NAME / "1/half").exists()

    server.loading = None
    await load
    assert [path.name for path in (tmp_path / "repository" / NAME / "1").iterdir()] == ["model.onnx"]
    assert await control.loaded() == {NAME}
    await control.close()


async def test_a_load_that_an_agent_of_before_began_and_that_has_ended_well_is_not_begun_again(triton, tmp_path):
    server, control, good = triton
    await control.load(NAME, good, "onnx")
    began = (tmp_path / "repository" / NAME).stat().st_ino

    await control.load(NAME, good, "onnx")

    assert (tmp_path / "repository" / NAME).stat().st_ino == began
    assert server.loads == 1


async def test_one_deadline_holds_for_all_of_a_load(triton, tmp_path):
    server, _, good = triton
    server.goes_on = asyncio.Event()
    folder = RepositoryFolder(tmp_path / "repository", LAYOUTS["triton"])
    control = RepositoryControl(server.target, folder, load_seconds=0.2)

    with pytest.raises(LoadRefused, match=r"is not loaded after 0\.2 s"):
        await control.load(NAME, good, "onnx")
    server.goes_on.set()
    await control.close()


@pytest.mark.parametrize(
    ("name", "kind", "advice"),
    [
        ("mlserver", "understudy", "UNDERSTUDY_SERVER_KIND=mlserver,"),
        ("ours", "understudy", "UNDERSTUDY_SERVER_KIND=mlserver or triton,"),
        ("triton", "mlserver", "UNDERSTUDY_SERVER_KIND=triton,"),
        (SERVER_NAME, "triton", "UNDERSTUDY_SERVER_KIND=understudy,"),
        ("mlserver", "mlserver", None),
        ("ours", "triton", None),
        (SERVER_NAME, "understudy", None),
    ],
)
async def test_a_server_of_another_kind_than_the_agent_was_told_is_refused(triton, tmp_path, name, kind, advice):
    server, _, _ = triton
    server.name = name
    control = RepositoryControl(server.target, RepositoryFolder(tmp_path / "repository"), kind)

    if advice is None:
        assert await control.describe() == f"{name} 2.51.0"
    else:
        with pytest.raises(
            ServerNotManageable, match=f"is '{name}', and UNDERSTUDY_SERVER_KIND says {kind}"
        ) as refused:
            await control.describe()
        assert advice in refused.value.next_step
    await control.close()


@pytest.fixture
async def torchserve(tmp_path: Path) -> AsyncIterator[tuple[TorchServeLike, TorchServeControl, Path]]:
    (tmp_path / "good").mkdir()
    (tmp_path / "good/of visits.mar").write_bytes(b"weights")
    (tmp_path / "good/validation_cases.json").write_bytes(b"[]")
    server = TorchServeLike(tmp_path / "store", free_port())
    await server.start()
    control = TorchServeControl(f"127.0.0.1:{server.port}", tmp_path / "store", load_seconds=0.5)
    yield server, control, tmp_path / "good"
    await control.close()
    await server.stop()


async def test_torchserve_is_given_the_archive_alone_under_the_models_name_and_it_goes_with_the_model(
    torchserve, tmp_path
):
    _, control, good = torchserve
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / f".{NAME}~left.part").write_bytes(b"of an agent that was cut off")

    await control.load(NAME, good, "pytorch")
    there = [path.name for path in (tmp_path / "store").iterdir()]
    await control.unload(NAME)

    assert there == [f"{NAME}.mar"]
    assert list((tmp_path / "store").iterdir()) == []


async def test_a_model_of_torchserve_whose_workers_have_died_is_not_loaded_and_is_registered_anew(torchserve):
    server, control, good = torchserve
    await control.load(NAME, good, "pytorch")
    server.registered[NAME] = "UNLOADED"
    assert await control.loaded() == frozenset()

    await control.load(NAME, good, "pytorch")

    assert await control.loaded() == {NAME}


async def test_models_of_every_page_of_torchserves_list_are_loaded(torchserve):
    server, control, _ = torchserve
    server.page = 2
    server.registered = {f"model-{number}": "READY" for number in range(5)}

    assert await control.loaded() == server.registered.keys()


@pytest.mark.parametrize("archives", [0, 2])
async def test_an_artifact_without_one_archive_is_refused_before_torchserve_is_asked(torchserve, tmp_path, archives):
    _, control, _ = torchserve
    (tmp_path / "other").mkdir()
    for number in range(archives):
        (tmp_path / f"other/{number}.mar").write_bytes(b"weights")

    with pytest.raises(LoadRefused, match=f"the artifact has {archives} archives"):
        await control.load(NAME, tmp_path / "other", "pytorch")


async def test_torchserve_with_its_model_api_off_is_said_to_need_its_flags(torchserve):
    server, control, good = torchserve
    server.is_open = False

    with pytest.raises(ServerNotManageable, match="method is not allowed") as refused:
        await control.load(NAME, good, "pytorch")

    assert "--disable-token-auth --enable-model-api" in refused.value.next_step


async def test_a_load_of_torchserve_has_an_end(torchserve):
    server, control, good = torchserve
    server.goes_on = asyncio.Event()

    with pytest.raises(LoadRefused, match=r"has not done it after 0\.5 s"):
        await control.load(NAME, good, "pytorch")
    server.goes_on.set()


@pytest.mark.parametrize("status", [500, 503])
async def test_models_of_which_torchserve_can_say_nothing_now_are_not_taken_for_lost(torchserve, status):
    server, control, good = torchserve
    await control.load(NAME, good, "pytorch")
    server.refuses = (status, "no answer from the backend now")

    for ask in (control.describe, control.loaded, lambda: control.load(NAME, good, "pytorch")):
        with pytest.raises(ServerNotManageable, match="no answer from the backend now"):
            await ask()

    server.refuses = None
    assert await control.loaded() == {NAME}


async def test_another_server_that_has_no_such_page_is_not_manageable(torchserve):
    server, control, _ = torchserve
    server.refuses = (404, "Not Found")

    for ask in (control.describe, control.loaded):
        with pytest.raises(ServerNotManageable, match="Not Found"):
            await ask()


async def test_a_list_of_models_without_an_end_is_not_read_for_ever(torchserve):
    server, control, _ = torchserve
    server.is_endless = True

    with pytest.raises(ServerNotManageable, match="its list of models has no end"):
        await control.loaded()


async def test_what_is_no_torchserve_is_not_taken_for_one(tmp_path):
    server = HttpModelServer(raw=b'HTTP/1.1 200 x\r\ncontent-length: 12\r\n\r\n{"info": {}}')
    await server.start()
    control = TorchServeControl(server.endpoint, tmp_path)

    with pytest.raises(ServerNotManageable, match="is no management API of TorchServe"):
        await control.describe()

    await control.close()
    await server.stop()
