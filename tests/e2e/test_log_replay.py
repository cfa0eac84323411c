"""What a proxy logged goes to another version of the example model, and differs by what its shadow's rows say."""

import asyncio
import time
from math import isclose

import numpy as np
import orjson
import pytest
from command import CommandLine, Done
from e2e.load import Connection
from e2e.stack import VISITS, a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows
from understudy.core.experiments.replay_comparison import SAME_RATIO

ROWS = example_rows()[:60]
PAIRS = """
    SELECT call.prediction_id::text AS id, call.score AS champion, seen.score AS shadow
    FROM PredictionLog call JOIN PredictionLog seen USING (prediction_id)
    WHERE call.role = 'champion' AND seen.role = 'shadow'
"""


async def answered_and_shown(database_url: str) -> dict[str, tuple[float, float]]:
    """Return both scores of each call, once the log has them all."""
    deadline = time.monotonic() + 60
    while True:
        rows = await sql(database_url, PAIRS)
        if len(rows) == len(ROWS):
            return {row["id"]: (row["champion"], row["shadow"]) for row in rows}
        assert time.monotonic() < deadline, len(rows)
        await asyncio.sleep(0.2)


async def replay(understudy: CommandLine, version: str) -> Done:
    return await understudy.beside("log", "replay", "visits", version, "--json")


async def test_a_replay_finds_the_differences_that_the_shadow_had_on_the_same_calls(
    tmp_path, database_url, model_port, understudy: CommandLine
):
    with a_stack(tmp_path, database_url) as stack:
        champion = await register(database_url, 1, [model_port("visits:1")])
        shadow = await register(database_url, 2, [model_port("visits:2")])
        await register(database_url, 3, [model_port("visits:1")])
        policy = (
            "INSERT INTO ServingPolicy (model_name, champion_version, shadow_version, input_sample_percent)"
            " VALUES ('visits', $1, $2, 100)"
        )
        await sql(database_url, policy, champion, shadow)
        connection = Connection("127.0.0.1", stack.start_proxy())
        for row in ROWS:
            answer = await connection.post(VISITS, orjson.dumps({"entity_id": row.entity_id, "inputs": row.inputs}))
            assert answer.status == 200
        pairs = await answered_and_shown(database_url)
        connection.close()

    other, the_same = await replay(understudy, "2"), await replay(understudy, "3")

    found = other.document["replay"]
    champions, shadows = np.array(list(pairs.values())).T
    sizes = np.abs(shadows - champions)
    assert (other.code, the_same.code) == (0, 0), other.err
    assert (found["calls"], found["replayed"], found["answered_by"]) == (60, 60, {"1": 60})
    assert found["differed"] == sum(not isclose(*both, rel_tol=SAME_RATIO) for both in pairs.values())
    assert found["distances"]["mean"] == pytest.approx(sizes.mean(), abs=1e-6)
    assert found["distances"]["largest"] == pytest.approx(sizes.max(), abs=1e-6)
    assert found["scores"]["now_mean"] == pytest.approx(shadows.mean(), abs=1e-6)
    largest = sorted(pairs, key=lambda one: -abs(pairs[one][1] - pairs[one][0]))[:5]
    assert [example["prediction_id"] for example in found["examples"]] == largest
    assert (the_same.document["replay"]["agreed"], the_same.document["replay"]["differed"]) == (60, 0)
    assert await answered_and_shown(database_url) == pairs
    assert len(await sql(database_url, "SELECT id FROM PredictionLog")) == 2 * len(ROWS)
