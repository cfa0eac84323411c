"""What a proxy on a core of its own notices of something on the other core: rounds with and without it, in turns.

Callers come 200 times a second without waiting for each other.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median
from typing import NamedTuple

import asyncpg
import orjson
from e2e.stack import Stack

from loadtests.machine import cpu_seconds, what_is_missing
from loadtests.open_loop import HttpCaller, call_on_time, due_times

PER_SECOND = 200
MAX_CPU_RATIO, MAX_P99_RATIO = 1.05, 1.2
MODEL = "beside"
Disturbing = Callable[[], AbstractContextManager[dict[str, int]]]
"""Lets what is measured work while its context is open; the dictionary says in the end how much it did."""


class Round(NamedTuple):
    """One round of the proxy."""

    cpu_us: float
    p99_ms: float
    failed: int


def asked_for(description: str | None) -> argparse.Namespace | None:
    """Return how many rounds are asked for, and how long; ``None``: this machine cannot run them, as was said."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="pairs of rounds (9)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round (10)")
    given = parser.parse_args()
    problems = what_is_missing(())
    if problems:
        print("the benchmark needs", *problems, sep="\n  ", file=sys.stderr)
        return None
    return given


async def add_model(database: asyncpg.Connection, port: int) -> None:
    """Register the model that callers call, with its model server on this machine."""
    schema = orjson.dumps({"features": [{"name": "age", "dtype": "float32"}]}).decode()
    version = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, protocol, input_schema)"
        " VALUES ($1, '1', 'none', 'none', 'tfserving', $2) RETURNING id",
        MODEL,
        schema,
    )
    target = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
    await database.execute(target, version, f"127.0.0.1:{port}")
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", MODEL, version)


def a_round(stack: Stack, seconds: float, number: int) -> Round:
    """Call the proxy for some seconds."""
    pid = stack.processes["proxy"].pid
    body = orjson.dumps({"entity_id": "customer-42", "inputs": {"age": 41.0}})
    caller = HttpCaller(stack.proxy_port, f"/v1/models/{MODEL}/predict", lambda _: body)
    before = cpu_seconds([pid])
    heard = call_on_time(caller, due_times(PER_SECOND, seconds, seed=number))
    used = cpu_seconds([pid]) - before
    return Round(1e6 * used / max(1, len(heard.seconds)), heard.latency.p99_ms, heard.failed)


def take_turns(stack: Stack, disturbing: Disturbing, *, rounds: int, seconds: float) -> int:
    """Take turns, print the figures, and return the exit status."""
    a_round(stack, 1.0, 0)
    rests, others = [], []
    for number in range(1, rounds + 1):
        rests.append(a_round(stack, seconds, number))
        with disturbing() as done:
            others.append(a_round(stack, seconds, number))
        rest, other = rests[-1], others[-1]
        print(
            f"round {number}: {rest.cpu_us:.0f} and {other.cpu_us:.0f} µs a request, p99 {rest.p99_ms:.2f} and"
            f" {other.p99_ms:.2f} ms; meanwhile {done}",
            flush=True,
        )
    cpu = median(other.cpu_us / one.cpu_us for one, other in zip(rests, others, strict=True))
    p99 = median(other.p99_ms / one.p99_ms for one, other in zip(rests, others, strict=True))
    failed = sum(one.failed for one in (*rests, *others))
    print(f"processor time a request: {cpu:.3f} times (at most {MAX_CPU_RATIO:g})")
    print(f"p99: {p99:.2f} times (at most {MAX_P99_RATIO:g}); {failed} calls without a good answer")
    return 0 if cpu <= MAX_CPU_RATIO and p99 <= MAX_P99_RATIO and not failed else 1
