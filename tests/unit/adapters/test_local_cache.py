"""The in-process cache: least recently used, bounded in bytes, each entry with its own end."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.local_cache import (
    ENTRY_OVERHEAD_BYTES,
    OUTPUT_OVERHEAD_BYTES,
    PREDICTION_OVERHEAD_BYTES,
    MemoryCache,
    PredictionMemory,
)
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.row_output import RowOutput, row_outputs_of
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import Datatype, Tensor

ENTRIES = 100


class Clock:
    """A time that moves when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def room_for(entries: int, value: bytes = b"value") -> int:
    return entries * (1 + len(value) + ENTRY_OVERHEAD_BYTES)


async def test_a_stored_value_comes_back_until_its_time_is_over():
    clock = Clock()
    cache = MemoryCache(10_000, clock)
    await cache.set("a", b"value", ttl_seconds=60)

    clock.seconds = 59.9
    fresh = cache.peek("a")
    clock.seconds = 60.0
    stale = cache.peek("a")

    assert (fresh, stale) == (b"value", None)
    assert (len(cache), cache.size_bytes) == (0, 0)


async def test_the_entry_used_longest_ago_makes_room():
    cache = MemoryCache(room_for(2))
    await cache.set("a", b"value", 60)
    await cache.set("b", b"value", 60)
    cache.peek("a")

    await cache.set("c", b"value", 60)

    assert [cache.peek(key) for key in "abc"] == [b"value", None, b"value"]


async def test_a_value_over_the_limit_is_let_go_and_takes_nobodys_place():
    cache = MemoryCache(room_for(2))
    await cache.set("a", b"value", 60)

    await cache.set("b", b"x" * room_for(2), 60)

    assert cache.peek("b") is None
    assert cache.peek("a") == b"value"


async def test_a_value_over_the_limit_does_not_leave_the_older_one_behind():
    cache = MemoryCache(room_for(2))
    await cache.set("a", b"value", 60)

    await cache.set("a", b"x" * room_for(2), 60)

    assert cache.peek("a") is None


async def test_without_room_or_without_time_nothing_is_stored():
    nothing = MemoryCache(0)
    await nothing.set("a", b"value", 60)
    cache = MemoryCache(10_000)
    await cache.set("a", b"value", 0)

    assert (len(nothing), len(cache)) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.binary(max_size=400), st.integers(0, 3)), max_size=60))
async def test_any_sequence_of_writes_stays_within_the_limit_and_the_account_is_exact(writes):
    clock = Clock()
    cache = MemoryCache(2_000, clock)
    newest = {}

    for key, value, ttl_seconds in writes:
        await cache.set(key, value, ttl_seconds)
        newest[key] = value
        clock.seconds += 0.5
        assert cache.size_bytes <= 2_000

    for key, value in newest.items():
        assert cache.peek(key) in (None, value)
    clock.seconds += 10
    assert [cache.peek(key) for key in "abcdefgh"] == [None] * 8
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_a_prediction_is_kept_as_it_is_and_counted_with_its_output():
    memory = PredictionMemory(10_000)
    plain = Prediction(b'{"score":0.5}', 0.5)
    output = RowOutput("p", Datatype.FP32, (1,), b"\x00\x00\x00\x3f")
    with_output = plain.but(output=output)

    memory.keep("a", plain, 60)
    plain_bytes = memory.size_bytes
    memory.keep("a", with_output, 60)

    assert memory.peek("a") == with_output
    assert plain_bytes == 1 + len(plain.json) + PREDICTION_OVERHEAD_BYTES + ENTRY_OVERHEAD_BYTES
    assert memory.size_bytes == plain_bytes + len(b"p\x00\x00\x00\x3f") + OUTPUT_OVERHEAD_BYTES
    memory.keep("a", plain.but(output=output.but(beside=(output,))), 60)
    assert memory.size_bytes == plain_bytes + 2 * (len(b"p\x00\x00\x00\x3f") + OUTPUT_OVERHEAD_BYTES)
    memory.clear()
    assert (len(memory), memory.size_bytes) == (0, 0)


@pytest.mark.parametrize("outputs", [0, 1, 3], ids=["plain", "with its output", "with others beside it"])
@pytest.mark.parametrize(
    "elements",
    [[0.25], [0.25, 0.5, 0.75], list(range(50)), [b"cat"], [b"cat", b"dog"]],
    ids=["score", "scores", "many scores", "label", "labels"],
)
def test_kept_predictions_hold_no_more_memory_than_is_counted(elements, outputs):
    datatype = Datatype.BYTES if isinstance(elements[0], bytes) else Datatype.FP32
    values = np.array(elements * ENTRIES, datatype.numpy_dtype)
    tensor = Tensor(datatype, (ENTRIES, len(elements)), values, "a name as long as its server likes " * 20)
    tensor = replace(tensor, beside=(tensor,) * (outputs - 1))
    memory = PredictionMemory(10_000_000)

    def keep_all() -> None:
        predictions = predictions_of(OutputSchema(), tensor, ENTRIES, batch=True)
        kept = row_outputs_of(tensor, range(ENTRIES), batch=True)
        for number, (prediction, output) in enumerate(zip(predictions, kept, strict=True)):
            assert isinstance(prediction, Prediction)
            assert isinstance(output, RowOutput)
            memory.keep(f"infer:1:{number:081}", prediction.but(output=output) if outputs else prediction, 60)

    keep_all()
    memory.clear()
    tracemalloc.start()
    keep_all()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(memory) == ENTRIES
    assert held <= memory.size_bytes
