"""Warm-ups through proxies: what is asked arrives at those who are asked, in memory and in Postgres."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import asyncpg
import orjson
import pytest
from e2e.stack import register

from understudy.adapters.memory.warm_ups import MemoryWarmUps
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.postgres.rollout.warm_ups import PostgresWarmUpInbox, PostgresWarmUpRequests
from understudy.core.rollout.proxy_warm_up import LiveProxy, ProxyAnswer
from understudy.errors import RegistryUnavailable
from understudy.ports.rollout.warm_up import LoggedId, NewWarmUp, WarmUpInbox, WarmUpRequests

WELL = ProxyAnswer(5, (0.002,) * 5)
LOG = """
    INSERT INTO PredictionLog (model_version_id, assigned_version_id, entity_id, input_hash, prediction, latency_ms,
                               predicted_at, prediction_id, score, role, reason, status, inputs)
    VALUES ($1, $1, $2, 'abc', '{}', 1, to_timestamp($3), $4, 0.5, 'champion', 'bucket', 'ok', $5)
"""


@dataclass
class World:
    """Both sides, two versions, and calls of the first one in the log."""

    requests: WarmUpRequests
    inbox: WarmUpInbox
    version_ids: tuple[int, int]
    live: Callable[[list[LiveProxy]], Awaitable[None]]
    log: Callable[[LoggedId, str], Awaitable[None]]

    def new(self, **changes: Any) -> NewWarmUp:
        return NewWarmUp(self.version_ids[1], ["web-1:7", "web-2:7"], 30, example_calls=5)._replace(**changes)


@pytest.fixture(params=["memory", "postgres"])
async def world(
    request: pytest.FixtureRequest, database: asyncpg.Connection, database_url: str
) -> AsyncIterator[World]:
    if request.param == "memory":
        twin = MemoryWarmUps("visits", time.monotonic)

        async def live_there(proxies: list[LiveProxy]) -> None:
            twin.live = proxies

        async def log_there(call: LoggedId, inputs: str) -> None:
            twin.logged[call.prediction_id] = inputs

        yield World(twin, twin, (1, 2), live_there, log_there)
        return
    ids = await register(database_url, 1, [1]), await register(database_url, 2, [1])

    async def live(proxies: list[LiveProxy]) -> None:
        for proxy in proxies:
            await database.execute("INSERT INTO ProxyInstance (instance, answers_warm_ups) VALUES ($1, $2)", *proxy)

    async def log(call: LoggedId, inputs: str) -> None:
        await database.execute(LOG, ids[0], f"user-{call.prediction_id}", call.predicted_at, call.prediction_id, inputs)

    requests = PostgresWarmUpRequests(database_url, timeout_seconds=5)
    yield World(requests, PostgresWarmUpInbox(database_url, timeout_seconds=5), ids, live, log)


async def test_live_proxies_are_told_with_whether_their_release_answers(world: World):
    proxies = [LiveProxy("web-1:7", answers_warm_ups=True), LiveProxy("web-2:7", answers_warm_ups=False)]
    await world.live(proxies)

    assert list(await world.requests.live_proxies() or ()) == proxies


async def test_a_proxy_of_this_release_says_with_each_report_that_it_answers_and_one_of_the_release_before_does_not(
    database: asyncpg.Connection, database_url: str
):
    source = PostgresPolicySource(database_url, timeout_seconds=5)
    await database.execute("INSERT INTO ProxyInstance (instance, in_flight) VALUES ('web-1:7', '{}')")
    requests = PostgresWarmUpRequests(database_url, timeout_seconds=5)

    before = await requests.live_proxies()
    await source.report("web-1:7", {"visits": 1}, {}, None)

    assert before == [LiveProxy("web-1:7", answers_warm_ups=False)]
    assert await requests.live_proxies() == [LiveProxy("web-1:7", answers_warm_ups=True)]
    await source.close()


async def test_while_a_session_keeps_the_reports_of_proxies_locked_nothing_is_known_of_them_and_soon(
    database: asyncpg.Connection, database_url: str
):
    async with database.transaction():
        await database.execute("LOCK TABLE ProxyInstance")
        assert await PostgresWarmUpRequests(database_url, timeout_seconds=5).live_proxies() is None


async def test_a_request_is_seen_by_those_who_are_asked_until_they_have_answered(world: World):
    request_id = await world.requests.ask(world.new())

    (asked,) = await world.inbox.open("web-1:7", 10)
    others = await world.inbox.open("web-3:7", 10)
    await world.inbox.answer(request_id, "web-1:7", WELL)
    again = await world.inbox.open("web-1:7", 10)
    (still,) = await world.inbox.open("web-2:7", 10)

    assert (asked.id, asked.model_name, asked.version_id, asked.example_calls) == (
        request_id, "visits", world.version_ids[1], 5,
    )  # fmt: skip
    assert 0 < asked.left_seconds <= 30
    assert (list(others), list(again), still.id) == ([], [], request_id)
    assert await world.requests.count_answers(request_id) == 1
    assert await world.requests.answers(request_id) == {"web-1:7": WELL}


async def test_the_oldest_come_first_and_no_more_than_are_asked_for(world: World):
    ids = [await world.requests.ask(world.new()) for _ in range(3)]

    assert [asked.id for asked in await world.inbox.open("web-1:7", 2)] == ids[:2]


async def test_an_answer_that_was_not_asked_for_or_comes_too_late_is_refused(world: World):
    request_id = await world.requests.ask(world.new())
    over = await world.requests.ask(world.new(seconds=-10))

    for one, instance in ((request_id, "web-3:7"), (over, "web-1:7")):
        with pytest.raises(RegistryUnavailable, match="was asked for no such answer, or it comes too late"):
            await world.inbox.answer(one, instance, WELL)

    assert [asked.id for asked in await world.inbox.open("web-1:7", 10)] == [request_id]
    assert await world.requests.answers(request_id) == await world.requests.answers(over) == {}


async def test_an_answer_that_no_proxy_can_give_is_none(world: World):
    request_id = await world.requests.ask(world.new())
    await world.inbox.answer(request_id, "web-1:7", ProxyAnswer(5, (float("nan"),) * 5))
    await world.inbox.answer(request_id, "web-2:7", ProxyAnswer(3, (0.1,) * 3))

    assert await world.requests.answers(request_id) == {"web-1:7": None, "web-2:7": None}


async def test_the_inputs_of_the_calls_that_a_request_names_come_by_their_places_and_scores_go_back(world: World):
    now = float(int(time.time()) - 60)  # times of the log are whole microseconds
    logged = [LoggedId(str(uuid4()), now + place / 1_000) for place in range(3)]
    await world.log(logged[0], '{"age": 30}')
    await world.log(logged[2], '{"age": 41}')
    await world.log(LoggedId(str(uuid4()), now), '{"age": 99}')
    new = world.new(example_calls=0, champion_id=world.version_ids[0], logged=logged)

    request_id = await world.requests.ask(new)
    (asked,) = await world.inbox.open("web-1:7", 10)
    inputs = await world.inbox.inputs(request_id)
    answer = ProxyAnswer(problem="1 failed", scores=(0.25, None, 0.5))
    await world.inbox.answer(request_id, "web-1:7", answer)

    assert (asked.champion_id, asked.logged_calls) == (world.version_ids[0], 3)
    assert {place: orjson.loads(text) for place, text in inputs.items()} == {0: {"age": 30}, 2: {"age": 41}}
    assert await world.requests.answers(request_id) == {"web-1:7": answer}


async def test_a_request_reaches_proxies_as_a_change_of_its_model_by_notification_and_by_poll(
    database: asyncpg.Connection, database_url: str
):
    ids = await register(database_url, 1, [1]), await register(database_url, 2, [1])
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", ids[0])
    source = PostgresPolicySource(database_url, timeout_seconds=5)
    heard = asyncio.Queue[str | None]()
    listening = asyncio.create_task(source.listen(lambda change: heard.put_nowait(change.model_name)))
    try:
        assert await asyncio.wait_for(heard.get(), 30) is None
        await source.load()
        await source.changed_since_last_poll()

        await PostgresWarmUpRequests(database_url, timeout_seconds=5).ask(NewWarmUp(ids[1], ["web-1:7"], 30, 5))

        assert await asyncio.wait_for(heard.get(), 30) == "visits"
        assert await source.changed_since_last_poll() == ["visits"]
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await source.close()
