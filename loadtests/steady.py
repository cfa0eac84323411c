"""A load of a low, fixed rate, for latencies: it asks on time however late the answers are."""

import asyncio
import gc
from typing import NamedTuple

import orjson
import uvloop
from e2e.load import Load, run_load

from loadtests.plain_body import FEATURES
from loadtests.scene import path_of

_ROW = {name: number / 16 for number, name in enumerate(FEATURES, start=1)}


class Percentiles(NamedTuple):
    """Latency in one round, in milliseconds."""

    p50_ms: float
    p99_ms: float


def body_of(number: int) -> bytes:
    """Return a predict call of an entity of its own."""
    return orjson.dumps({"entity_id": f"steady-{number}", "inputs": _ROW})


def steady_load(port: int, model: str, per_second: float, seconds: float) -> Load:
    """Ask one server so often, and return what it answered."""
    gc.collect()
    gc.disable()  # a collection in this process would look like a slow answer
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run_load(port, path_of(model), body_of, per_second=per_second, seconds=seconds))
    finally:
        gc.enable()


def percentiles_of(load: Load) -> Percentiles:
    """Return a load's median and p99."""
    return Percentiles(load.percentile_seconds(50) * 1000, load.percentile_seconds(99) * 1000)
