"""A headless Service's name behind the proxy's own application: servers come and go, and every call is answered."""

import asyncio

import orjson
from builders import a_version_row, policy_rows
from contract.servers import MODEL_NAME, eventually
from worlds.named_servers import NAME, named_servers

PATH = "/v1/models/linear/predict"
BODY = orjson.dumps({"entity_id": "e", "inputs": {"a": 2.0, "b": 0.0, "c": 0.0}})
SOON = 10.0


async def test_callers_of_the_proxy_see_nothing_of_servers_that_come_and_go(start):
    async with named_servers() as named:
        schema = {
            "features": [{"name": name, "dtype": "float32"} for name in "abc"],
            "tensors": [{"name": "x", "dtype": "float32", "features": ["a", "b", "c"]}],
        }
        columns = {
            "input_schema": schema,
            "output_schema": {"tensor": "p"},
            "deterministic": False,
            "timeout_ms": 5_000,
        }
        backend = {"discover": True, "model_name": MODEL_NAME}
        version = a_version_row("1", endpoints=[f"{NAME}:{named.port}"], backend=backend, **columns)
        unknown = a_version_row("2", endpoints=[f"unknown.localhost:{named.port}"], backend=backend, **columns)
        models = {
            "linear": policy_rows(versions=[version]),
            "other": policy_rows(champion_version=2, versions=[unknown]),
        }
        running = await start(connect=named.connector(), models=models, auth=False)
        statuses: list[int] = []

        async def call_on() -> None:
            while True:
                answer = await running.client.post(PATH, content=BODY)
                statuses.append(answer.status_code)
                await asyncio.sleep(0)  # an answer that waited for nothing would leave the loop to this task alone

        callers = [asyncio.create_task(call_on()) for _ in range(4)]
        try:
            for numbers in ([1, 2, 3], [1], [2, 3], [3], [1, 2]):
                named.lead_to(*numbers)
                before = named.calls

                async def all_have(numbers=numbers, before=before) -> bool:
                    return all(named.calls[number - 1] > before[number - 1] + 10 for number in numbers)

                assert await eventually(all_have, SOON)
            named.fail()
            failures = named.failures

            async def is_away() -> bool:
                return named.failures > failures + 3

            assert await eventually(is_away, SOON)
        finally:
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)

        assert set(statuses) == {200}
        refused = await running.client.post("/v1/models/other/predict", content=BODY)
        assert (refused.status_code, refused.json()["code"]) == (503, "E503")
        assert (await running.client.get("/readyz")).status_code == 200
