"""Callers that have a version in their paths live through promotions, where versions are routed."""

import asyncio
from pathlib import Path

import orjson
from e2e.load import Answer, Load, run_load
from e2e.stack import a_stack, register, sql
from system.test_dialect_split import ROW

from loadtests.scene import start_stub

CALLS, PER_SECOND = 2_000, 100
PINNED = "/v1/models/visits/versions/1:predict"
BODY = orjson.dumps({"instances": [ROW]})
PROMOTE = "UPDATE ServingPolicy SET champion_version = $1 WHERE model_name = 'visits' RETURNING generation"


def who(answer: Answer) -> tuple[int, str]:
    """Return the policy's generation that answered, and the version."""
    return int(answer.headers[b"x-policy-generation"]), answer.headers[b"x-model-version"].decode()


async def test_two_thousand_calls_of_a_pinned_version_are_all_answered_while_another_one_is_promoted(
    tmp_path: Path, database_url: str
):
    with a_stack(tmp_path, database_url) as stack:
        stub = start_stub(stack, "stub", [])
        first, second = [await register(database_url, label, [stub]) for label in (1, 2)]
        await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", first)
        port = await asyncio.to_thread(lambda: stack.start_proxy(named_version="routed"))
        load = Load()
        running = asyncio.create_task(
            run_load(port, PINNED, lambda _: BODY, per_second=PER_SECOND, seconds=CALLS / PER_SECOND, load=load)
        )
        while len(load.answers) < CALLS // 4:
            await asyncio.sleep(0.02)
        [promoted] = await sql(database_url, PROMOTE, second)
        while len(load.answers) < CALLS // 2:
            await asyncio.sleep(0.02)
        [back] = await sql(database_url, PROMOTE, first)
        await running

    assert len(load.answers) == CALLS
    assert load.failed == []
    by_generation = dict(map(who, load.answers))
    assert set(map(who, load.answers)) == set(by_generation.items())
    assert by_generation[promoted["generation"]] == "2"
    assert by_generation[back["generation"]] == "1"
    reasons = await sql(database_url, "SELECT DISTINCT reason FROM PredictionLog")
    assert "forced" not in {row["reason"] for row in reasons}
