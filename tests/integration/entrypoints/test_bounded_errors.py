"""What a body full of mistakes costs: a bounded answer, and no pause for other callers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from string import ascii_letters
from typing import Any

import orjson
import pytest
from worlds.proxy import Answer, Running

MIB = 1_048_576
LIVE_SECONDS = 0.25
"""Longest time without an answer of ``/livez``, as docs/reference/http.md promises: here, of the event loop's own
processor time, since other processes of the machine have their turns as well."""
MAX_PLACES, MAX_PLACES_BYTES = 1_000, 65_536
NAMES = ["".join(letters) for letters in product(ascii_letters, repeat=3)]
GOOD = {"age": 41, "income": 2.5}


def batch_of_unknown_names(size: int, members: int) -> bytes:
    """A batch whose members have as many inputs as fit, all unknown."""
    each = (size // members - 60) // len(b'"abc":1,')
    inputs = dict.fromkeys(NAMES[:each], 1)
    return orjson.dumps({"entities": [{"entity_id": "c", "inputs": inputs}] * members})


def outcomes_of_unknown_names(size: int) -> bytes:
    each = dict.fromkeys(NAMES[:120], 1)
    return orjson.dumps({"events": [each] * min(1_000, size // 970)})


def treatments(last_price: Any) -> bytes:
    """Treatments as long as a body may be, of which the last one has this price."""
    prices = [9.25] * 1_999 + [last_price]
    rows = [{"id": f"{n:0255}", "inputs": {"price": price}} for n, price in enumerate(prices)]
    return orjson.dumps({"entity_id": "c", "inputs": {"age": 41}, "treatments": rows})


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty events": ("/v1/outcomes", lambda: b'{"events":[' + b",".join([b"{}"] * 1_000) + b"]}"),
    "events of unknown names": ("/v1/outcomes", lambda: outcomes_of_unknown_names(MIB)),
    "a batch of unknown names": ("/v1/models/visits/predict:batch", lambda: batch_of_unknown_names(MIB - 9_000, 256)),
    "a shorter batch of them": ("/v1/models/visits/predict:batch", lambda: batch_of_unknown_names(250_000, 256)),
    "a batch of few members": ("/v1/models/visits/predict:batch", lambda: batch_of_unknown_names(MIB - 9_000, 20)),
    "long names": (
        "/v1/models/visits/predict",
        lambda: orjson.dumps({"entity_id": "c", "inputs": {f"{n:0900}": 1 for n in range(1_000)}}),
    ),
    "the last treatment": ("/v1/models/offers/rank", lambda: treatments("free")),
}


@asynccontextmanager
async def longest_pause_of(running: Running) -> AsyncIterator[list[float]]:
    """Ask ``/livez`` again and again, and put the loop's most processor time between two answers into the list."""
    longest, ended = [0.0], asyncio.Event()

    async def watch() -> None:
        before = time.thread_time()
        is_last = False
        while not is_last:
            is_last = ended.is_set()
            assert (await running.ask("/livez", method="GET")).status == 200
            now = time.thread_time()
            longest[0], before = max(longest[0], now - before), now
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    try:
        yield longest
    finally:
        ended.set()
        await watching


def places_of(answer: Answer) -> list[dict[str, str]]:
    """Return the places that all problems of an answer name."""
    document = orjson.loads(answer.body)
    problems = [document, *(one["error"] for one in document.get("predictions", []))]
    return [place for problem in problems for place in problem.get("errors", [])]


@pytest.mark.alone
@pytest.mark.parametrize("kind", BODIES)
async def test_a_body_full_of_mistakes_gets_a_bounded_answer_and_stops_no_other_caller(start, kind: str):
    path, make = BODIES[kind]
    body = make()
    running = await start(offers=True)

    async with longest_pause_of(running) as longest:
        answer = await running.ask(path, body, headers=[(b"authorization", b"Bearer ops.secret")])
    places = places_of(answer)

    assert 1 <= len(places) <= MAX_PLACES
    assert len(orjson.dumps(places)) <= MAX_PLACES_BYTES
    assert longest[0] <= LIVE_SECONDS
