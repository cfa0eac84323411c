import asyncio
import time
from typing import Any

import asyncpg
import orjson
from e2e.load import Connection
from e2e.stack import VISITS, Stack, a_stack, get, logged_ids, register, sql

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.core.prediction_log.input_sampling import is_sampled

ENTITIES = [f"customer-{n}" for n in range(200)]
PRIVATE = "physical_limitation"


def schema_with_a_private_feature() -> str:
    schema: dict[str, Any] = orjson.loads(orjson.dumps(example_version("visits", 1).input_schema))
    for feature in schema["features"]:
        if feature["name"] == PRIVATE:
            feature["private"] = True
    return orjson.dumps(schema).decode()


async def ask_all(connection: Connection, inputs: object) -> set[str]:
    """Ask once for each entity and return the ids of the answers."""
    body = orjson.dumps({"entities": [{"entity_id": entity, "inputs": inputs} for entity in ENTITIES]})
    answer = await connection.post(VISITS + ":batch", body)
    assert answer.status == 200
    return {one["prediction_id"] for one in answer.json["predictions"]}


async def set_percent(stack: Stack, percent: int) -> None:
    (row,) = await sql(
        stack.database_url, f"UPDATE ServingPolicy SET input_sample_percent = {percent} RETURNING generation"
    )
    deadline = time.monotonic() + 60
    while get(f"http://127.0.0.1:{stack.proxy_port}/v1/models/visits")[1]["generation"] != row["generation"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_exactly_the_sampled_entities_have_their_inputs_in_the_log_and_private_ones_never(
    tmp_path, database_url, model_port
):
    inputs = example_rows()[0].inputs
    with a_stack(tmp_path, database_url) as stack:
        port = model_port("visits:1")
        champion = await register(database_url, 1, [port], input_schema=schema_with_a_private_feature())
        await sql(
            database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion
        )
        connection = Connection("127.0.0.1", stack.start_proxy())
        asked: dict[int, set[str]] = {}
        for percent in (0, 50, 100):
            if percent:
                await set_percent(stack, percent)
            asked[percent] = await ask_all(connection, inputs)
        connection.close()
        logged = await logged_ids(database_url, set.union(*asked.values()))
        rows = await sql(
            database_url, "SELECT prediction_id::text AS id, entity_id, inputs, cache_hit FROM PredictionLog"
        )

    assert len(logged) == len(set(logged)) == 3 * len(ENTITIES)
    for percent, ids in asked.items():
        sampled = {row["entity_id"] for row in rows if row["id"] in ids and row["inputs"] is not None}
        assert sampled == {entity for entity in ENTITIES if is_sampled("visits", entity, percent)}
    stored = [orjson.loads(row["inputs"]) for row in rows if row["inputs"] is not None]
    assert PRIVATE in inputs
    assert all(one == {name: value for name, value in inputs.items() if name != PRIVATE} for one in stored)
    assert any(row["cache_hit"] and row["inputs"] is not None for row in rows)


async def test_plain_sql_erases_an_entity_while_the_proxy_goes_on(tmp_path, database_url, model_port):
    inputs = example_rows()[0].inputs
    with a_stack(tmp_path, database_url) as stack:
        champion = await register(database_url, 1, [model_port("visits:1")])
        policy = (
            "INSERT INTO ServingPolicy (model_name, champion_version, input_sample_percent) VALUES ('visits', $1, 100)"
        )
        await sql(database_url, policy, champion)
        connection = Connection("127.0.0.1", stack.start_proxy())
        await logged_ids(database_url, await ask_all(connection, inputs))
        database = await asyncpg.connect(database_url)

        erased = await database.fetchval("SELECT understudy_redact_inputs($1)", ENTITIES[7])

        left = await database.fetch("SELECT DISTINCT entity_id FROM PredictionLog WHERE inputs IS NOT NULL")
        await database.close()
        connection.close()
    assert erased == 1
    assert {row["entity_id"] for row in left} == set(ENTITIES) - {ENTITIES[7]}
