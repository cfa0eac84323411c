import asyncio
from hashlib import md5

import orjson
from e2e.load import Connection
from e2e.stack import VISITS, a_stack, get, register, sql

from understudy.adapters.dev_server.example_models import example_rows

ENTITIES = [f"customer-{n}" for n in range(10_000)]
BATCH = 250
PATIENT_MS = 60_000
"""A version that is late is answered for by the champion; here it is about buckets, however busy the machine is."""


def bucket_as_the_seed_writes_it(entity_id: str) -> int:
    return int(md5(f"visits:{entity_id}".encode()).hexdigest(), 16) % 100


async def answered_by(connection: Connection, entities: list[str]) -> dict[str, str]:
    """Return the version that answered each entity."""
    inputs = example_rows()[0].inputs
    body = orjson.dumps({"entities": [{"entity_id": entity, "inputs": inputs} for entity in entities]})
    answer = await connection.post(VISITS + ":batch", body)
    assert answer.status == 200
    return {one["entity_id"]: one["version"] for one in answer.json["predictions"]}


async def test_exactly_the_buckets_below_the_weight_reach_the_challenger(tmp_path, database_url, model_port):
    """10,000 entities at each weight, by the seed's formula, and the same in the log."""
    with a_stack(tmp_path, database_url) as stack:
        ports = [model_port("visits:1"), model_port("visits:2")]
        champion, challenger = (
            await register(database_url, 1, ports[:1], timeout_ms=PATIENT_MS),
            await register(database_url, 2, ports[1:], timeout_ms=PATIENT_MS),
        )
        policy = (
            "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version) VALUES ('visits', $1, $2)"
        )
        await sql(database_url, policy, champion, challenger)
        port = stack.start_proxy()
        connection = Connection("127.0.0.1", port)
        for generation, weight in enumerate((1, 5, 50, 100, 0), start=2):
            await sql(
                database_url, f"UPDATE ServingPolicy SET challenger_weight = {weight} WHERE model_name = 'visits'"
            )
            while get(f"http://127.0.0.1:{port}/v1/models/visits")[1]["generation"] != generation:
                await asyncio.sleep(0.02)

            answered: dict[str, str] = {}
            for start in range(0, len(ENTITIES), BATCH):
                answered |= await answered_by(connection, ENTITIES[start : start + BATCH])

            to_challenger = {entity for entity, version in answered.items() if version == "2"}
            assert len(answered) == len(ENTITIES)
            assert to_challenger == {e for e in ENTITIES if bucket_as_the_seed_writes_it(e) < weight}
        connection.close()


async def test_each_of_three_arms_answers_exactly_its_own_buckets(tmp_path, database_url, model_port):
    """10,000 entities before and after a change of ranges: who moves is who changed hands, and nobody else."""
    with a_stack(tmp_path, database_url) as stack:
        ids = {
            label: await register(database_url, label, [model_port(f"visits:{label}")], timeout_ms=PATIENT_MS)
            for label in (1, 2, 4)
        }
        await sql(
            database_url,
            "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight)"
            " VALUES ('visits', $1, $2, 20)",
            ids[1],
            ids[2],
        )
        port = stack.start_proxy()
        connection = Connection("127.0.0.1", port)
        answered: list[dict[str, str]] = []
        for generation, ranges in enumerate(([(90, 99)], [(90, 99), (40, 44)]), start=2):
            arms = [{"version_id": ids[4], "first": first, "last": last} for first, last in ranges]
            await sql(database_url, "UPDATE ServingPolicy SET arms = $1", orjson.dumps(arms).decode())
            while get(f"http://127.0.0.1:{port}/v1/models/visits")[1]["generation"] != generation:
                await asyncio.sleep(0.02)
            answered.append({})
            for start in range(0, len(ENTITIES), BATCH):
                answered[-1] |= await answered_by(connection, ENTITIES[start : start + BATCH])

            def owner(bucket: int, ranges: list[tuple[int, int]] = ranges) -> str:
                return "2" if bucket < 20 else "4" if any(first <= bucket <= last for first, last in ranges) else "1"

            assert answered[-1] == {e: owner(bucket_as_the_seed_writes_it(e)) for e in ENTITIES}
        detail = get(f"http://127.0.0.1:{port}/v1/models/visits")[1]
        connection.close()

        before, after = answered
        moved = {entity for entity in ENTITIES if before[entity] != after[entity]}
        assert moved == {e for e in ENTITIES if 40 <= bucket_as_the_seed_writes_it(e) <= 44}
        assert detail["arms"] == {"4": 15}
        assert {one["version"]: one["role"] for one in detail["versions"]}["4"] == "challenger"
        log = (
            "SELECT model_version_id, count(*) AS n FROM PredictionLog WHERE role = 'challenger' AND reason = 'bucket'"
        )
        log += " AND rollout_id = (SELECT guard_id FROM ServingPolicy) GROUP BY 1"
        expected = {
            ids[label]: sum(version == str(label) for found in answered for version in found.values())
            for label in (2, 4)
        }
        async with asyncio.timeout(20):
            while {row["model_version_id"]: row["n"] for row in await sql(database_url, log)} != expected:
                await asyncio.sleep(0.2)
