"""A model of which every report has something to say: versions, calls, outcomes, a shadow."""

import time

import asyncpg

from worlds.experiment import DAY, HOUR, Call, Told, World, arm_by_bucket

ENTITIES = 600
SCHEMA = '{"features": [{"name": "age", "dtype": "float32"}]}'


async def reported_world(database: asyncpg.Connection, made: World | None = None, *, entities: int = ENTITIES) -> World:
    """Return churn 6 against 7 at 50 %, and 8 as the shadow, with calls and outcomes of the last day."""
    made = made or World(database)
    await made.add_versions("6", "7", "8", schema=SCHEMA)
    generation = await made.set_policy("6", "7", 50, "8")
    await made.backdate(2 * DAY)
    began, calls, told = time.time() - DAY, list[Call](), list[Told]()
    for number in range(entities):
        entity, at = f"cust-{number}", began + 20 * HOUR * number / entities
        version = arm_by_bucket(made.versions, entity, 50, ("6", "7"))
        role = "champion" if version == made.versions["6"] else "challenger"
        calls.append(Call(entity, at, version, generation, role=role, score=0.1 + number % 7 / 10))
        told += [Told(at + 60, entity)] if number % 5 < 2 else []
    answered = await made.call(calls)
    await made.call(
        call._replace(role="shadow", assigned=made.versions["8"], score=(call.score or 0) / 2)
        for call in answered
        if call.role == "champion"
    )
    await made.tell(told)
    return made
