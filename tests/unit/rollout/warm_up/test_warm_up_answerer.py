"""What a proxy does of the warm-ups that it is asked for: within its bounds, and whatever happens, it goes on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import numpy as np
import orjson
import pytest
from builders import a_policy, a_version
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.warm_ups import MemoryWarmUps
from understudy.core.rollout.proxy_warm_up import ProxyAnswer
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer
from understudy.ports.rollout.warm_up import LoggedId, NewWarmUp
from understudy.rollout.warm_up.warm_up_answerer import MAX_AT_ONCE, WarmUpAnswerer

ME = "web-1:7"
FEATURES = {"features": [{"name": "age", "dtype": "float32"}]}
VERSIONS = (a_version("1", input_schema=FEATURES), a_version("2", input_schema=FEATURES))
SNAPSHOT = PolicySnapshot({"visits": a_policy(champion=VERSIONS[0], challenger=VERSIONS[1])})


def the_age(rows: Sequence[Row]) -> Tensor:
    ages = np.frombuffer(b"".join(bytes(row[0]) for row in rows), "<f4")
    return Tensor(Datatype.FP32, (len(rows),), ages)


def clock() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def a_proxy(
    connect: Callable[[ModelVersion], MemoryBackend], snapshot: PolicySnapshot | None = SNAPSHOT
) -> AsyncIterator[MemoryWarmUps]:
    warm_ups = MemoryWarmUps("visits", clock)
    answerer = WarmUpAnswerer(warm_ups, ME, lambda: snapshot, connect)
    warm_ups.on_ask.append(answerer.wake)
    task = asyncio.create_task(answerer.run())
    yield warm_ups
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def answer_to(warm_ups: MemoryWarmUps, new: NewWarmUp) -> ProxyAnswer | None:
    request_id = await warm_ups.ask(new)
    until = clock() + new.seconds
    while True:
        if await warm_ups.count_answers(request_id) or clock() >= until:
            return (await warm_ups.answers(request_id)).get(ME)
        await asyncio.sleep(0.05)


CALLS = NewWarmUp(2, [ME], 7, example_calls=5)


@in_virtual_time
async def test_it_says_how_many_calls_were_answered_and_how_long_each_took_and_closes_what_it_opened():
    backend = MemoryBackend(the_age, delay_seconds=0.25)

    async with a_proxy(lambda _: backend) as warm_ups:
        answer = await answer_to(warm_ups, CALLS)

    assert answer is not None
    assert answer._replace(seconds=()) == ProxyAnswer(5)
    assert answer.seconds == pytest.approx((0.25,) * 5)
    assert not await backend.ready(1)


@in_virtual_time
async def test_a_call_that_fails_is_its_problem_and_the_servers_words_are_told_since_the_inputs_were_made_up():
    error = BadAnswer("the model server refused the call")
    error.said = "shape [1]"

    async with a_proxy(lambda _: MemoryBackend(the_age, error=error)) as warm_ups:
        answer = await answer_to(warm_ups, CALLS)

    assert answer == ProxyAnswer(problem='the model server refused the call; it says: "shape [1]"')


@in_virtual_time
async def test_a_version_that_this_proxy_does_not_have_or_cannot_connect_is_said_to_be_so():
    def refuse(_: ModelVersion) -> MemoryBackend:
        raise BackendUnavailable("the environment variable UNDERSTUDY_BACKEND_TOKEN_TASTE is not set")

    async with a_proxy(refuse) as warm_ups:
        unknown = await answer_to(warm_ups, CALLS._replace(version_id=77))
        refused = await answer_to(warm_ups, CALLS)
    async with a_proxy(refuse, None) as warm_ups:
        without_policies = await answer_to(warm_ups, CALLS)

    assert unknown == without_policies == ProxyAnswer(problem="its row cannot be used: see understudy doctor")
    assert refused == ProxyAnswer(problem="the environment variable UNDERSTUDY_BACKEND_TOKEN_TASTE is not set")


@in_virtual_time
async def test_the_log_names_the_version_as_people_do_and_not_by_its_row():
    version = a_version("2026-11-b", id=2, input_schema=FEATURES)
    snapshot = PolicySnapshot({"visits": a_policy(champion=VERSIONS[0], challenger=version)})

    with capture_logs() as lines:
        async with a_proxy(lambda _: MemoryBackend(the_age), snapshot) as warm_ups:
            await answer_to(warm_ups, CALLS)
            await answer_to(warm_ups, CALLS._replace(version_id=77))

    told = [line["version"] for line in lines if line["event"] == "warm_up.answered"]
    assert told == ["2026-11-b", "id 77"]


@in_virtual_time
async def test_a_server_that_hangs_is_answered_for_before_the_deadline():
    async with a_proxy(lambda _: MemoryBackend(the_age, delay_seconds=1.9)) as warm_ups:
        answer = await answer_to(warm_ups, CALLS)

    assert answer is not None
    assert answer.problem == "it took longer than 6.5 s"


@in_virtual_time
async def test_logged_calls_are_sent_again_in_their_order_and_those_without_inputs_have_no_score():
    logged = [LoggedId(f"call-{place}", float(place)) for place in range(5)]

    async with a_proxy(lambda _: MemoryBackend(the_age)) as warm_ups:
        ages = {"call-0": {"age": 30}, "call-1": {"age": 41}, "call-3": [1], "call-4": {}}
        warm_ups.logged.update({name: orjson.dumps(inputs).decode() for name, inputs in ages.items()})
        answer = await answer_to(warm_ups, NewWarmUp(2, [ME], 6, champion_id=1, logged=logged))

    assert answer == ProxyAnswer(scores=(30.0, 41.0, None, None, None))


@in_virtual_time
async def test_a_few_warm_ups_run_at_once_and_the_others_wait_for_their_turn():
    most = 0

    def counted(rows: Sequence[Row]) -> Tensor:
        nonlocal most
        most = max(most, sum(backend.in_flight for backend in backends) + 1)
        return the_age(rows)

    backends: list[MemoryBackend] = []

    def connect(_: ModelVersion) -> MemoryBackend:
        backends.append(MemoryBackend(counted, delay_seconds=0.1))
        return backends[-1]

    async with a_proxy(connect) as warm_ups:
        found = await asyncio.gather(*(answer_to(warm_ups, CALLS) for _ in range(3 * MAX_AT_ONCE)))

    assert all(answer is not None and not answer.problem for answer in found)
    assert 1 < most <= MAX_AT_ONCE


@in_virtual_time
async def test_it_answers_once_and_not_for_others_and_goes_on_after_postgres_was_away():
    backend = MemoryBackend(the_age)

    async with a_proxy(lambda _: backend) as warm_ups:
        await answer_to(warm_ups, CALLS._replace(instances=["web-2:9"], seconds=2))
        assert backend.calls == []
        warm_ups.available = False
        for wake in warm_ups.on_ask:
            wake()
        await asyncio.sleep(2.5)
        warm_ups.available = True
        assert await answer_to(warm_ups, CALLS) is not None
        await asyncio.sleep(5)

    assert len(backend.calls) == 5
