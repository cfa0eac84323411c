"""An object store that is slow, full, refuses or is away: the spool holds what waits, bounded, and catches up."""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from loopback.bad_store import a_bad_store
from loopback.s3 import LOGIN, an_s3_server, make_bucket
from traffic.spooled_rows import a_row
from worlds.lake import A_VERSION, Lake, log_shipper

from understudy.adapters.disk.spool import Spool
from understudy.shipping.shared_spool import SharedSpool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LIMIT_BYTES = 400_000
MOODS = ("slow", "full", "refusing", "away")


def size_of(segment: Path) -> int:
    """Return a segment's bytes; one that is shipped may be deleted once it has been listed."""
    with suppress(FileNotFoundError):
        return segment.stat().st_size
    return 0


async def test_the_spool_holds_what_a_bad_store_does_not_take_within_its_bound_and_catches_up(
    database, database_url, tmp_path, monkeypatch
):
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    assert await database.fetchval(A_VERSION, "visits", "1") == 1
    with an_s3_server(tmp_path) as server, a_bad_store(server) as store:
        make_bucket(server, "lake")
        lake = Lake(database_url, tmp_path, "s3://lake/understudy", store.url)
        spool = Spool(tmp_path / "spool", limit_bytes=LIMIT_BYTES, segment_bytes=20_000, sync_seconds=1.0)
        shared = SharedSpool(spool, 2)
        in_lake = lake.lake_shipper(shared.shelf_of(0), interval_seconds=0.1, look_seconds=0.05)
        promised: list[str] = []
        lost = 0
        async with log_shipper(lake, shared.shelf_of(1)) as in_postgres:
            running = [asyncio.create_task(one.run()) for one in (in_lake, in_postgres)]
            for mood in (*MOODS, "well"):
                store.mood = mood
                until = time.monotonic() + 4
                # Away for long enough that the bound is met.
                while time.monotonic() < until or (mood == "away" and not lost):
                    row = a_row(len(promised) + lost)._replace(predicted_at=time.time())
                    if spool.append(row):
                        promised.append(row.prediction_id)
                    else:
                        lost += 1
                    assert sum(map(size_of, (tmp_path / "spool").rglob("*.log"))) <= LIMIT_BYTES + 20_000
                    await asyncio.sleep(0.0005)
            assert await database.fetchval("SELECT count(*) FROM PredictionLog") > 0
            deadline = time.monotonic() + 120
            while shared.shelf_of(0).own.unshipped_bytes and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            for task in running:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await in_postgres.drain(60)
        await lake.commit()

        assert lost > 0
        assert lake.ids() == Counter(promised)
        logged = Counter(str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog"))
        assert logged == Counter(promised)
        spool.close()
        lake.close()


async def test_merging_and_erasing_go_on_where_a_bad_store_stopped_them(database, database_url, tmp_path, monkeypatch):
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    version = await database.fetchval(A_VERSION, "churn/eu 1", "1")
    with an_s3_server(tmp_path) as server, a_bad_store(server) as store:
        make_bucket(server, "lake")
        lake = Lake(database_url, tmp_path, "s3://lake/understudy", store.url)
        for number in range(3):
            spool = lake.spool()
            at = time.time() - 7_200
            spool.append_all([
                a_row(number * 4 + n, version_id=version)._replace(predicted_at=at - at % 3_600 + number)
                for n in range(4)
            ])  # fmt: skip
            await lake.ship(SharedSpool(spool, 1).shelf_of(0))
            spool.close()
            await lake.commit(over_seconds=1e9)
        store.mood = "refusing"
        with pytest.raises(Exception, match=r"E515|E513|lake"):
            await lake.commit(over_seconds=0)
        store.mood = "well"
        await lake.commit(over_seconds=0)
        await lake.commit(over_seconds=0, snapshot_seconds=-1)

        tasks = list(lake.table().load().scan().plan_files())
        assert len(tasks) == 1
        assert sorted(key for key in await lake.store.keys() if key.endswith(".parquet")) == [
            tasks[0].file.file_path.removeprefix("s3://lake/understudy/")
        ]
        assert sum(lake.ids().values()) == 12
        lake.close()
