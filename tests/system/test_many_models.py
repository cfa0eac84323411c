"""Thousands of models, all changed at once: nobody who is being answered notices. PR-07 of the matrix has 10,000."""

import asyncio
import time
from pathlib import Path

import asyncpg
import pytest

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.serving.routing.policy_feed import PolicyFeed

MODELS = 5_000
MAX_SECONDS = 0.05
"""Of computing between two turns. Decoding all rows in one go took twice as long, setting all gauges as well."""
SAVED_SECONDS = 60.0


class Turns:
    """How long an event loop computes at most before it gives others a turn.

    In seconds of the processor: what other processes take from it says nothing about this one.
    """

    def __init__(self) -> None:
        self.longest_seconds = 0.0

    async def watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_seconds = max(self.longest_seconds, now - last)
            last = now


def changed_in(file: Path) -> int:
    return file.read_bytes().count(b'"shadow_percent":50') if file.exists() else 0


async def a_model_each(database: asyncpg.Connection) -> None:
    await database.execute(
        """INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)
           SELECT 'm' || m, '1', 's3://m', 'onnx', (SELECT json_build_object('features', json_agg(
               json_build_object('name', 'feature_' || f, 'dtype', 'float32'))) FROM generate_series(1, 13) AS f)::jsonb
           FROM generate_series(1, $1) AS m""",
        MODELS,
    )
    await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) SELECT id, 'm:9000' FROM ModelVersion")
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) SELECT model_name, id FROM ModelVersion"
    )


@pytest.mark.alone
async def test_thousands_of_changes_keep_the_event_loop_for_a_moment_at_most(database_url, database, tmp_path: Path):
    await a_model_each(database)
    source, telemetry, turns = PostgresPolicySource(database_url), PrometheusTelemetry(), Turns()
    feed = PolicyFeed(
        source,
        JsonSnapshotFile(tmp_path / "policy.json"),
        telemetry,
        instance="proxy-1",
        poll_seconds=2,
        now=time.monotonic,
        on_swap=lambda _: None,
        in_flight=dict,
    )
    await feed.start()
    watching = asyncio.create_task(turns.watch())
    try:
        await asyncio.sleep(0.5)
        turns.longest_seconds = 0.0

        await database.execute("UPDATE ServingPolicy SET shadow_percent = 50", timeout=SAVED_SECONDS)
        async with asyncio.timeout(SAVED_SECONDS):
            while await asyncio.to_thread(changed_in, tmp_path / "policy.json") < MODELS:
                await asyncio.sleep(0.5)
        assert feed.snapshot is not None
        assert {policy.shadow_percent for policy in feed.snapshot.policies.values()} == {50}
    finally:
        watching.cancel()
        await feed.stop()
        await source.close()

    assert telemetry.exposition()[0].count(b"} 2.0") >= MODELS  # the generation of each
    assert turns.longest_seconds < MAX_SECONDS


@pytest.mark.alone
async def test_four_thousand_models_take_as_long_as_ten_times_four_hundred(database_url, database):
    source = PostgresPolicySource(database_url)
    await database.execute(
        """INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)
           SELECT 'm' || m, v, 's3://m', 'onnx',
                  '{"features": [{"name": "a", "dtype": "float32"}, {"name": "b", "dtype": "float32"}]}'
           FROM generate_series(1, 4000) m, generate_series(1, 2) v"""
    )
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target) SELECT id, 'm:9000' FROM ModelVersion WHERE version = '1'"
    )
    await database.execute(
        """INSERT INTO ServingPolicy (model_name, champion_version, challenger_version)
           SELECT model_name, min(id), max(id) FROM ModelVersion WHERE model_name LIKE 'm%' GROUP BY model_name"""
    )
    await database.execute("ANALYZE")

    tenths = [[f"m{number}" for number in range(first, first + 400)] for first in range(1, 4_001, 400)]
    in_parts, at_once = [], []
    for _ in range(3):  # of both the shortest: what else runs on the machine makes a time longer, never shorter
        began = time.monotonic()
        parts = [await source.load(names) for names in tenths]
        between = time.monotonic()
        whole = await source.load()
        in_parts.append(between - began)
        at_once.append(time.monotonic() - between)
        assert ([len(part["models"]) for part in parts], len(whole["models"])) == ([400] * 10, 4_000)

    await source.close()

    assert min(at_once) < 3 * min(in_parts)
