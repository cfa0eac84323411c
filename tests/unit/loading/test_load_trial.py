"""Load: calls several at a time for some seconds; only a version that is too slow for its time-out fails."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from builders import a_version

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, NotValidated
from understudy.loading.load_trial import AT_ONCE, measure_load

VERSION = a_version(input_schema={"features": [{"name": "age", "dtype": "float32"}]}, timeout_ms=50)
SECONDS = 0.02


class CountingBackend(MemoryBackend):
    """Remembers how many calls were under way at once."""

    most = 0

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        await asyncio.sleep(0)
        answer = asyncio.ensure_future(super().infer(rows, timeout_seconds))
        await asyncio.sleep(0)
        self.most = max(self.most, self.in_flight)
        return await answer


def one(rows: Sequence[Row]) -> Tensor:
    return Tensor(Datatype.FP32, (len(rows),), np.ones(len(rows)))


async def test_calls_go_several_at_a_time_and_their_percentiles_are_told():
    backend = CountingBackend(one, delay_seconds=0.001)

    said = await measure_load(VERSION, backend, SECONDS)

    assert backend.most == AT_ONCE
    assert said.startswith(f"{len(backend.calls)} calls in 0.02 s, 4 at a time: p50 ")


async def test_a_version_that_is_slower_than_its_time_out_fails():
    with pytest.raises(NotValidated, match=r"p99 \d+ ms; a call may take 50 ms, its timeout_ms"):
        await measure_load(VERSION, MemoryBackend(one, delay_seconds=0.06), SECONDS)


async def test_a_server_that_refuses_all_or_dies_fails():
    dead = MemoryBackend(one, error=BackendUnavailable("gone"))
    dead.is_ready = False

    with pytest.raises(NotValidated, match=r"no call of 0\.02 s was answered: it refused"):
        await measure_load(VERSION, MemoryBackend(one, error=BadAnswer("it refused")), SECONDS)
    with pytest.raises(NotValidated, match=r"after 0\.02 s of calls the model server does not say"):
        await measure_load(VERSION, dead, SECONDS)


async def test_a_version_without_an_example_is_not_measured():
    large = {
        "features": [{"name": "a", "dtype": "int64", "min": 1000}],
        "tensors": [{"name": "a", "dtype": "int8", "features": ["a"]}],
    }

    said = await measure_load(a_version(input_schema=large), MemoryBackend(one), SECONDS)

    assert said.startswith("not measured: no example can be made")


async def test_a_server_that_refuses_more_than_one_call_of_a_hundred_fails_however_quick_its_answers_are():
    class Overloaded(MemoryBackend):
        answered = 0

        async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
            answer = await super().infer(rows, timeout_seconds)
            self.answered += 1
            if self.answered % 4 == 0:
                raise BackendUnavailable("its queue is full")
            return answer

    with pytest.raises(NotValidated, match=r"\d+ failed \(its queue is full\); of a hundred calls one may$"):
        await measure_load(VERSION, Overloaded(one), SECONDS)


async def test_a_call_has_as_long_as_the_version_itself_allows():
    asked = []

    class Patient(MemoryBackend):
        async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
            asked.append(timeout_seconds)
            return await super().infer(rows, timeout_seconds)

    slow = a_version(input_schema={"features": [{"name": "age", "dtype": "float32"}]}, timeout_ms=20_000)
    await measure_load(slow, Patient(one), 0.0)  # its time is over before it begins: each of the four asks once

    assert asked == [20.0] * AT_ONCE
