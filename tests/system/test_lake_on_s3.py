"""The lake on a server with S3's protocol: its files, its table, and what is left over."""

import time
from collections import Counter

import pytest
from loopback.s3 import LOGIN, an_s3_server, make_bucket
from traffic.spooled_rows import a_prediction_id
from worlds.lake import A_VERSION, Calls, Fault, Lake, some_rows
from worlds.lake_reports import readers_of

from understudy.ports.experiments.experiment_log import ShadowQuery
from understudy.shipping.shared_spool import SharedSpool

pytestmark = pytest.mark.slow


async def test_rows_come_into_a_table_on_s3_once_and_left_over_files_go(database, database_url, tmp_path, monkeypatch):
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    version = await database.fetchval(A_VERSION, "churn/eu 1", "1")
    with an_s3_server(tmp_path) as endpoint:
        make_bucket(endpoint, "lake")
        lake = Lake(database_url, tmp_path, "s3://lake/understudy", endpoint)
        spool = lake.spool()
        shelf = SharedSpool(spool, 1).shelf_of(0)
        spool.append_all(some_rows(range(5), version, lambda _n: {}))
        with pytest.raises(Fault):
            await lake.ship(shelf, Calls(2 * 6 + 1))  # after the file was put
        spool.append_all(some_rows(range(5, 9), version, lambda _n: {}))
        await lake.ship(shelf)
        await database.execute("UPDATE LakeFile SET named_at = now() - INTERVAL '2 hours'")
        await lake.commit()

        assert lake.ids() == Counter(map(a_prediction_id, range(9)))
        assert await readers_of(lake)[1].log.count_calls(ShadowQuery(version, 2, [3], 0.0, time.time() + 60)) == 9
        kept = [row["key"] for row in await database.fetch("SELECT key FROM LakeFile")]
        assert [key for key in await lake.store.keys() if "/data/" in key] == kept
        spool.close()
        lake.close()
