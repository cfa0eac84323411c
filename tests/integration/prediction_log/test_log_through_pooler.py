"""The log's writer behind a pooler in transaction mode, beside others that leave settings on its servers."""

import asyncio

import asyncpg
import pytest
from traffic.spooled_rows import a_row

from loadtests.machine import a_folder
from rigs.faults.not_here import NotHere
from rigs.faults.pooler import a_pooler
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.errors import RegistryUnavailable
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome

SPOOLS = [f"0b0e6f4e-0000-4000-8000-00000000000{number}" for number in range(4)]
BATCHES = 25


@pytest.fixture
async def pooled_url(database_url: str):
    with a_folder("us-pooler-") as folder:
        try:
            async with a_pooler(database_url, folder / "pooler") as pooler:
                server, _, name = database_url.rpartition("/")
                yield f"{server.rpartition(':')[0]}:{pooler.port}/{name}"
        except NotHere as reason:
            pytest.skip(f"NOT CHECKED: {reason}")


def a_batch(spool: str, number: int, version_id: int) -> SpooledBatch:
    rows = [
        encode_line(a_row(10_000 * SPOOLS.index(spool) + 100 * number + row, version_id=version_id)) for row in range(3)
    ]
    return SpooledBatch(spool, 1, 1_000 * number, 1_000 * (number + 1), rows)


async def test_four_writers_share_two_servers_and_leave_nothing_on_them(pooled_url: str, database: asyncpg.Connection):
    version_id = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}') RETURNING id"
    )

    async def write(spool: str) -> list[WriteOutcome]:
        store = PostgresPredictionStore(pooled_url, timeout_seconds=10)
        try:
            found = [(await store.write(a_batch(spool, number, version_id))).outcome for number in range(BATCHES)]
            assert await store.committed(spool) == (1, 1_000 * BATCHES)
            return found
        finally:
            await store.close()

    outcomes = await asyncio.gather(*(write(spool) for spool in SPOOLS))

    assert outcomes == [[WriteOutcome.WRITTEN] * BATCHES] * len(SPOOLS)
    assert await database.fetchval("SELECT count(*) FROM PredictionLog") == 3 * BATCHES * len(SPOOLS)
    other = await asyncpg.connect(pooled_url, statement_cache_size=0)
    async with other.transaction():
        assert await other.fetchval("SHOW lock_timeout") == "0"
        assert await other.fetchval("SHOW statement_timeout") == "0"
    await other.close()


async def test_policies_are_refused_and_say_why(pooled_url: str):
    source = PostgresPolicySource(pooled_url)

    with pytest.raises(RegistryUnavailable) as refused:
        await source.load()

    assert "UNDERSTUDY_LOG_DATABASE_URL" in refused.value.next_step
    await source.close()
