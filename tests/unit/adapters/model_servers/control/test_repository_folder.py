"""The folder that a model server reads: models are there whole, or not, however long the file system takes."""

import shutil
from pathlib import Path
from threading import Event
from threading import enumerate as threads

import pytest

from understudy.adapters.artifacts.bounded_thread import NAME as THREAD
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder, link_or_copy
from understudy.errors import LoadRefused


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "staged"
    (folder / "weights").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"model")
    (folder / "weights/0").write_bytes(b"0")
    return folder


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


async def test_a_model_is_put_under_its_name_as_its_one_version_and_dropped(tmp_path, source):
    folder = RepositoryFolder(tmp_path / "models")
    for _ in range(2):
        await folder.put("visits--1", source, "onnx")
    assert files_below(tmp_path / "models") == {"visits--1/1/model.onnx", "visits--1/1/weights/0"}

    for _ in range(2):
        await folder.drop("visits--1")

    assert files_below(tmp_path / "models") == set()


async def test_a_copy_that_hangs_is_refused_in_time_and_appears_under_no_name_once_it_goes_on(tmp_path, source):
    goes_on = Event()

    def hang(one: str, target: str) -> None:
        goes_on.wait(60)
        link_or_copy(one, target)

    folder = RepositoryFolder(tmp_path / "models", copy=hang, seconds=0.02)
    with pytest.raises(LoadRefused, match=r"visits--1 cannot be put into .*: it takes longer than 0\.02 s"):
        await folder.put("visits--1", source, "onnx")
    goes_on.set()
    for thread in threads():
        if thread.name == THREAD:
            thread.join(60)
    assert not (tmp_path / "models/visits--1").exists()

    await RepositoryFolder(tmp_path / "models").put("visits--1", source, "onnx")

    assert [path.name for path in (tmp_path / "models").iterdir()] == ["visits--1"]


async def test_a_folder_that_cannot_be_written_is_said_to_be_so(tmp_path, source):
    (tmp_path / "models").write_bytes(b"a file")

    with pytest.raises(LoadRefused, match="Not a directory"):
        await RepositoryFolder(tmp_path / "models").put("visits--1", source, "onnx")


async def test_files_that_the_server_wrote_and_that_cannot_be_deleted_are_in_no_loads_way(
    tmp_path, source, monkeypatch
):
    folder = RepositoryFolder(tmp_path / "models")
    await folder.put("visits--1", source, "onnx")
    (tmp_path / "models/visits--1/1/cache").write_bytes(b"the server's")
    monkeypatch.setattr(shutil, "rmtree", lambda _folder, **_: None)

    await folder.put("visits--1", source, "onnx")
    seen = files_below(tmp_path / "models/visits--1")
    await folder.drop("visits--1")

    assert seen == {"1/model.onnx", "1/weights/0"}
    assert list((tmp_path / "models").glob("[!.]*")) == []


async def test_of_files_that_cannot_be_copied_the_first_one_is_named_and_no_part_of_the_model_stays(tmp_path, source):
    def refuse(one: str, target: str) -> None:
        raise OSError(28, "No space left on device", target)

    with pytest.raises(LoadRefused, match=r": (model\.onnx|0): .*No space left on device.* \(1 more\)$"):
        await RepositoryFolder(tmp_path / "models", copy=refuse).put("visits--1", source, "onnx")

    assert list((tmp_path / "models").iterdir()) == []
