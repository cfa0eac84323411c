"""Rows RD: what Redis may do. The proxies' own memory is off, so that each look-up needs it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import orjson
from e2e.load import Load, run_load
from e2e.stack import VISITS
from redis import Redis

from rigs.faults.callers import hang_up_on
from rigs.faults.inputs import body_of, distinct_of, wrong_answers
from rigs.faults.measure import Measured, caller_of, measured, standard
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_least, at_most
from rigs.faults.tcp import Behaviour, Mode
from rigs.faults.world import Machine, World

NO_MEMORY = {"memory_cache_bytes": 0}
FLUSH_SECONDS = 2.0
OVERWRITE_SECONDS = 0.2
HANG_UPS_PER_SECOND = 60
COUNTED_SECONDS = 1.5
"""A counter is on the page by then."""
_AT_ONCE = 50
_PLENTY = 64 * 1_048_576

Run = Callable[[Machine, Span], Awaitable[Figures]]
Spoil = Callable[[Redis, list[bytes]], None]


@asynccontextmanager
async def a_world(machine: Machine) -> AsyncIterator[World]:
    async with machine.world(**NO_MEMORY) as world:
        world.use_redis()
        await world.serve()
        yield world


def behaving(behaviour: Behaviour) -> Run:
    """Return the run of a row in which the way to Redis does something."""

    async def run(machine: Machine, span: Span) -> Figures:
        async with a_world(machine) as world:
            assert world.redis is not None
            return await standard(world, world.redis.doing(behaviour), span)

    return run


def limited(max_bytes: int, policy: str) -> Run:
    """Return the run of a row in which Redis has little memory."""

    @contextmanager
    def little_memory(world: World) -> Iterator[None]:
        with world.redis_client() as client:
            client.config_resetstat()
            client.config_set("maxmemory-policy", policy)
            client.config_set("maxmemory", max_bytes)
            try:
                yield
            finally:
                client.config_set("maxmemory", _PLENTY)
                client.config_set("maxmemory-policy", "allkeys-lru")

    async def run(machine: Machine, span: Span) -> Figures:
        async with a_world(machine) as world:
            figures = await standard(world, little_memory(world), span)
            with world.redis_client() as client:
                refused = client.info("errorstats").get("errorstat_OOM", {}).get("count", 0)
            await asyncio.sleep(COUNTED_SECONDS)
            return {**figures, "sets_refused": refused, "cache_errors": world.metric("cache_errors_total")}

    return run


def spoilt(spoil: Spoil) -> Run:
    """Return the run of a row in which every value is overwritten, again and again."""

    @asynccontextmanager
    async def spoiling(world: World, counted: list[int]) -> AsyncIterator[None]:
        async def keep_on() -> None:
            while True:
                await asyncio.to_thread(once)
                await asyncio.sleep(OVERWRITE_SECONDS)

        def once() -> None:
            with world.redis_client() as client:
                keys = list(client.scan_iter("infer:*", count=1_000))
                if keys:
                    spoil(client, keys)
                counted.append(len(keys))

        task = asyncio.create_task(keep_on())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def run(machine: Machine, span: Span) -> Figures:
        counted: list[int] = []
        async with a_world(machine) as world:
            seen = await measured(world, spoiling(world, counted), span)
            rows = await world.lost_and_doubled(seen.load)
            return {**seen.figures(), **rows, "served_wrong": len(seen.wrong), "spoilt": sum(counted)}

    return run


def cut_json(client: Redis, keys: list[bytes]) -> None:
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.set(key, b'{"version_id":1,"input_ha')
        pipe.execute()


def lists(client: Redis, keys: list[bytes]) -> None:
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.delete(key)
            pipe.lpush(key, b"1")
        pipe.execute()


_SHAPES = ({"labels": ["a", "b"]}, {"score": 7.5}, {"label": "visit", "scores": [0.5, 0.5]}, {"score": "0.5"})


def wrong_values(client: Redis, keys: list[bytes]) -> None:
    """Write well-formed values that no proxy wrote: each second one is a real value with another score in its range."""
    sealed = client.mget(keys)
    with client.pipeline(transaction=False) as pipe:
        for place, (key, value) in enumerate(zip(keys, sealed, strict=True)):
            *_, version, digest, _ = key.decode().split(":")  # answers with their output have a word more in front
            if place % 2 == 0 and value is not None and b"0." in bytes(value):  # type: ignore[arg-type]  # not decoded
                pipe.set(key, _another_score(bytes(value)))  # type: ignore[arg-type]  # nothing is decoded
            elif place % 10 == 1:
                pipe.set(key, sealed[place - 1] or b"")  # whole, but of another input
            else:
                shape = _SHAPES[place // 2 % len(_SHAPES)]
                pipe.set(key, orjson.dumps({"version_id": int(version), "input_hash": digest, "prediction": shape}))
        pipe.execute()


def _another_score(value: bytes) -> bytes:
    """Return a value whose score has another digit after the point, or whose output ends in another number."""
    if b"\n" in value:
        return value[:-1] + bytes([value[-1] ^ 1])
    place = value.rindex(b"0.") + 2
    return value[:place] + (b"1" if value[place : place + 1] != b"1" else b"2") + value[place + 1 :]


async def callers_hang_up(machine: Machine, span: Span) -> Figures:
    async with a_world(machine) as world:
        assert world.redis is not None
        with world.redis.doing(Behaviour(latency_seconds=0.0015)):
            port, connect = caller_of(world)
            ask = partial(run_load, port, VISITS, body_of, connect=connect)
            await ask(per_second=60, seconds=2)
            before = _connections_received(world)
            load = Load()
            running = asyncio.create_task(ask(per_second=140, seconds=span.during, load=load))
            hung_up = await hang_up_on(world.port, HANG_UPS_PER_SECOND, span.during)
            await running
            opened = _connections_received(world) - before
        wrong = wrong_answers(load.answers)
        return {
            "hung_up": hung_up,
            "requests": len(load.answers),
            "failed": len(load.failed),
            "wrong_values": len(wrong),
            "extra_redis_conns_per_cancel": opened / max(1, hung_up),
            **await world.lost_and_doubled(load),
        }


def _connections_received(world: World) -> int:
    with world.redis_client() as client:
        # Our own looks are one each.
        return int(client.info("stats")["total_connections_received"]) - 1


async def flushed(machine: Machine, span: Span) -> Figures:
    async with a_world(machine) as world:
        model = machine.model("a")
        flushes: list[float] = []
        rows_before = model.rows
        seen = await measured(world, _flushing(world, flushes), span)
        asked = model.rows - rows_before
        needed = _keys_by_epoch(seen, flushes)
        return {
            **seen.figures(),
            **await world.lost_and_doubled(seen.load),
            "flushes": len(flushes),
            "backend_calls_per_distinct_key": asked / max(1, needed),
        }


@asynccontextmanager
async def _flushing(world: World, flushes: list[float]) -> AsyncIterator[None]:
    async def keep_on() -> None:
        while True:
            await asyncio.to_thread(_flush, world)
            flushes.append(asyncio.get_running_loop().time())
            await asyncio.sleep(FLUSH_SECONDS)

    task = asyncio.create_task(keep_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _flush(world: World) -> None:
    with world.redis_client() as client:
        client.flushall()


def _keys_by_epoch(seen: Measured, flushes: list[float]) -> int:
    """Return how many different inputs were asked for between two flushes, summed: each has to be asked for anew.

    The calls that warm connections up have inputs of their own, a sixth of 60.
    """
    keys = {(distinct_of(a.number), sum(flush <= a.sent for flush in flushes)) for a in seen.load.answers}
    return len(keys) + 10


async def pool_exhausted(machine: Machine, span: Span) -> Figures:
    async with a_world(machine) as world:
        assert world.redis is not None
        breaking = world.redis.doing(Behaviour(latency_seconds=0.004))
        return await standard(world, breaking, span, per_second=400, connections=_AT_ONCE)


_MISSES = (*NOTHING_LOST, *at_most(p99_ms_delta=50))
ROWS = (
    Row("RD-01", "refused", "optional: a miss, and a breaker", _MISSES, behaving(Behaviour(Mode.REFUSE))),
    Row("RD-02", "blackhole", "a short time-out until the breaker opens", _MISSES, behaving(Behaviour(Mode.BLACKHOLE))),
    Row("RD-03", "300 ms slower each way", "as RD-02", _MISSES, behaving(Behaviour(latency_seconds=0.3))),
    Row(
        "RD-04",
        "no memory left, no eviction",
        "refused SETs are only counted",
        (*NOTHING_LOST, *at_least(sets_refused=1, cache_errors=1)),
        limited(1, "noeviction"),
    ),
    Row("RD-05", "2 MB of memory, evicting", "only fewer hits", NOTHING_LOST, limited(2**21, "allkeys-lru")),
    Row(
        "RD-06",
        "every value overwritten with cut JSON",
        "a miss",
        (*NOTHING_LOST, *at_most(served_wrong=0), *at_least(spoilt=1)),
        spoilt(cut_json),
    ),
    Row("RD-07", "every value of another type", "a miss", (*NOTHING_LOST, *at_least(spoilt=1)), spoilt(lists)),
    Row(
        "RD-08",
        "every value well-formed and wrong",
        "checked as a model server's answer is",
        (*NOTHING_LOST, *at_most(served_wrong=0), *at_least(spoilt=1)),
        spoilt(wrong_values),
    ),
    Row(
        "RD-09",
        "30 % of callers hang up after 0.5 to 30 ms",
        "no reply is taken for another's",
        at_most(wrong_values=0, failed=0, rows_lost=0, rows_dup=0, extra_redis_conns_per_cancel=1.1),
        callers_hang_up,
    ),
    Row(
        "RD-10",
        "FLUSHALL each 2 s",
        "concurrent misses of a key make one call",
        (*NOTHING_LOST, *at_most(backend_calls_per_distinct_key=1.2)),
        flushed,
    ),
    Row("RD-11", "50 callers, 8 connections, 8 ms a turn", "waits briefly, then a miss", NOTHING_LOST, pool_exhausted),
)
