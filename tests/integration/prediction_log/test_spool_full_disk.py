"""The spool on a volume that is full: rows land again as soon as there is room, whatever the segment's state."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from traffic.spooled_rows import a_prediction_id, a_row, ids_in, new_windows, no_threshold

from rigs.faults.not_here import NotHere
from rigs.faults.small_disk import small_disk
from understudy.adapters.disk.spool import Spool
from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.shipping.log_shipper import LogShipper

VOLUME = "512k"
SEGMENT_BYTES = 8 * 1_048_576
"""As a proxy has it: the volume is full long before a segment is."""
ROWS_THAT_FILL_IT = 3_000
LANDS_WITHIN_SECONDS = 10.0
MORE_THAN_THE_RESERVE = 400
"""Rows: the reserve is used, shipped, and used again."""


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    try:
        with small_disk(tmp_path / "volume", VOLUME) as folder:
            yield folder
    except NotHere as reason:
        pytest.skip(f"NOT CHECKED: {reason}")


@pytest.fixture
def open_spool(volume: Path) -> Iterator[Callable[[], Spool]]:
    opened: list[Spool] = []

    def open_it() -> Spool:
        for spool in opened:
            spool.close()
        opened.append(Spool(volume / "spool", limit_bytes=1 << 28, segment_bytes=SEGMENT_BYTES, sync_seconds=0.05))
        return opened[-1]

    yield open_it
    for spool in opened:
        spool.close()


def shipper_of(spool: Spool, store: MemoryPredictionStore) -> LogShipper:
    return LogShipper(
        spool, store, new_windows, no_threshold, MemoryTelemetry(), batch_rows=1_000, interval_seconds=0.01
    )


def fill(spool: Spool) -> list[str]:
    """Append rows until the volume takes no more; return the ids of those that were kept."""
    kept = [number for number in range(ROWS_THAT_FILL_IT) if spool.append(a_row(number))]
    assert len(kept) < ROWS_THAT_FILL_IT
    return list(map(a_prediction_id, kept))


async def append_until_kept(spool: Spool, shipper: LogShipper, number: int) -> bool:
    ends_at = time.monotonic() + LANDS_WITHIN_SECONDS
    while time.monotonic() < ends_at:
        if spool.append(a_row(number)):
            return True
        await shipper.drain(LANDS_WITHIN_SECONDS)
    return False


@pytest.mark.parametrize("process", ["the same", "restarted"])
async def test_once_rows_are_shipped_from_a_full_volume_the_next_ones_land(open_spool, process):
    spool, store = open_spool(), MemoryPredictionStore()
    filled = fill(spool)
    if process == "restarted":
        spool = open_spool()
    shipper = shipper_of(spool, store)

    await shipper.drain(LANDS_WITHIN_SECONDS)
    landed = await append_until_kept(spool, shipper, 9_000)
    later = [number for number in range(10_000, 11_000) if spool.append(a_row(number))]
    await shipper.drain(LANDS_WITHIN_SECONDS)

    assert landed
    assert len(later) == 1_000
    assert ids_in(store.rows) == [*filled, a_prediction_id(9_000), *map(a_prediction_id, later)]


async def test_the_room_of_shipped_rows_is_given_back_before_the_volume_is_full(open_spool, volume):
    spool, store = open_spool(), MemoryPredictionStore()
    shipper = shipper_of(spool, store)

    number, most_held = 0, 0
    for _ in range(40):
        for _ in range(100):
            assert spool.append(a_row(number))
            number += 1
        await shipper.drain(LANDS_WITHIN_SECONDS)
        held = sum(path.stat().st_size for path in (volume / "spool").glob("*/*.log"))
        most_held = max(most_held, held)

    assert len(store.rows) == number
    assert number * 250 > 512 * 1024, "more than the volume holds went through it"
    assert most_held < 512 * 1024 // 4


async def test_rows_go_on_landing_on_a_volume_that_others_have_filled(open_spool, volume):
    spool, store = open_spool(), MemoryPredictionStore()
    shipper = shipper_of(spool, store)
    spool.append(a_row(0))
    fill_up(volume / "filler")

    kept, number = [0], 0
    ends_at = time.monotonic() + 6 * LANDS_WITHIN_SECONDS
    while len(kept) < MORE_THAN_THE_RESERVE and time.monotonic() < ends_at:
        number += 1
        if spool.append(a_row(number)):
            kept.append(number)
        await shipper.drain(LANDS_WITHIN_SECONDS)

    assert kept[:200] == list(range(200)), "what is left of a page, and then the reserve, take a row each"
    assert len(kept) == MORE_THAN_THE_RESERVE
    assert ids_in(store.rows) == list(map(a_prediction_id, kept))


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4_096)) == 4_096:
                pass
        except OSError:
            return
