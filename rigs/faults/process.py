"""Rows PR: what may happen to the proxy's own processes, and what callers may do to them."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPException

import orjson
from e2e.load import Answer, Connection, Load, run_load
from e2e.stack import VISITS, get, register

from loadtests.machine import (
    LOAD_CORE,
    SERVER_CORE,
    cpu_seconds,
    ended_children_cpu_seconds,
    moved_to_core,
    on_core,
    what_is_missing,
)
from loadtests.scene import INPUT_SCHEMA, start_stub
from loadtests.stub_model import OUTPUT
from loadtests.wrk import FULL, Answered, run_wrk
from loadtests.wrk import Load as WrkLoad
from rigs.faults.callers import half_open
from rigs.faults.held_connections import held_connections
from rigs.faults.inputs import body_of, inputs_of
from rigs.faults.loop_watch import watched
from rigs.faults.measure import NOTHING, Measured, max_ms, measured, p99_ms, standard
from rigs.faults.not_here import NotHere
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_least, at_most
from rigs.faults.world import DEADLINE_MS, Machine, World, resident_bytes

RELOADS = 6
RELOAD_SECONDS = 3.0
RELOAD_PER_SECOND = 1_400.0
LEARNT_SECONDS = 0.3
"""After which a load balancer has learnt that an instance ends."""
ENDED_SECONDS = 20.0
KEEP_ALIVE = 32
REPLACED_SECONDS = 20.0
HALF_OPEN = 1_200
PEAK_CONNECTIONS, TOO_MANY, PROBES = 64, 800, 24
STUB_INPUTS = {f"feature_{number:02d}": number / 16 for number in range(1, 14)}
MODELS = 10_000
BIG_PAGE_SECONDS = 30.0
"""For the metrics of all of them, on a machine that is busy."""
ENTITIES, ENTITIES_QUICK = 1_000_000, 50_000
BATCH = 250
KILLS, KILLS_QUICK = 200, 10
GAUGE_SECONDS = 1.0
SCRAPES = 5
SLOTS = 16
BATCH_PATH = "/v1/models/visits/predict:batch"
_QUICK_SECONDS = 10.0
_STUB_OUTPUT = {"tensor": OUTPUT, "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1}
_MANY_VERSIONS = """
    INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema, backend)
    SELECT 'model-' || n, '1', artifact_path, framework, input_schema, output_schema,
           '{"model_name": "visits", "version": "1"}'
    FROM ModelVersion, generate_series(1, $1) AS n WHERE model_name = 'visits'
"""
_MANY_ENDPOINTS = """
    INSERT INTO ModelEndpoint (model_version_id, target)
    SELECT v.id, e.target FROM ModelVersion v, ModelEndpoint e WHERE v.model_name <> 'visits'
"""


def _is_quick(span: Span) -> bool:
    return span.during < _QUICK_SECONDS


async def reloads(machine: Machine, span: Span) -> Figures:
    """Reload six times in each of three ways; ``failed`` and ``requests`` are of all of them."""
    ways = {"hup": (2, _reloading), "rolling": (2, _one_worker_after_another), "swapped": (1, _swapped)}
    found: dict[str, dict[str, float]] = {}
    for way, (workers, reload) in ways.items():
        async with machine.world(workers=workers) as world:
            await world.serve()
            target = [world.port]
            found[way] = await standard(
                world,
                reload(world, target),
                span._replace(during=0.0),
                per_second=RELOAD_PER_SECOND,
                connections=KEEP_ALIVE,
                port=lambda target=target: target[0],
            )
    names = sorted({name for figures in found.values() for name in figures})
    together = {name: sum(figures.get(name, 0.0) for figures in found.values()) for name in names}
    worst = ("p99_ms", "p99_ms_delta", "machine_stall_ms")
    return {
        **together,
        **{name: max(figures[name] for figures in found.values()) for name in worst},
        **{f"failed_{way}": figures["failed"] for way, figures in found.items()},
    }


@asynccontextmanager
async def _reloading(world: World, _target: list[int]) -> AsyncIterator[None]:
    """Have gunicorn replace all workers."""
    for _ in range(RELOADS):
        world.proxy.signal(signal.SIGHUP)
        await asyncio.sleep(RELOAD_SECONDS)
    yield


@asynccontextmanager
async def _one_worker_after_another(world: World, _target: list[int]) -> AsyncIterator[None]:
    """Tell the worker to stop that has been there longest."""
    for _ in range(RELOADS):
        leaving = world.proxy.children()[0]
        os.kill(leaving, signal.SIGTERM)
        give_up = time.monotonic() + ENDED_SECONDS
        while leaving in world.proxy.children():
            if time.monotonic() > give_up:
                raise TimeoutError("a worker that was told to stop goes on")
            await asyncio.sleep(0.1)
        await asyncio.sleep(RELOAD_SECONDS / 2)
    yield


@asynccontextmanager
async def _swapped(world: World, target: list[int]) -> AsyncIterator[None]:
    """Start an instance of one uvicorn beside the other, which is then told to stop; callers learn of it too late."""
    leaving = world.proxy
    for number in range(RELOADS):
        name = f"proxy-{number}"
        other = await world.start_proxy(name, state_dir=world.folder / name)
        leaving.signal(signal.SIGTERM)
        await asyncio.sleep(LEARNT_SECONDS)
        target[0] = other
        await asyncio.to_thread(leaving.child.wait, ENDED_SECONDS)
        leaving = world.stack.processes[name]
        await asyncio.sleep(RELOAD_SECONDS / 2)
    yield


async def worker_killed(machine: Machine, span: Span) -> Figures:
    """Kill a worker to which some of 32 callers keep connections: one request on each may be on its way there.

    With the 128 connections of the standard load four times as many could be: a process that is killed is dead for its
    callers only when the kernel has closed its sockets, which on a busy machine takes tenths of a second, and until
    then takes what comes on the connections that it has. That is the machine's, and no request that a worker had.
    """
    machine.notes.append(
        f"PR-02: {KEEP_ALIVE} keep-alive callers; failed_after are those sent after the kill, before the kernel closed "
        "the worker's sockets"
    )
    async with machine.world(workers=2) as world:
        await world.serve()
        held = 0

        @asynccontextmanager
        async def killed() -> AsyncIterator[None]:
            nonlocal held
            victim = world.proxy.children()[0]
            held = held_connections(victim, world.port)
            os.kill(victim, signal.SIGKILL)
            yield

        seen = await measured(world, killed(), span, per_second=300, connections=KEEP_ALIVE)
        last = max((a.sent for a in seen.failed), default=seen.broken_at)
        return {
            **seen.figures(),
            **await world.lost_and_doubled(seen.load),
            **_beyond_one_each(seen, held),
            "failed_after": sum(answer.sent >= seen.broken_at for answer in seen.failed),
            "recover_s": max(0.0, last - seen.broken_at),
        }


def _beyond_one_each(seen: Measured, held: int) -> Figures:
    """Return the failures beyond one for each connection that the worker held: those are other workers' callers."""
    return {"held": held, "failed_beyond_held": max(0, len(seen.failed) - held)}


async def worker_frozen(machine: Machine, span: Span) -> Figures:
    """Freeze a worker as above: its callers give up on one request each, and open their connection anew."""
    async with machine.world(workers=2) as world:
        await world.serve()
        replaced, held = 0.0, 0

        @asynccontextmanager
        async def frozen() -> AsyncIterator[None]:
            nonlocal replaced, held
            victim = world.proxy.children()[0]
            held = held_connections(victim, world.port)
            os.kill(victim, signal.SIGSTOP)
            began = time.monotonic()
            while victim in world.proxy.children() and time.monotonic() < began + REPLACED_SECONDS:
                await asyncio.sleep(0.1)
            replaced = time.monotonic() - began
            yield

        seen = await measured(world, frozen(), span._replace(during=0.0), per_second=300, connections=KEEP_ALIVE)
        return {
            **seen.figures(),
            **await world.lost_and_doubled(seen.load),
            **_beyond_one_each(seen, held),
            "replaced_s": replaced,
        }


async def many_half_open(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve()
        return await standard(world, half_open(world.port, HALF_OPEN), span)


async def overload(machine: Machine, span: Span) -> Figures:
    """Hold twelve times as many connections as the version has calls, and compare what is answered.

    The proxy has a core of its own, and everything else the other one: a load that shares the server's core takes from
    it what it is there to measure. Who is answered, and after how long, is seen by a few callers among the many.
    """
    if missing := what_is_missing(("wrk",)):
        raise NotHere("; ".join(missing))
    with _apart(machine):
        async with machine.world(backend_calls=SLOTS, max_connections_per_address=2 * TOO_MANY) as world:
            stub = start_stub(world.stack, "slots", ["--latency-ms", "20", "--slots", str(SLOTS)])
            version = await register(
                world.url,
                1,
                [stub],
                input_schema=orjson.dumps({**INPUT_SCHEMA, "batch": False}).decode(),
                output_schema=orjson.dumps(_STUB_OUTPUT).decode(),
                cache_ttl_seconds=0,
                timeout_ms=DEADLINE_MS,
            )
            await world.sql("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
            await world.start_proxy(core=SERVER_CORE)
            url = f"http://127.0.0.1:{world.port}{VISITS}"
            await _on_load_core(url, 2)
            seconds = max(3.0, span.during / 2)
            peak, _ = await _on_load_core(url, seconds, WrkLoad(PEAK_CONNECTIONS))
            before = cpu_seconds([world.proxy.pid])
            (over, cores), probed, livez = await asyncio.gather(
                _on_load_core(url, seconds, WrkLoad(TOO_MANY - PROBES)),
                _probed(world, seconds),
                _health(world, seconds),
            )
            server_seconds = cpu_seconds([world.proxy.pid]) - before
    good, best = ((found.requests - found.not_200) / found.seconds for found in (over, peak))
    accepted = [answer for answer in probed if answer.status == HTTPStatus.OK]
    good += len(accepted) / seconds
    return {
        "peak_per_second": best,
        "goodput_per_second": good,
        "goodput_vs_peak": good / max(1.0, best),
        "p99_ms": p99_ms(accepted),
        "accepted_seen": len(accepted),
        "p99_of_all_ms": over.p99_ms,
        "refused_per_second": over.not_200 / over.seconds,
        "refused_otherwise": sum(answer.status not in (200, 503) for answer in probed),
        "server_core_ratio": server_seconds / seconds,
        "load_core_ratio": cores / seconds,
        "health_unanswered": sum(not seen for _, seen in livez),
        "health_max_ms": max(took for took, _ in livez) * 1000,
        "broken": over.broken,
    }


@contextmanager
def _apart(machine: Machine) -> Iterator[None]:
    """Keep what runs anyway off the proxy's core: Postgres and this process."""
    pid = machine.postgres.pid
    assert pid is not None
    with on_core(LOAD_CORE), moved_to_core(pid, LOAD_CORE):
        yield


async def _on_load_core(url: str, seconds: float, load: WrkLoad = FULL) -> tuple[Answered, float]:
    """Run wrk; returns what it saw, and the processor time that it took."""

    def run() -> tuple[Answered, float]:
        with on_core(LOAD_CORE):
            before = ended_children_cpu_seconds()
            seen = run_wrk(url, seconds, load)
            return seen, ended_children_cpu_seconds() - before

    return await asyncio.to_thread(run)


async def _probed(world: World, seconds: float) -> list[Answer]:
    """Ask as the many do, on a few connections whose answers are looked at one by one."""
    answers: list[Answer] = []
    until = time.monotonic() + seconds

    async def ask(number: int) -> None:
        connection = Connection("127.0.0.1", world.port)
        while time.monotonic() < until:
            number += PROBES
            body = orjson.dumps({"entity_id": f"probe-{number}", "inputs": STUB_INPUTS})
            answers.append(await connection.post(VISITS, body))
        connection.close()

    await asyncio.gather(*(ask(number) for number in range(PROBES)))
    return answers


async def _health(world: World, seconds: float) -> list[tuple[float, bool]]:
    """Ask /livez and /readyz in turn; returns how long each answer took, and whether it was one."""
    seen = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for path in ("livez", "readyz"):
            began = time.monotonic()
            status, _ = await asyncio.to_thread(get, f"http://127.0.0.1:{world.port}/{path}")
            seen.append((time.monotonic() - began, status == HTTPStatus.OK))
        await asyncio.sleep(0.1)
    return seen


async def preloaded(machine: Machine, span: Span) -> Figures:
    """Ask gunicorn for what makes gRPC channels before a fork, and see whether workers die of it."""
    os.environ["GUNICORN_CMD_ARGS"] = "--preload"
    try:
        async with machine.world(workers=2) as world:
            await world.serve()
            workers = set(world.proxy.children())
            figures = await standard(world, NOTHING, span)
            return {**figures, "child_crashes": len(workers - set(world.proxy.children()))}
    finally:
        del os.environ["GUNICORN_CMD_ARGS"]


async def ten_thousand_models(machine: Machine, span: Span) -> Figures:
    """Change all models under load, and scrape the metrics of all; a program beside the load asks for the loop.

    ``longest_ms`` is the longest answer of a caller: it has the model server, the links and the load's own process in
    it, which the event loop's longest block has not.
    """
    async with machine.world() as world:
        await world.champion("a")
        await world.sql(_MANY_VERSIONS, MODELS)
        await world.sql(_MANY_ENDPOINTS)
        await world.sql(
            "INSERT INTO ServingPolicy (model_name, champion_version) "
            "SELECT model_name, id FROM ModelVersion WHERE model_name <> 'visits'"
        )
        began, scrape_s = time.monotonic(), 0.0
        await world.start_proxy()
        ready_s = time.monotonic() - began

        @asynccontextmanager
        async def all_change() -> AsyncIterator[None]:
            nonlocal scrape_s
            await world.sql("UPDATE ServingPolicy SET shadow_percent = 50")
            began = time.monotonic()
            await asyncio.to_thread(world.scrape, seconds=BIG_PAGE_SECONDS)
            scrape_s = time.monotonic() - began
            yield

        with watched(world.port, world.proxy.pid) as watch:
            seen = await measured(world, all_change(), span)
        blocked = watch.figures(seen.broken_at, seen.mended_at)
        longest_ms = max_ms(seen.during())
        return {**seen.figures(), **blocked, "ready_s": ready_s, "scrape_s": scrape_s, "longest_ms": longest_ms}


async def many_entities(machine: Machine, span: Span) -> Figures:
    total = ENTITIES_QUICK if _is_quick(span) else ENTITIES
    async with machine.world() as world:
        await world.serve("a", cache_ttl_seconds=0)
        inputs = inputs_of(7)

        async def send(first: int, last: int) -> int:
            connection, bad = Connection("127.0.0.1", world.port), 0
            for start in range(first, last, BATCH):
                entities = [{"entity_id": f"new-{number}", "inputs": inputs} for number in range(start, start + BATCH)]
                answer = await connection.post(
                    BATCH_PATH, orjson.dumps({"entities": entities}), "x-request-timeout-ms: 5000\r\n"
                )
                bad += answer.status != 200
            connection.close()
            return bad

        await send(0, 20 * BATCH)
        before = resident_bytes(world.proxy.pid)
        bad = await send(20 * BATCH, 20 * BATCH + total)
        grown = resident_bytes(world.proxy.pid) - before
        return {"entities": total, "failed_batches": bad, "rss_growth_mb": max(0.0, grown / 2**20)}


async def many_kills(machine: Machine, span: Span) -> Figures:
    kills = KILLS_QUICK if _is_quick(span) else KILLS
    async with machine.world(workers=2) as world:
        port = await world.serve()
        load = Load()
        running = asyncio.create_task(
            run_load(port, VISITS, body_of, per_second=20, seconds=kills * 5, load=load, connections=8)
        )
        counted, went_back = 0.0, 0
        try:
            for _ in range(kills):
                await asyncio.sleep(GAUGE_SECONDS)
                now = await asyncio.to_thread(_counted, world)
                went_back += now < counted
                counted = max(counted, now)
                os.kill(world.proxy.children()[0], signal.SIGKILL)
                await _two_workers(world)
        finally:
            load.is_over = True
            await running
        scrapes = []
        for _ in range(SCRAPES):
            began = time.monotonic()
            _counted(world)
            scrapes.append(time.monotonic() - began)
        rows = await world.lost_and_doubled(load)
        return {"kills": kills, "scrape_ms": max(scrapes) * 1000, "counter_went_back": went_back, **rows}


def _counted(world: World) -> float:
    """Return the requests that all workers counted; a scrape may be at the worker that was just killed."""
    for _ in range(SCRAPES):
        with suppress(OSError, HTTPException):
            return world.metric("predict_requests_total{")
    raise TimeoutError("no worker answers a scrape")


async def _two_workers(world: World) -> None:
    give_up = time.monotonic() + REPLACED_SECONDS
    while len(world.proxy.children()) < 2:
        if time.monotonic() > give_up:
            raise TimeoutError("a killed worker was not replaced")
        await asyncio.sleep(0.1)


ROWS = (
    Row(
        "PR-01",
        "6 reloads by SIGHUP, worker by worker, and of two instances, at 1,400 a second, 32 keep-alive callers",
        "workers drain",
        NOTHING_LOST,
        reloads,
    ),
    Row(
        "PR-02",
        "one of two workers killed",
        "only its own requests fail",
        at_most(failed=KEEP_ALIVE, failed_beyond_held=0, recover_s=2, rows_lost=0, rows_dup=0),
        worker_killed,
    ),
    Row(
        "PR-03",
        "one of two workers frozen",
        "killed and replaced",
        at_most(failed=KEEP_ALIVE, failed_beyond_held=0, replaced_s=15, rows_lost=0, rows_dup=0),
        worker_frozen,
    ),
    Row(
        "PR-04",
        "1,200 half-open connections",
        "others are served",
        (*NOTHING_LOST, *at_most(p99_ms=250)),
        many_half_open,
    ),
    Row(
        "PR-05",
        "800 connections, 16 calls at a time",
        "a bounded wait, then 503",
        (
            *at_least(peak_per_second=1, goodput_vs_peak=0.8, accepted_seen=10),
            *at_most(p99_ms=300, broken=0, health_unanswered=0),
        ),
        overload,
    ),
    Row(
        "PR-06",
        "gunicorn asked to preload",
        "channels are made after the fork",
        (*NOTHING_LOST, *at_most(child_crashes=0)),
        preloaded,
    ),
    Row(
        "PR-07",
        "10,000 models, all changed at once",
        "start and reload off the event loop",
        at_most(failed=0, ready_s=5, loop_block_ms_max=50),
        ten_thousand_models,
    ),
    Row(
        "PR-08",
        "a million entities (quick: 50,000)",
        "no state for each",
        at_most(rss_growth_mb=64, failed_batches=0),
        many_entities,
    ),
    Row(
        "PR-09",
        "200 killed workers (quick: 10)",
        "dead workers leave the page, counters stay",
        at_most(scrape_ms=200, counter_went_back=0, rows_lost=0, rows_dup=0),
        many_kills,
    ),
)
