"""Rows on their way to the lake: the same file again after a failure, and no row twice."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from traffic.spooled_rows import a_prediction_id, a_row
from unit.shipping.test_log_shipper import Recorded

from understudy.adapters.memory.archive import MemoryArchive
from understudy.adapters.memory.lake import MemoryLakeFiles, MemoryLakeLedger
from understudy.adapters.memory.prediction_log import MemorySpool
from understudy.core.prediction_log.lake import NamedFile, Stretch
from understudy.errors import ArchiveUnavailable, RegistryUnavailable
from understudy.ports.prediction_log.lake import LakeFiles, VersionName
from understudy.ports.prediction_log.prediction_log import SpooledBatch
from understudy.shipping.lake_shipper import LakeShipper
from understudy.shipping.shared_spool import SharedSpool


class Away(MemoryArchive):
    """A store that refuses as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0
        self.asked: list[str] = []

    async def put(self, key: str, source: Path) -> None:
        self.asked.append(key)
        if self.refusals:
            self.refusals -= 1
            raise ArchiveUnavailable("the bucket is away")
        await super().put(key, source)


class Watched(Recorded):
    """Telemetry that says when rows have waited for long."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = asyncio.Event()

    def set(self, name: str, value: float, *labels: str) -> None:
        super().set(name, value, *labels)
        if name == "prediction_log_lake_waiting_seconds" and value >= 400:
            self.is_late.set()


class Hanging(MemoryArchive):
    """A store that takes a file and never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def put(self, key: str, source: Path) -> None:
        del key, source
        self.is_asked.set()
        await asyncio.Event().wait()


class Moody(MemoryLakeLedger):
    """A ledger that is away when it is told so."""

    is_away = False

    async def stored(self, stretch: Stretch, files: Sequence[NamedFile]) -> bool:
        if self.is_away:
            raise RegistryUnavailable("away")
        return await super().stored(stretch, files)


class Slow(MemoryLakeFiles):
    """Files whose thread goes on after the turn that it worked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_entered, self.may_go_on, self.is_added = (threading.Event() for _ in range(3))

    def add(self, batch: SpooledBatch) -> int:
        self.is_entered.set()
        self.may_go_on.wait(5)
        try:
            return super().add(batch)
        finally:
            self.is_added.set()


class World:
    def __init__(self, folder: Path) -> None:
        self.spool = MemorySpool(segment_bytes=2_000)
        self.shared = SharedSpool(self.spool, 1)
        self.ledger = Moody({1: VersionName("visits", "1")})
        self.telemetry = Watched()
        self.store: Any = Away()
        self.folder = folder
        self.first_files: list[LakeFiles] = []

    def shipper(self, **changes: Any) -> LakeShipper:
        given: dict[str, Any] = {"interval_seconds": 60.0, "file_bytes": 1 << 20, "now": lambda: 0.0} | changes
        return LakeShipper(self.shared.shelf_of(0), self.ledger, self.store, self.new_files, self.telemetry, **given)

    def new_files(self) -> LakeFiles:
        return self.first_files.pop() if self.first_files else MemoryLakeFiles(self.folder)

    def append(self, first: int, last: int) -> None:
        for number in range(first, last):
            assert self.spool.append(a_row(number))

    async def ids(self) -> list[str]:
        """The ids in files that are called stored."""
        found = []
        for key, file in self.ledger.files.items():
            target = self.folder / "fetched"
            if file is not None and await self.store.fetch(key, target):
                found += target.read_text().splitlines()
        return sorted(found)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def all_ids(rows: int) -> list[str]:
    return [a_prediction_id(number) for number in range(rows)]


async def test_a_file_holds_rows_of_several_segments_and_each_row_is_in_one(world):
    world.append(0, 40)

    await world.shipper(file_bytes=5_000).drain(1.0)

    assert await world.ids() == all_ids(40)
    assert 1 < len(world.ledger.files) < 40 // 5
    assert world.spool.unshipped_bytes == 0
    assert world.telemetry.counts["prediction_log_lake_rows_total", "written"] == 40


async def test_a_try_after_a_failure_writes_the_same_file_although_rows_came_meanwhile(world):
    shipper = world.shipper()
    world.append(0, 7)
    world.store.refusals = 2
    for last in (9, 11):
        await shipper.drain(1.0)
        world.append(last - 2, last)

    await shipper.drain(1.0)

    first = world.store.asked[0]
    assert world.store.asked[:3] == [first, first, first]
    assert len(world.store.asked) == 4
    assert await world.ids() == all_ids(11)


async def test_rows_that_another_shipper_stored_meanwhile_are_not_stored_again(world):
    shipper = world.shipper()
    world.append(0, 3)
    await shipper.drain(1.0)
    [(name, place)] = world.ledger.places.items()
    world.append(3, 5)
    batch = world.spool.read_from(*place, 10, 1 << 20)
    await world.ledger.stored(Stretch(name, place, (batch.segment, batch.end)), ())

    await shipper.drain(1.0)

    assert await world.ids() == all_ids(3)
    assert world.spool.unshipped_bytes == 0


async def test_a_spool_under_another_id_goes_on_where_it_was(world):
    shipper = world.shipper()
    world.append(0, 3)
    await shipper.drain(1.0)

    world.shared.shelf_of(0).own.rename("another")
    world.append(3, 5)
    await shipper.drain(1.0)

    assert await world.ids() == all_ids(5)
    assert "lake:another" in world.ledger.places


async def test_a_place_beyond_the_spool_is_not_believed(world):
    world.append(0, 3)
    world.ledger.places[f"lake:{world.spool.spool_id}"] = (99, 0)

    await world.shipper().drain(1.0)

    assert await world.ids() == all_ids(3)
    assert world.telemetry.counts["prediction_log_errors_total", "offset"] == 1


async def test_a_spool_under_another_id_goes_on_where_it_was_although_the_database_was_away_meanwhile(world):
    shipper = world.shipper()
    world.append(0, 3)
    await shipper.drain(1.0)
    world.shared.shelf_of(0).own.rename("another")
    world.ledger.is_away = True
    await shipper.drain(1.0)

    world.ledger.is_away = False
    world.append(3, 5)
    await shipper.drain(1.0)

    assert await world.ids() == all_ids(5)


async def test_a_thread_that_outlives_a_cancelled_turn_adds_nothing_to_the_next_one(world):
    shipper = world.shipper()
    slow = Slow(world.folder)
    world.first_files.append(slow)
    world.append(0, 3)
    turn = asyncio.create_task(shipper.drain(60))
    await asyncio.to_thread(slow.is_entered.wait, 5)
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn

    slow.may_go_on.set()
    await asyncio.to_thread(slow.is_added.wait, 5)
    await shipper.drain(1.0)

    assert await world.ids() == all_ids(3)


async def test_how_long_rows_wait_is_told_while_a_store_hangs(world):
    clock = [0.0]
    world.store = Hanging()
    world.append(0, 3)
    shipper = world.shipper(now=lambda: clock[0], look_seconds=0.001)
    clock[0] = 61.0
    running = asyncio.create_task(shipper.run())
    await asyncio.wait_for(world.store.is_asked.wait(), 5)

    clock[0] = 400.0

    await asyncio.wait_for(world.telemetry.is_late.wait(), 5)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def some_looks(world: World, looks: int = 5) -> None:
    """Wait until the shipper has looked so often at what waits."""
    wanted = len(world.telemetry.history) + 2 * looks
    async with asyncio.timeout(5):
        while len(world.telemetry.history) < wanted:  # noqa: ASYNC110 - the twins announce no state
            await asyncio.sleep(0.001)


def files_written(world: World) -> float:
    return world.telemetry.counts.get(("prediction_log_lake_files_total",), 0)


async def test_what_is_less_than_a_file_gathers_behind_one_until_the_interval_is_over(world):
    clock = [0.0]
    world.append(0, 15)
    shipper = world.shipper(now=lambda: clock[0], look_seconds=0.001, file_bytes=3_000)
    running = asyncio.create_task(shipper.run())
    async with asyncio.timeout(5):
        while not files_written(world):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await some_looks(world)
    first, rest = files_written(world), world.spool.unshipped_bytes
    clock[0] = 61.0
    async with asyncio.timeout(5):
        while world.spool.unshipped_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    assert first == 1
    assert 0 < rest < 3_000
    assert await world.ids() == all_ids(15)
