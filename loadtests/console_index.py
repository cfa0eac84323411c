"""What the log's index by entity saves who looks an entity up, and what it costs who ships rows."""

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from loadtests.lake import filled_spool, log_shipper_of, rows_of
from loadtests.machine import cpu_seconds
from understudy.adapters.postgres.prediction_log.entity_index import drop_entity_index, make_entity_index
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.shipping.shared_spool import SharedSpool

PAIRS, ROWS = 5, 200_000
LEAST_RATIO = 0.85
"""Of the rows a second that are shipped without it."""
_TIMEOUT_SECONDS = 60.0


class Shipped(NamedTuple):
    """What shipping came to."""

    per_second: float
    """Rows."""
    cpu_us: float
    """Processor time a row, of the shipper and Postgres: where others run beside, it says more than the clock."""


async def shipped(url: str, postgres: int, folder: Path, version_id: int, seed: int) -> Shipped:
    """Return how fast one shipper writes rows, with its windows, from a spool that is full already."""
    spool = filled_spool(folder / f"spool-{seed}", rows_of(ROWS, version_id, seed))
    store = PostgresPredictionStore(url, timeout_seconds=_TIMEOUT_SECONDS)
    shipper = log_shipper_of(SharedSpool(spool, 1).shelf_of(0), store)
    began, used = time.perf_counter(), cpu_seconds([os.getpid(), postgres])
    await shipper.drain(600)
    seconds, spent = time.perf_counter() - began, cpu_seconds([os.getpid(), postgres]) - used
    if spool.own.unshipped_bytes:
        raise RuntimeError("rows were left in the spool; the figures would mean nothing")
    await store.close()
    spool.close()
    return Shipped(ROWS / seconds, 1e6 * spent / ROWS)


async def indexed(
    url: str, postgres: int, folder: Path, version_id: int, search: Callable[[], Awaitable[Sequence[str]]]
) -> list[str]:
    """Return what searches take with the index, and both ways of shipping beside each other.

    Args:
        url: Of the log, whose owner it signs in as.
        postgres: Its server's process id.
        folder: For spools.
        version_id: Of the rows that are shipped.
        search: Looks entities up, and says how long that took.
    """
    ways: dict[bool, list[Shipped]] = {False: [], True: []}
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
            ways[with_it].append(await shipped(url, postgres, folder, version_id, seed))
    ratio = median(one.per_second / other.per_second for one, other in zip(ways[True], ways[False], strict=True))
    speed = {with_it: median(one.per_second for one in found) for with_it, found in ways.items()}
    cpu_us = {with_it: median(one.cpu_us for one in found) for with_it, found in ways.items()}
    spent = f"processor time a row {cpu_us[False]:.1f} and {cpu_us[True]:.1f} µs"
    return [
        f"the index by entity: {size_bytes / 1e6:,.0f} MB, made in {made_seconds:.1f} s; with it:",
        *said,
        f"{PAIRS} pairs of {ROWS:,} rows shipped, in turns: {ratio:.2f} times as fast (at least {LEAST_RATIO:g}),",
        f"{speed[False]:,.0f} rows a second without it, {speed[True]:,.0f} with it; {spent}",
    ]
