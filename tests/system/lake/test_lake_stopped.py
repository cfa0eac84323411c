"""Merging and erasing die at every single call of their parts: no row is lost or doubled, and no file is left."""

import time
from collections import Counter
from contextlib import suppress

import pytest
from traffic.spooled_rows import a_prediction_id
from worlds.lake import A_VERSION, Calls, Fault, Lake, files_of, ship_files, stored
from worlds.lake_erasure import ENTITY, bytes_with, forget, names_of, ship

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


@pytest.fixture
async def versions(database):
    return [await database.fetchval(A_VERSION, model, "1") for model in ("visits", "churn")]


@pytest.fixture
def lake(database_url, tmp_path):
    lake = Lake(database_url, tmp_path)
    yield lake
    lake.close()


async def test_whatever_call_a_merge_dies_at_each_row_is_in_the_table_once_and_no_file_is_left(
    lake, database, versions
):
    called: set[str] = set()
    last = 0
    for dies_at in range(13, 56, 2):
        await ship_files(lake, versions[0], range(last, last + 2))
        last, calls = last + 2, Calls(dies_at)
        with suppress(Fault):
            await lake.commit(calls, over_seconds=0, snapshot_seconds=-1)
        called |= set(calls.names)
        assert lake.rows().num_rows == last * 3, calls.names[-1]
    await lake.commit(over_seconds=0, snapshot_seconds=-1)

    assert {"look", "replace", "end", "put", "live_among", "forget_rewrites"} <= called
    assert lake.ids() == Counter(map(a_prediction_id, range(last * 3)))
    assert sorted(path.rpartition("/")[2] for path in files_of(lake)) == stored(lake)
    assert await database.fetchval("SELECT count(*) FROM LakeRewrite") == 0


async def test_whatever_call_an_erasure_dies_at_the_next_run_ends_it_with_the_counts_of_one_that_was_not_stopped(
    lake, database, versions
):
    called: set[str] = set()
    last = 0
    for dies_at in range(1, 80, 2):
        # Later than what an erasure before calls late.
        await ship(lake, versions[0], range(last, last + 5), at=time.time() + 300)
        last, calls = last + 5, Calls(dies_at)
        await lake.commit(over_seconds=1e9)
        with suppress(Fault):
            await forget(lake, calls=calls)
        assert sum(names_of(lake).values()) == last, calls.names[-1]
        result = await forget(lake)
        called |= set(calls.names)

        assert result.is_finished, calls.names[-1]
        assert names_of(lake)[ENTITY] == 0
        assert bytes_with(lake, ENTITY) == [], calls.names[-1]
        if calls.names[-1] == "delete":
            break

    counted = await database.fetchval("SELECT sum(lake_rows) FROM EntityErasure")
    assert counted == last // 5
    assert {"begin", "name", "put", "replace", "end", "forget_before", "delete", "unfinished"} <= called
