"""The power is cut at any moment: no row that was synced is lost, none comes twice, and nothing is invented."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from failing.power_cut import RecordedFiles
from traffic.chance import seed
from traffic.spooled_rows import a_prediction_id, a_row, ids_in, new_windows, no_threshold

from understudy.adapters.disk.spool import Spool
from understudy.adapters.memory.prediction_log import DeadLetter, MemoryPredictionStore
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.windows.window import Window
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome, WriteResult
from understudy.shipping.log_shipper import LogShipper

HISTORIES = 12
POWER_CUTS = 4
"""One after the other in each history: what one leaves is what the next worker begins with."""
STEPS = 25
SECONDS = 20.0


class Logged(NamedTuple):
    """What Postgres has: it survives, since it is another machine."""

    rows: int
    dead_letters: int
    offsets: tuple[tuple[str, tuple[int, int]], ...]


class Store(MemoryPredictionStore):
    """Notes after each commit what it holds, so that it can be had as it was at any moment."""

    def __init__(
        self, files: RecordedFiles, rows: Sequence[bytes] = (), dead_letters: Sequence[DeadLetter] = (),
        offsets: Sequence[tuple[str, tuple[int, int]]] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self._files = files
        self.rows.extend(rows)
        self.dead_letters.extend(dead_letters)
        self._offsets.update(offsets)
        self._note()

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        result = await super().write(batch, windows)
        self._note()
        return result

    async def reject(self, batch: SpooledBatch, why: str) -> WriteOutcome:
        outcome = await super().reject(batch, why)
        self._note()
        return outcome

    def _note(self) -> None:
        self._files.say(Logged(len(self.rows), len(self.dead_letters), tuple(self._offsets.items())))

    def as_of(self, moment: int, files: RecordedFiles, after: RecordedFiles) -> "Store":
        """Return what was committed before the power was cut, as a store of the next worker."""
        *_, last = (said for said in files.said_before(moment) if isinstance(said, Logged))
        return Store(after, self.rows[: last.rows], self.dead_letters[: last.dead_letters], last.offsets)


class History:
    """Workers, one after the other, on a volume that loses its power under each."""

    def __init__(self, folder: Path, dice: Random) -> None:
        self._folder, self._dice = folder, dice
        self.written: dict[str, bytes] = {}
        """Each row that any worker appended, by its id."""
        self.synced: set[str] = set()
        """Ids of rows that were synced before the power was cut."""
        self._own: set[str] = set()
        """Ids of rows that the worker appended that lives now."""
        self._number = 0

    async def run(self) -> None:
        volume = self._folder / "0"
        volume.mkdir()
        files = RecordedFiles(volume)
        store = Store(files)
        for cut in range(1, POWER_CUTS + 1):
            await self._work(volume, files, store)
            moment = self._dice.randrange(len(files.events)) + 1
            for said in files.said_before(moment):
                self.synced |= said if isinstance(said, frozenset) else frozenset()
            volume = self._folder / str(cut)
            files.after_power_cut(moment, self._dice, volume)
            after = RecordedFiles(volume)
            store, files = store.as_of(moment, files, after), after
        await self._work(volume, files, store)

    async def _work(self, volume: Path, files: RecordedFiles, store: Store) -> None:
        spool = Spool(
            volume / "spool", limit_bytes=1 << 24, segment_bytes=self._dice.choice((700, 2_000, 100_000)),
            sync_seconds=60, files=files, reserve_bytes=100,
        )  # fmt: skip
        shipper = LogShipper(
            spool, store, new_windows, no_threshold, MemoryTelemetry(),
            batch_rows=self._dice.choice((1, 3, 100)), interval_seconds=0.01,
        )  # fmt: skip
        self._own.clear()
        try:
            await self._ship(spool, shipper)
            self._append(spool, 1)
            await self._ship(spool, shipper)
            assert a_prediction_id(self._number - 1) in ids_in(store.rows), "what comes after a power cut lands"
            self._check(store)
            for _ in range(STEPS):
                await self._step(spool, shipper, files)
        finally:
            spool.close()

    async def _step(self, spool: Spool, shipper: LogShipper, files: RecordedFiles) -> None:
        match self._dice.choice(("append", "append", "append", "group", "sync", "ship")):
            case "append":
                self._append(spool, 1)
            case "group":
                self._append(spool, self._dice.randrange(2, 6))
            case "sync":
                written = frozenset(self._own)
                done = threading.Event()

                def on_synced(is_synced: bool) -> None:  # noqa: FBT001 - the port's callback
                    assert is_synced
                    files.say(written)
                    done.set()

                spool.sync(on_synced)
                assert await asyncio.to_thread(done.wait, SECONDS)
            case "ship":
                await shipper.drain(SECONDS)

    def _append(self, spool: Spool, count: int) -> None:
        rows = [a_row(self._number + place) for place in range(count)]
        self._number += count
        for row in rows:
            self.written[row.prediction_id] = encode_line(row)
            self._own.add(row.prediction_id)
        assert not spool.append_all(rows)

    async def _ship(self, spool: Spool, shipper: LogShipper) -> None:
        await shipper._ship_orphans()  # noqa: SLF001 - what run() does every five seconds
        await shipper.drain(SECONDS)

    def _check(self, store: Store) -> None:
        logged = ids_in(store.rows)
        assert len(set(logged)) == len(logged), "a row came twice"
        assert self.synced <= set(logged), "a row that was synced is lost"
        assert all(self.written.get(one) == row for one, row in zip(logged, store.rows, strict=True)), "invented"


@pytest.mark.deep
@pytest.mark.parametrize("number", range(HISTORIES))
async def test_whatever_a_power_cut_leaves_no_synced_row_is_lost_none_comes_twice_and_none_is_invented(
    tmp_path, number
):
    await History(tmp_path, Random(seed() + number)).run()


@pytest.mark.deep
async def test_what_is_synced_while_rows_go_on_coming_survives_too(tmp_path):
    volume, dice = tmp_path / "0", Random(seed())
    volume.mkdir()
    files = RecordedFiles(volume)
    store = Store(files)
    spool = Spool(
        volume / "spool", limit_bytes=1 << 24, segment_bytes=700, sync_seconds=60, files=files, reserve_bytes=100
    )
    written: set[str] = set()
    for number in range(600):
        if spool.append(a_row(number)):  # a row is dropped when syncing is far behind
            written.add(a_prediction_id(number))
        if number % 3 == 0:
            spool.sync(partial(_say_if_synced, files, frozenset(written)))
    spool.close()

    for cut in range(1, 11):
        moment = dice.randrange(len(files.events)) + 1
        files.after_power_cut(moment, dice, tmp_path / str(cut))
        synced = frozenset[str]().union(*(said for said in files.said_before(moment) if isinstance(said, frozenset)))
        after = RecordedFiles(tmp_path / str(cut))
        found = store.as_of(moment, files, after)
        with closing(
            Spool(tmp_path / str(cut) / "spool", limit_bytes=1 << 24, segment_bytes=700, sync_seconds=60, files=after)
        ) as next_one:
            shipper = LogShipper(
                next_one, found, new_windows, no_threshold, MemoryTelemetry(), batch_rows=100, interval_seconds=0.01
            )
            await shipper.drain(SECONDS)
        logged = ids_in(found.rows)
        assert synced <= set(logged)
        assert len(set(logged)) == len(logged)


def _say_if_synced(files: RecordedFiles, written: frozenset[str], is_synced: bool) -> None:  # noqa: FBT001 - the port's
    if is_synced:
        files.say(written)
