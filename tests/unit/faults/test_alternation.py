"""What a fault that comes and goes costs, and what the machine's own noise does not add to it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from e2e.load import Answer, Load

from faults.measure import Alternation

SECONDS, PAIRS = 1.5, 3
EVERY_SECONDS = 0.002
USUAL_MS = 10


async def told(cost_ms: float, noise_ms_in_pair: float = 0.0) -> float:
    """Return what is said of a fault that costs so much, while the second pair's fault meets this noise."""
    load = Load()
    breaks = 0
    is_broken = False

    @contextmanager
    def broken() -> Iterator[None]:
        nonlocal is_broken, breaks
        is_broken, breaks = True, breaks + 1
        try:
            yield
        finally:
            is_broken = False

    async def answer() -> None:
        while True:
            more = cost_ms + (noise_ms_in_pair if breaks == 2 else 0.0) if is_broken else 0.0
            load.answers.append(Answer(time.monotonic(), (USUAL_MS + more) / 1000, 200, {}, b""))
            await asyncio.sleep(EVERY_SECONDS)

    answering = asyncio.create_task(answer())
    alternation = Alternation(broken, SECONDS, PAIRS)
    async with alternation:
        pass
    answering.cancel()
    assert breaks == PAIRS
    return alternation.p99_ms_delta(load)


async def test_what_the_fault_adds_is_found_in_its_whole():
    assert await told(7.0) == pytest.approx(7.0)


async def test_what_happens_in_one_pair_alone_is_the_machines():
    assert await told(0.0, noise_ms_in_pair=80.0) == 0.0
    assert await told(7.0, noise_ms_in_pair=80.0) == pytest.approx(7.0)


async def test_a_fault_that_makes_calls_quicker_costs_nothing():
    assert await told(-5.0) == 0.0
