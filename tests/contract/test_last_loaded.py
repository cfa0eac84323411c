"""What every ``LastLoaded`` does: the twin, and the file beside a stage."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.adapters.artifacts.last_loaded_file import LastLoadedFile
from understudy.adapters.memory.last_loaded import MemoryLastLoaded
from understudy.ports.loading.last_loaded import LastLoaded, LoadedModel

MODELS = {
    LoadedModel("visits--1--0ba1c2d3", "sha256:" + "ab" * 32, "onnx"),
    LoadedModel("visits--é--0ba1c2d4", "sha256:" + "cd" * 32, "sklearn"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stage" / "last_loaded"


@pytest.fixture(params=["twin", "file"])
def last(request: pytest.FixtureRequest, path: Path) -> LastLoaded:
    return MemoryLastLoaded() if request.param == "twin" else LastLoadedFile(path)


async def test_what_is_kept_takes_the_place_of_what_was_kept_before(last):
    assert set(await last.read()) == set()

    assert await last.keep(MODELS)
    assert set(await last.read()) == MODELS

    await last.keep([])
    assert set(await last.read()) == set()


async def test_a_file_survives_its_process_and_is_its_owners_alone(path):
    await LastLoadedFile(path).keep(MODELS)

    assert set(await LastLoadedFile(path).read()) == MODELS
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content.replace(b"onnx", b"onny"),
        lambda content: b"f" + content[1:],
        lambda _: b"",
        lambda content: content * 100_000,
    ],
    ids=["truncated", "a letter", "its digest", "emptied", "too long"],
)
def test_a_damaged_file_says_nothing(path: Path, damage: Callable[[bytes], bytes]):
    last = LastLoadedFile(path)
    asyncio.run(last.keep(MODELS))
    path.write_bytes(damage(path.read_bytes()))

    assert set(asyncio.run(last.read())) == set()


async def test_a_file_that_cannot_be_written_costs_what_was_to_be_kept_and_no_more(path: Path):
    path.parent.write_bytes(b"a file in the place of the folder")

    assert not await LastLoadedFile(path).keep(MODELS)

    assert set(await LastLoadedFile(path).read()) == set()


def test_a_write_that_fails_leaves_nothing_beside_the_file(path: Path):
    last = LastLoadedFile(path)
    path.mkdir(parents=True)  # which a file cannot take the place of

    assert not asyncio.run(last.keep(MODELS))
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    path.rmdir()
    assert asyncio.run(last.keep(MODELS))

    assert set(asyncio.run(last.read())) == MODELS
