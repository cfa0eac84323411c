"""An entity is erased from archived months wherever they lie, and no object is left over."""

from pathlib import Path

import pytest
from worlds.archive import ids_seen
from worlds.erasure import ENTITY, erase, files_with, log_of_customers

from rigs.faults.archive_worker import Moments, archive
from understudy.adapters.archive.open import open_archive
from understudy.ports.prediction_log.archive_store import ArchiveStore


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    if request.param == "folder":
        return open_archive(str(tmp_path / "archive"), endpoint=None, timeout_seconds=10)
    endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("bucket")
    return open_archive(f"s3://{bucket}/logs", endpoint=endpoint, timeout_seconds=10)


async def test_no_object_names_the_entity_and_none_is_left_over(database, database_url, store, tmp_path):
    await log_of_customers(database)
    await archive(database_url, store, Moments("never", lambda: None))
    before, keys = await ids_seen(database_url, lambda _: store), await store.keys()

    result = await erase(database_url, [store])

    assert result.is_finished
    assert result.erased.archived_rows > 0
    assert await ids_seen(database_url, lambda _: store) == before
    after = await store.keys()
    assert len(after) == len(keys)
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    for number, key in enumerate(after):
        await store.fetch(key, fetched / f"{number}{Path(key).suffix}")
    assert files_with(fetched, ENTITY) == []
