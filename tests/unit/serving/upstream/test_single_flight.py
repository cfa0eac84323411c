import asyncio

import pytest

from understudy.errors import Overloaded
from understudy.serving.upstream.single_flight import SingleFlight


async def test_waiting_callers_share_the_first_callers_value():
    flights: SingleFlight[int] = SingleFlight()
    calls = 0

    async def call() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        return 7

    answers = await asyncio.gather(*(flights.run("key", call) for _ in range(20)))

    assert [value for value, _ in answers] == [7] * 20
    assert sum(made for _, made in answers) == calls == 1
    assert len(flights) == 0


async def test_a_failure_is_not_shared():
    flights: SingleFlight[int] = SingleFlight()
    attempts = iter([True, False, False])

    async def call() -> int:
        fails = next(attempts)
        await asyncio.sleep(0.01)
        if fails:
            raise ValueError("the first caller's bad luck")
        return 7

    first, *others = await asyncio.gather(*(flights.run("key", call) for _ in range(3)), return_exceptions=True)

    assert isinstance(first, ValueError)
    assert others == [(7, True), (7, True)]
    assert len(flights) == 0


async def test_an_overload_is_shared_so_that_no_caller_waits_for_it_twice():
    flights: SingleFlight[int] = SingleFlight()
    calls = 0

    async def call() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        raise Overloaded

    outcomes = await asyncio.gather(*(flights.run("key", call) for _ in range(5)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Overloaded] * 5
    assert (calls, len(flights)) == (1, 0)


async def test_a_first_caller_that_goes_away_leaves_the_others_their_answer():
    flights: SingleFlight[int] = SingleFlight()

    async def call() -> int:
        await asyncio.sleep(0.01)
        return 7

    first = asyncio.create_task(flights.run("key", call))
    await asyncio.sleep(0)
    second = asyncio.create_task(flights.run("key", call))
    await asyncio.sleep(0)
    first.cancel()

    assert (await second)[0] == 7
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_other_keys_are_other_calls():
    flights: SingleFlight[str] = SingleFlight()

    async def call() -> str:
        await asyncio.sleep(0.001)
        return "x"

    answers = await asyncio.gather(*(flights.run(key, call) for key in "abc"))

    assert answers == [("x", True)] * 3
