"""Two at the lake's table at once: what an erasure, a proxy and the monitor do while another is between two steps."""

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from traffic.spooled_rows import a_prediction_id
from worlds.lake import A_VERSION, Calls, Fault, Lake, files_of, ship_files, some_rows, stored
from worlds.lake_erasure import ENTITY, Beside, bytes_with, forget, names_of, ship

from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.errors import UnderstudyError
from understudy.shipping.shared_spool import SharedSpool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OTHER = "customer-7-of-another-person"


@pytest.fixture
async def version(database):
    return await database.fetchval(A_VERSION, "visits", "1")


@pytest.fixture
def lake(database_url, tmp_path):
    lake = Lake(database_url, tmp_path)
    yield lake
    lake.close()


class Paused(Calls):
    """Lets a monitor stand still before it replaces files."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = threading.Event()
        self.goes_on = threading.Event()

    def before(self, name: str) -> None:
        super().before(name)
        if name == "replace":
            self.has_come.set()
            assert self.goes_on.wait(120)


class Held:
    """An erasure's ledger: before its first rewrite its hold lapses, and a monitor begins to merge."""

    def __init__(self, ledger: Any, lake: Lake, database: Any, monitor: Paused) -> None:
        self._ledger = ledger
        self._lake = lake
        self._database = database
        self._monitor = monitor
        self.merging: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def begin(self, erasure: Any, old_paths: Any) -> Any:
        if old_paths and self.merging is None:
            await self._database.execute("UPDATE LakeRewrite SET begun_at = now() - INTERVAL '2 hours'")
            self.merging = asyncio.create_task(self._lake.commit(self._monitor, over_seconds=0))
            assert await asyncio.to_thread(self._monitor.has_come.wait, 120)
        return await self._ledger.begin(erasure, old_paths)

    async def is_merging(self) -> bool:
        is_merging: bool = await self._ledger.is_merging()
        if is_merging:
            self._monitor.goes_on.set()
        return is_merging


async def test_what_a_monitor_merges_after_the_hold_of_an_erasure_lapsed_is_waited_for_and_deleted(
    lake, database, version
):
    at = time.time() - 7_200
    for first in (0, 10):
        await ship(lake, version, range(first, first + 10), at=at - at % 3_600 + first)
        await lake.commit(over_seconds=1e9)
    monitor, opened = Paused(), list[Held]()

    def held(ledger: Any) -> Held:
        opened.append(Held(ledger, lake, database, monitor))
        return opened[0]

    result = await forget(lake, in_front=held, patience_seconds=60)
    with_name = bytes_with(lake, ENTITY)
    monitor.goes_on.set()
    assert opened[0].merging is not None
    await opened[0].merging

    assert result.is_finished
    assert with_name == []
    assert sum(names_of(lake).values()) == 20


async def test_a_monitor_that_was_replaced_while_its_thread_replaced_files_changes_nothing_later(
    lake, database, version
):
    await ship_files(lake, version, range(3))
    first = Paused()
    merging = asyncio.create_task(lake.commit(first, over_seconds=0))
    assert await asyncio.to_thread(first.has_come.wait, 120)
    await database.execute("UPDATE MonitorLease SET renewed_at = now() - INTERVAL '1 minute'")
    lease = PostgresLease(lake.url, timeout_seconds=10)
    epoch = await lease.take_or_renew("another monitor")
    await lease.close()
    assert epoch is not None

    await lake.job(over_seconds=1e9).run(epoch)
    first.goes_on.set()
    with suppress(UnderstudyError):
        await merging
    assert len(files_of(lake)) == 3
    await lake.job(over_seconds=0, snapshot_seconds=-1).run(epoch)

    assert lake.ids() == Counter(map(a_prediction_id, range(9)))
    assert sorted(path.rpartition("/")[2] for path in files_of(lake)) == stored(lake)


async def test_an_object_of_a_first_try_is_deleted_once_its_rows_came_under_other_names(lake, version):
    await ship(lake, version, range(10))
    await lake.commit()
    spool = lake.spool()
    spool.append_all(some_rows(range(10, 20), version, lambda _n: {"entity_id": ENTITY}))
    with pytest.raises(Fault):
        await lake.ship(SharedSpool(spool, 1).shelf_of(0), Calls(2 * 6 + 1))  # after the file was put

    async def the_proxy_comes_back() -> None:
        await lake.ship(SharedSpool(spool, 1).shelf_of(0))
        await lake.commit(over_seconds=1e9)

    result = await forget(lake, in_front=lambda part: Beside(part, "unfinished", after=the_proxy_comes_back))

    assert result.is_finished
    assert bytes_with(lake, ENTITY) == []
    assert sum(names_of(lake).values()) == 20
    spool.close()


async def test_a_file_that_loses_one_name_while_another_entity_is_erased_loses_that_name_too(lake, version):
    await ship(lake, version, range(10), change=lambda _n: {"entity_id": OTHER})
    await lake.commit()
    assert (await forget(lake, entity=OTHER)).is_finished
    asked, erasing = asyncio.Event(), list[Any]()

    async def has_asked() -> None:
        asked.set()

    async def the_other_erasure_begins() -> None:
        in_front = lambda part: Beside(part, "unfinished", after=has_asked)  # noqa: E731 - named for its line
        erasing.append(asyncio.create_task(forget(lake, in_front=in_front)))
        await asyncio.wait_for(asked.wait(), 60)

    lake.ledger = Beside(lake.ledger, "late_names", after=the_other_erasure_begins)
    await ship(lake, version, range(10, 20), change=lambda n: {"entity_id": OTHER if n % 2 else ENTITY})
    result = await erasing[0]
    await lake.commit()

    assert result.is_finished
    assert bytes_with(lake, ENTITY) == []
    assert sum(names_of(lake).values()) == 20


async def test_a_file_that_a_proxy_took_so_long_for_that_an_erasure_gave_it_up_comes_without_the_name(
    lake, database, version
):
    async def an_erasure_does_not_wait() -> None:
        await database.execute("UPDATE LakeFile SET named_at = now() - INTERVAL '20 minutes' WHERE stored_at IS NULL")
        assert (await forget(lake)).is_finished
        assert bytes_with(lake, ENTITY) == []

    await ship(lake, version, range(10))
    await lake.commit()
    lake.store = Beside(lake.store, "put", after=an_erasure_does_not_wait)
    await ship(lake, version, range(10, 20))
    await lake.commit()

    assert bytes_with(lake, ENTITY) == []
    assert sum(names_of(lake).values()) == 20
