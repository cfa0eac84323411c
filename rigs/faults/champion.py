"""Rows CH: what the champion's model servers may do."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from e2e.load import run_load
from e2e.stack import VISITS

from rigs.faults.callers import hang_up_on
from rigs.faults.inputs import body_for, body_of, distinct_of, inputs_of
from rigs.faults.measure import NOTHING, Measured, caller_of, max_ms, measured, p99_ms, standard
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_least, at_most
from rigs.faults.world import DEADLINE_MS, Machine, Model, resident_bytes

Run = Callable[[Machine, Span], Awaitable[Figures]]
LEAK = b"injected"
"""In the words of a model server that was told to fail; no caller may read them."""
GOODBYE_MS = 1_000
CODES = (502, 503, 504)
FOUND_SECONDS = 30.0
FAIR_SHARE = 0.2
HUNG_UP = 1_000
_GONE_AFTER_MS = 100
KNOWN_INPUTS = 50
_KNOWN = 30_000_000
_UNCACHED = {"cache_ttl_seconds": 0}


def _known(number: int) -> int | None:
    """Return which of the inputs that every second request asks for again and again, so that they are cached."""
    return _KNOWN + number // 2 % KNOWN_INPUTS if number % 2 else None


def _body(number: int) -> bytes:
    known = _known(number)
    return body_of(number) if known is None else body_for(known)


def _inputs(number: int) -> dict[str, Any]:
    known = _known(number)
    return inputs_of(distinct_of(number) if known is None else known)


async def only_replica(machine: Machine, span: Span, break_it: Callable[[Model], Any], **columns: Any) -> Figures:
    """Break the only replica, and tell how those were refused who had to be."""
    async with machine.world() as world:
        await world.serve("a", **columns)
        model = machine.model("a")
        resident_before = resident_bytes(world.proxy.pid)
        seen = await measured(world, break_it(model), span, body=_body, inputs=_inputs)
        rows = await world.lost_and_doubled(seen.load)
        grown = resident_bytes(world.proxy.pid) - resident_before
        return {**_refusals(seen), **rows, "rss_growth_mb": max(0.0, grown / 2**20)}


def _refusals(seen: Measured) -> dict[str, float]:
    during = seen.during()
    refused = [answer for answer in during if answer.status != 200]
    late = [answer for answer in seen.during(skip_seconds=1.0) if answer.status != 200]
    counts = {f"status_{code}": sum(answer.status == code for answer in refused) for code in CODES}
    return {
        "requests": len(seen.load.answers),
        "failed_outside": len(seen.failed) - len(refused) - sum(a.sent > seen.mended_at for a in seen.failed),
        "refused": len(refused),
        "cached_answered": sum(answer.status == 200 for answer in during),
        **counts,
        "status_other": len(refused) - sum(counts.values()),
        "without_retry_after": sum(a.status == 503 and b"retry-after" not in a.headers for a in refused),
        "refusal_p99_ms": p99_ms(refused),
        "refusal_p99_ms_after_1s": p99_ms(late),
        "max_ms": max_ms(during),
        "recover_s": seen.recover_s,
        "leaks": sum(LEAK in answer.body for answer in refused),
        "bad_answers_served": len(seen.wrong),
    }


def refused(machine: Machine, span: Span) -> Awaitable[Figures]:
    return only_replica(machine, span, lambda model: model.link.refusing())


def frozen(machine: Machine, span: Span) -> Awaitable[Figures]:
    return only_replica(machine, span, lambda model: model.stopped())


def showing(*, past_links: bool = False, **faults: Any) -> Run:
    def run(machine: Machine, span: Span) -> Awaitable[Figures]:
        return only_replica(machine, span, lambda model: model.showing(**faults), past_links=past_links)

    return run


async def goodbyes(machine: Machine, span: Span) -> Figures:
    machine.model("a", max_age_ms=GOODBYE_MS)
    try:
        async with machine.world() as world:
            await world.serve("a", **_UNCACHED)
            return await standard(world, NOTHING, span)
    finally:
        machine.model("a").process.stop()


async def of_two(machine: Machine, span: Span, break_it: Callable[[Model, Model], Any]) -> dict[str, float]:
    """Break one of two replicas."""
    async with machine.world() as world:
        await world.serve("a", "b", **_UNCACHED)
        figures = await standard(world, break_it(machine.model("a"), machine.model("b")), span)
        return {**figures, "failed_rate": figures["failed"] / figures["requests"]}


async def one_killed(machine: Machine, span: Span) -> Figures:
    @asynccontextmanager
    async def killed(model: Model) -> AsyncIterator[None]:
        model.process.child.kill()
        await asyncio.to_thread(model.process.child.wait, 5)
        yield
        await asyncio.to_thread(machine.model, "a")

    return await of_two(machine, span, lambda a, _b: killed(a))


async def one_frozen(machine: Machine, span: Span) -> Figures:
    return await of_two(machine, span, lambda a, _b: a.stopped())


async def both_restarted(machine: Machine, span: Span) -> Figures:
    @asynccontextmanager
    async def one_after_the_other() -> AsyncIterator[None]:
        for name in ("a", "b"):
            process = machine.model(name).process
            process.signal(signal.SIGTERM)
            await asyncio.to_thread(process.child.wait, 10)
            await asyncio.to_thread(machine.model, name)
            await asyncio.sleep(2.0)  # the probe that finds it again; a rolling restart waits for readiness, too
        yield

    return await of_two(machine, span, lambda _a, _b: one_after_the_other())


async def one_fails(machine: Machine, span: Span) -> Figures:
    return await of_two(machine, span, lambda a, _b: a.showing(error_percent=100))


async def a_third_appears(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve("a", "b", **_UNCACHED)
        third = machine.model("d")

        async def appears() -> float:
            before = {name: machine.model(name).rows for name in ("a", "b", "d")}
            began = time.monotonic()
            await world.sql(
                "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)",
                world.versions["a"],
                f"127.0.0.1:{third.link.port}",
            )
            while time.monotonic() < began + FOUND_SECONDS:
                await asyncio.sleep(0.5)
                now = {name: machine.model(name).rows for name in before}
                rows = {name: now[name] - before[name] for name in before}
                if rows["d"] >= FAIR_SHARE * max(1, sum(rows.values())):
                    return time.monotonic() - began
                before = now
            return float("nan")

        seen = await measured(world, NOTHING, span, on_mended=appears)
        rows = await world.lost_and_doubled(seen.load)
        return {**seen.figures(), **rows, "fair_share_within_s": seen.after_mending}


async def retry_budget(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve("a", "b", **_UNCACHED)
        models = [machine.model(name) for name in ("a", "b")]
        for model in models:
            model.show(error_percent=100, unavailable=True)
        before = sum(model.rows for model in models)
        port, connect = caller_of(world)
        load = await run_load(port, VISITS, body_of, per_second=150, seconds=span.during, connect=connect)
        asked = sum(model.rows for model in models) - before
        return {"requests": len(load.answers), "backend_calls_per_request": asked / len(load.answers)}


async def callers_gone(machine: Machine, _span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve("a", **_UNCACHED)
        with machine.model("a").showing(latency_ms=_GONE_AFTER_MS):
            hung_up = await hang_up_on(world.port, 200, HUNG_UP / 200, shortest=0.02, longest=0.02)
            # The model still works at the last ones for so long. Then the gauges are a second old at most.
            ended = time.monotonic() + _GONE_AFTER_MS / 1_000
            while world.metric("requests_in_flight", "upstream_in_flight") and time.monotonic() < ended + 10:
                await asyncio.sleep(0.01)
            left = max(0.0, time.monotonic() - ended)
        port, connect = caller_of(world)
        load = await run_load(port, VISITS, body_of, per_second=100, seconds=2, connect=connect)
        rows = await world.lost_and_doubled(load)
        return {**rows, "hung_up": hung_up, "failed": len(load.failed), "tasks_left_s": left}


_OUT_OF_TIME = DEADLINE_MS + 30
ROWS = (
    Row(
        "CH-01",
        "only replica refuses connections",
        "cached answers go on, the rest gets 503 with Retry-After fast",
        (
            *at_most(refusal_p99_ms=50, status_504=0, status_other=0, without_retry_after=0, recover_s=1, rows_lost=0),
            *at_least(cached_answered=100),
        ),
        refused,
    ),
    Row(
        "CH-02",
        "only replica is frozen",
        "the deadline holds, then it is not asked before it says that it serves",
        at_most(max_ms=_OUT_OF_TIME, refusal_p99_ms_after_1s=50, recover_s=1, rows_lost=0),
        frozen,
    ),
    Row(
        "CH-03",
        "only replica slower than the deadline",
        "504 at the deadline",
        (*at_most(max_ms=_OUT_OF_TIME, recover_s=1), *at_least(status_504=1)),
        showing(latency_ms=400),
    ),
    Row(
        "CH-04",
        "only replica answers INTERNAL",
        "502 without its words, not cached",
        (*at_most(recover_s=1, leaks=0, bad_answers_served=0), *at_least(status_502=1)),
        showing(error_percent=100),
    ),
    Row(
        "CH-05",
        "only replica answers NaN",
        "502, not cached",
        (*at_most(recover_s=1, bad_answers_served=0, rows_lost=0), *at_least(status_502=1)),
        showing(nan_percent=100),
    ),
    Row(
        "CH-06",
        "only replica answers a wrong shape",
        "502, not cached",
        (*at_most(bad_answers_served=0, recover_s=1), *at_least(status_502=1)),
        showing(wrong_shape=True),
    ),
    Row(
        "CH-07",
        "only replica answers 5 MB",
        "502, memory stays",
        (*at_most(rss_growth_mb=32, recover_s=1), *at_least(status_502=1)),
        showing(past_links=True, big=True),
    ),
    Row("CH-08", "GOAWAY each second", "no caller notices", NOTHING_LOST, goodbyes),
    Row("CH-09", "one of two killed", "the other one takes it", NOTHING_LOST, one_killed),
    Row(
        "CH-10",
        "one of two frozen",
        "hedged, then ejected",
        at_most(failed=3, p99_ms=100, rows_lost=0, rows_dup=0),
        one_frozen,
    ),
    Row("CH-11", "both restarted, one after the other", "no caller notices", NOTHING_LOST, both_restarted),
    Row("CH-12", "one of two answers errors only", "ejected", at_most(failed_rate=0.005, rows_lost=0), one_fails),
    Row(
        "CH-13",
        "a third replica appears",
        "found without a restart",
        (*NOTHING_LOST, *at_most(fair_share_within_s=30)),
        a_third_appears,
    ),
    Row(
        "CH-14",
        "both answer UNAVAILABLE",
        "retries have a budget",
        at_most(backend_calls_per_request=1.2),
        retry_budget,
    ),
    Row(
        "CH-15",
        "1,000 callers hang up after 20 ms",
        "calls end with their deadlines",
        at_most(tasks_left_s=1, failed=0, rows_lost=0),
        callers_gone,
    ),
)
