"""What the log's index by entity saves who looks an entity up, and what it costs who ships rows."""

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

from loadtests.lake import filled_spool, log_shipper_of, rows_of
from understudy.adapters.postgres.prediction_log.entity_index import drop_entity_index, make_entity_index
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.serving.prediction_log.shared_spool import SharedSpool

PAIRS, ROWS = 3, 40_000
LEAST_RATIO = 0.85
"""Of the rows a second that are shipped without it."""
_TIMEOUT_SECONDS = 60.0


async def shipped_per_second(url: str, folder: Path, version_id: int, seed: int) -> float:
    """Return how many rows a second one shipper writes, with its windows, from a spool that is full already."""
    spool = filled_spool(folder / f"spool-{seed}", rows_of(ROWS, version_id, seed))
    store = PostgresPredictionStore(url, timeout_seconds=_TIMEOUT_SECONDS)
    shipper = log_shipper_of(SharedSpool(spool, 1).shelf_of(0), store)
    began = time.perf_counter()
    await shipper.drain(600)
    seconds = time.perf_counter() - began
    if spool.own.unshipped_bytes:
        raise RuntimeError("rows were left in the spool; the figures would mean nothing")
    await store.close()
    spool.close()
    return ROWS / seconds


async def indexed(url: str, folder: Path, version_id: int, search: Callable[[], Awaitable[Sequence[str]]]) -> list[str]:
    """Return what searches take with the index, and both ways of shipping beside each other.

    Args:
        url: Of the log, whose owner it signs in as.
        folder: For spools.
        version_id: Of the rows that are shipped.
        search: Looks entities up, and says how long that took.
    """
    speeds: dict[bool, list[float]] = {False: [], True: []}
    said: Sequence[str] = ()
    size_bytes, made_seconds = 0, 0.0
    for pair in range(PAIRS):
        # In turns, and each way first in turn: the log grows.
        for with_it in (True, False) if pair % 2 else (False, True):
            began = time.perf_counter()
            if with_it:
                index = await make_entity_index(url, timeout_seconds=_TIMEOUT_SECONDS)
                size_bytes = index.size_bytes
            else:
                await drop_entity_index(url, timeout_seconds=_TIMEOUT_SECONDS)
            if with_it and not said:
                made_seconds = time.perf_counter() - began
                said = await search()
            seed = 2 * pair + with_it
            speeds[with_it].append(await shipped_per_second(url, folder, version_id, seed))
    ratio = median(one / other for one, other in zip(speeds[True], speeds[False], strict=True))
    return [
        f"the index by entity: {size_bytes / 1e6:,.0f} MB, made in {made_seconds:.1f} s; with it:",
        *said,
        f"{PAIRS} pairs of {ROWS:,} rows shipped, in turns: {ratio:.2f} times as fast (at least {LEAST_RATIO:g}),",
        f"{median(speeds[False]):,.0f} rows a second without it, {median(speeds[True]):,.0f} with it",
    ]
