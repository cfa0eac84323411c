"""The spool's folder is deleted, moved, made read-only or mounted over under a worker: counted, and made again."""

import asyncio
import errno
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from failing.files import FailingFiles
from traffic.spooled_rows import a_prediction_id, a_row, ids_in, new_windows, no_threshold

from rigs.faults.not_here import NotHere
from rigs.faults.small_disk import small_disk
from understudy.adapters.disk.spool import Spool
from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.prediction_log.spool_format import encode_row
from understudy.shipping.log_shipper import LogShipper

SECONDS = 10.0
ROW_BYTES = len(encode_row(a_row(1_000)))
LIMIT_BYTES = 1_000 * ROW_BYTES


class Worker(NamedTuple):
    """A spool with its shipper, and what was counted."""

    spool: Spool
    store: MemoryPredictionStore
    shipper: LogShipper
    failures: Counter[str]
    files: FailingFiles
    directory: Path

    def append(self, *numbers: int) -> None:
        for number in numbers:
            assert self.spool.append(a_row(number))

    async def ship(self) -> None:
        await self.shipper.drain(SECONDS)
        for orphan in self.spool.orphans():
            place = await self.store.committed(orphan.spool_id)
            while (batch := orphan.read_from(*place, 100, 100_000)) is not None:
                assert not batch.damage
                await self.store.write(batch)
                place = (batch.segment, batch.end)
            orphan.forget(*place)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    directory, failures, files = tmp_path / "state" / "spool", Counter[str](), FailingFiles()
    spool = Spool(
        directory,
        limit_bytes=LIMIT_BYTES,
        segment_bytes=1_000,
        sync_seconds=0.02,
        on_failure=lambda kind: failures.update([kind]),
        files=files,
    )
    store = MemoryPredictionStore()
    shipper = LogShipper(
        spool, store, new_windows, no_threshold, MemoryTelemetry(), batch_rows=100, interval_seconds=0.01
    )
    yield Worker(spool, store, shipper, failures, files, directory)
    spool.close()


def moves_on(worker: Worker, spool_id: str, first: int) -> list[int]:
    """Append rows until they go to another folder; return their numbers."""
    appended: list[int] = []
    ends_at = time.monotonic() + SECONDS
    while worker.spool.own.spool_id == spool_id and time.monotonic() < ends_at:
        worker.append(first + len(appended))
        appended.append(first + len(appended))
        time.sleep(0.01)
    assert worker.spool.own.spool_id != spool_id
    return appended


def delete(worker: Worker, folder: Path) -> None:
    """Delete a folder as if in one step: file by file, the worker may make a new one in the middle of it."""
    gone = worker.directory.parent.with_name("gone")
    folder.rename(gone)
    shutil.rmtree(gone)


def delete_own(worker: Worker) -> None:
    delete(worker, worker.spool.own.folder)


def delete_all(worker: Worker) -> None:
    delete(worker, worker.directory.parent)


def move_away(worker: Worker) -> None:
    worker.directory.rename(worker.directory.with_name("elsewhere"))


def swap(worker: Worker) -> None:
    copied = worker.directory.with_name("backup")
    shutil.copytree(worker.directory, copied)
    worker.directory.rename(worker.directory.with_name("elsewhere"))
    copied.rename(worker.directory)


@pytest.mark.parametrize("lose", [delete_own, delete_all, move_away, swap])
async def test_a_folder_that_is_lost_is_counted_and_made_again_and_its_rows_are_shipped_once(
    worker: Worker, lose: Callable[[Worker], None]
):
    spool_id = worker.spool.own.spool_id
    worker.append(*range(20))
    await worker.ship()
    worker.append(*range(20, 40))

    lose(worker)
    last = moves_on(worker, spool_id, 40)
    worker.append(*range(5_000, 5_010))
    await worker.ship()

    assert worker.failures["folder"] >= 1
    assert worker.spool.own.is_in_place
    expected = [*range(40), *last, *range(5_000, 5_010)]
    assert sorted(ids_in(worker.store.rows)) == sorted(map(a_prediction_id, expected))
    assert worker.store.dead_letters == []


async def test_a_folder_in_which_nothing_can_be_created_is_counted_and_left_for_another_one(worker):
    spool_id = worker.spool.own.spool_id
    worker.append(*range(20))
    worker.files.refused, worker.files.error = {"create"}, errno.EROFS

    appended: list[int] = []
    ends_at = time.monotonic() + SECONDS
    while worker.failures["folder"] < 3 and time.monotonic() < ends_at:
        worker.append(20 + len(appended))
        appended.append(20 + len(appended))
        await asyncio.sleep(0.01)
    worker.files.refused = set()
    last = moves_on(worker, spool_id, 20 + len(appended))
    await worker.ship()

    assert worker.failures["folder"] >= 3
    expected = [*range(20), *appended, *last]
    assert sorted(ids_in(worker.store.rows)) == sorted(map(a_prediction_id, expected))


async def test_another_volume_that_is_mounted_over_the_spool_is_used_and_the_old_rows_are_shipped(worker):
    spool_id = worker.spool.own.spool_id
    worker.append(*range(30))
    try:
        with small_disk(worker.directory, "1m"):
            last = moves_on(worker, spool_id, 30)
            await worker.ship()
            worker.spool.close()
    except NotHere as reason:
        pytest.skip(f"NOT CHECKED: {reason}")

    assert sorted(ids_in(worker.store.rows)) == sorted(map(a_prediction_id, [*range(30), *last]))


def test_rows_of_a_lost_folder_count_against_the_limit_until_they_are_shipped(worker):
    spool_id = worker.spool.own.spool_id
    worker.append(*range(LIMIT_BYTES // ROW_BYTES // 2))
    delete_own(worker)
    moves_on(worker, spool_id, 1_000)

    before = sum(orphan.unshipped_bytes for orphan in worker.spool.orphans())
    number = 2_000
    while worker.spool.append(a_row(number)):
        number += 1

    assert before > LIMIT_BYTES // 3
    assert before + worker.spool.own.unshipped_bytes <= LIMIT_BYTES
    assert before + worker.spool.own.unshipped_bytes > LIMIT_BYTES - 2 * ROW_BYTES
