"""Where rows go by ``UNDERSTUDY_LOG``, put together as a proxy does it, and what the next process may do."""

import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from traffic.spooled_rows import a_prediction_id, a_row
from worlds.lake import A_VERSION, Lake

from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.prediction_log.log import open_shipper, open_spool
from understudy.errors import LakeUnavailable
from understudy.settings import Settings

pytestmark = pytest.mark.deep


async def log_some(lake: Lake, mode: str, numbers: range, *, drain_seconds: float = 60.0) -> None:
    """Log some rows, every tenth with sampled inputs, and end in order."""
    settings = Settings(
        database_url=lake.url, log=mode, lake_url=lake.place, state_dir=lake.folder / "state",
        drain_seconds=drain_seconds, spool_segment_bytes=8_192,
    )  # fmt: skip
    telemetry = PrometheusTelemetry()
    feed: Any = SimpleNamespace(snapshot=None)
    async with AsyncExitStack() as stack:
        spool = open_spool(settings, telemetry, stack)
        open_shipper(settings, spool, feed, telemetry, stack)
        rows = [a_row(number)._replace(predicted_at=time.time()) for number in numbers]
        spool.append_all([row._replace(inputs=b'{"a":1}') if n % 10 == 0 else row for n, row in enumerate(rows)])


def ids(numbers: Iterable[int]) -> set[str]:
    return set(map(a_prediction_id, numbers))


async def test_rows_are_in_the_lake_alone_but_for_the_sample_and_windows_count_them_all(
    database, database_url, tmp_path
):
    await database.fetchval(A_VERSION, "visits", "1")
    lake = Lake(database_url, tmp_path)

    await log_some(lake, "postgres", range(20))
    await log_some(lake, "lake", range(100, 140))
    await log_some(lake, "postgres", range(200, 220))
    await lake.commit()

    logged = {str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog")}
    # What a spool still has on the disk when the lake is turned on goes there as well.
    assert ids(range(100, 140)) <= set(lake.ids()) <= ids([*range(20), *range(100, 140)])
    assert max(lake.ids().values()) == 1
    assert logged == ids([*range(20), *range(100, 140, 10), *range(200, 220)])
    assert await database.fetchval("SELECT sum(calls) FROM PredictionWindow") == 80
    lake.close()


async def test_a_process_that_did_not_end_in_order_is_followed_by_one_that_writes_both_ways(
    database, database_url, tmp_path
):
    await database.fetchval(A_VERSION, "visits", "1")
    lake = Lake(database_url, tmp_path)
    await log_some(lake, "lake", range(40), drain_seconds=0.0001)

    with pytest.raises(LakeUnavailable, match="may have rows for the lake alone"):
        await log_some(lake, "postgres", range(100, 110))
    await log_some(lake, "postgres+lake", range(200, 210))
    await log_some(lake, "postgres", range(300, 310))
    await lake.commit()

    assert set(lake.ids()) == ids([*range(40), *range(200, 210)])
    lake.close()
