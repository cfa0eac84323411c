"""Answers of as many values as fit under the limit of 4 MiB: the event loop turns while they are read."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf

import pytest
from contract.servers import Behaviour, running
from contract.test_model_backend import ROW, a_version, connected

from understudy.adapters._proto.understudy_oip_pb2 import ModelInferResponse
from understudy.adapters._proto.understudy_torchserve_pb2 import PredictionResponse
from understudy.core.routing.policy import ModelVersion
from understudy.serving.upstream.batch_inference import BatchInference
from understudy.serving.upstream.row_deadlines import WaitingRow

LONGEST_BYTES = 4 * 2**20 - 400
"""Of an answer's values; with what is around them they are just under the limit."""
MAX_TURN_SECONDS = 0.25
"""In which ``/livez`` is to answer. It was 4 to 22 s with TorchServe's answers, and 1 s with the others."""
LOAD_SECONDS = 60.0
TICK_SECONDS = 0.005
TRIES = 3
"""The machine may be busy with other work; an answer that is read on the loop is late at each of them."""


def list_of(value: bytes) -> bytes:
    """Return TorchServe's answer."""
    text = b"[" + (value + b",") * (LONGEST_BYTES // (len(value) + 1) - 1) + value + b"]"
    return PredictionResponse(prediction=text).SerializeToString()


def strings_of(size: int) -> bytes:
    count = LONGEST_BYTES // (4 + size)
    answer = ModelInferResponse(raw_output_contents=[(size.to_bytes(4, "little") + b"s" * size) * count])
    answer.outputs.add(name="p", datatype="BYTES", shape=[1, count])
    return answer.SerializeToString()


def nameless_outputs() -> bytes:
    answer = ModelInferResponse()
    answer.outputs.add()
    one = answer.SerializeToString()
    return one * (LONGEST_BYTES // len(one))


ANSWERS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "short numbers": ("torchserve", lambda: list_of(b"1")),
    "numbers": ("torchserve", lambda: list_of(b"0.12345")),
    "strings": ("torchserve", lambda: list_of(b'"string"')),
    "empty lists": ("torchserve", lambda: list_of(b"[]")),
    "lists of lists": ("torchserve", lambda: list_of(b"[[[[[[1]]]]]]")),
    "empty strings": ("oip", lambda: strings_of(0)),
    "strings of four": ("oip", lambda: strings_of(4)),
    "nameless outputs": ("oip", nameless_outputs),
}


async def longest_turn_during(work: Awaitable[object]) -> float:
    """Return by how many seconds the event loop was late at most while it waited for ``work``."""
    working = asyncio.ensure_future(work)
    longest = 0.0
    while not working.done():
        began = time.monotonic()
        await asyncio.sleep(TICK_SECONDS)
        longest = max(longest, time.monotonic() - began - TICK_SECONDS)
    await working
    return longest


async def longest_turn_of_three_calls(version: ModelVersion) -> float:
    results: list[object] = []
    async with connected(version) as backend:
        inference = BatchInference(version, backend, time.monotonic)
        now = time.monotonic()
        rows = [
            WaitingRow(
                row=ROW,
                deadline=now + LOAD_SECONDS,
                since=now,
                take=lambda over: results.extend(one.found for one in over),
            )
            for _ in range(3)
        ]

        longest = await longest_turn_during(asyncio.gather(*(inference.answer([row]) for row in rows)))
    assert len(results) == len(rows)
    return longest


@pytest.mark.alone
@pytest.mark.parametrize("kind", ANSWERS)
async def test_the_event_loop_turns_while_three_answers_of_as_many_values_as_fit_are_read(kind: str):
    adapter, content = ANSWERS[kind]
    longest = inf

    async with running(Behaviour(answer=content())) as (server,):
        for _ in range(TRIES):
            if longest > MAX_TURN_SECONDS:
                longest = await longest_turn_of_three_calls(a_version(server.endpoint, adapter=adapter))

    assert longest <= MAX_TURN_SECONDS
