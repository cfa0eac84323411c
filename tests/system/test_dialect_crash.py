"""Rows of one call, each of an entity of its own: whatever becomes of the process, each is in the log once."""

import asyncio
import signal
from pathlib import Path

from e2e.load import Connection
from e2e.stack import logged_ids
from system.test_dialect_split import INFER, WEIGHT, split, versions_in_the_log, with_rows
from system.test_split import bucket_as_the_seed_writes_it

ROWS = 200
ENTITIES = [f"tenant-{n}" for n in range(ROWS)]


async def test_two_hundred_entities_of_one_call_are_in_the_log_once_each_though_the_proxy_is_killed_after_its_answer(
    tmp_path: Path, database_url: str
):
    async with split(tmp_path, database_url, state_dir=tmp_path / "state") as (stack, port):
        connection = Connection("127.0.0.1", port)
        answer = await connection.post(INFER, with_rows(ENTITIES))
        stack.processes["proxy"].signal(signal.SIGKILL)
        await asyncio.to_thread(stack.processes["proxy"].child.wait, 30)
        connection.close()
        await asyncio.to_thread(lambda: stack.start_proxy(state_dir=tmp_path / "state"))
        logged = await versions_in_the_log(database_url, "tenant-%", ROWS)
        ids = await logged_ids(database_url, {answer.headers[b"x-prediction-id"].decode()})

    assert (answer.status, answer.headers[b"x-model-version"]) == (200, b"mixed")
    assert {row["entity_id"]: row["version"] for row in logged} == {
        entity: "2" if bucket_as_the_seed_writes_it(entity) < WEIGHT else "1" for entity in ENTITIES
    }
    assert len(logged) == len(ids) == len(set(ids)) == ROWS
