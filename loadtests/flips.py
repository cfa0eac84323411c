"""P6: how soon after its commit a change of the policy is what every worker acts on, and whom it fails."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import asyncpg
from e2e.flips import FLIP, lags_seconds
from e2e.load import Load, run_load

from loadtests.checkouts import Checkout, Sides
from loadtests.pairs import Pairs
from loadtests.result import say
from loadtests.scene import BENCH, Proxy, Scene, path_of
from loadtests.section import Check, Compared, Effort, Findings, Section, Target
from loadtests.steady import body_of
from loadtests.wrk import Answered, run_wrk

FLIPS, QUICK_FLIPS = 200, 60
WORKERS = 2
_PROBES_PER_SECOND = 500
_PAUSE_SECONDS = 0.05
_LEAD_SECONDS = 1.0
_CROWD_SECONDS = 3
_MET_SHARE = 0.8


class Flipped(NamedTuple):
    """Sorted lags in milliseconds, and the probe's answers."""

    lags_ms: list[float]
    load: Load

    def percentile(self, percent: int) -> float:
        """Return the lag that so many percent of the flips do not exceed."""
        return self.lags_ms[max(0, -(-len(self.lags_ms) * percent // 100) - 1)]


def run(scene: Scene, effort: Effort) -> Findings:
    """Flip while hardly anybody asks, and again while everybody does."""
    proxy = scene.proxy("two-workers", workers=WORKERS)
    flips = QUICK_FLIPS if effort.quick else FLIPS
    say(f"  {flips} flips over {WORKERS} workers, idle and at full load")
    idle = asyncio.run(_flip(scene, proxy, flips))
    with _crowd(proxy) as crowd:
        busy = asyncio.run(_flip(scene, proxy, flips))
    proxy.await_log()
    failed = [*idle.load.failed, *busy.load.failed]
    pushed = sum(run.not_200 + run.broken for run in crowd)
    return Findings(
        targets=[
            Target("P6", "commit to last stale request, idle: p50", idle.percentile(50), "ms", 1),
            Target("P6", "commit to last stale request, idle: p99", idle.percentile(99), "ms", 10),
            Target("P6", "commit to last stale request, full load: p99", busy.percentile(99), "ms", 50),
        ],
        checks=[
            Check(
                f"nobody failed in {2 * flips} flips",
                not failed and not pushed,
                f"{len(failed) + pushed:,} of {len(idle.load.answers) + len(busy.load.answers):,} and the crowd",
            ),
            _was_looked_at("idle", idle, flips),
            _was_looked_at("full load", busy, flips),
            Check("the crowd was there", bool(crowd), f"{crowd[0].per_second:,.0f} a second" if crowd else "no"),
        ],
        notes=[
            f"{_PROBES_PER_SECOND} probes a second: most lags under {1000 / _PROBES_PER_SECOND:g} ms are seen as none",
            f"full load: p50 {busy.percentile(50):.2f} ms, worst {busy.lags_ms[-1]:.1f}; idle: {idle.lags_ms[-1]:.1f}",
        ],
        detail={"idle_ms": _rounded(idle.lags_ms), "full_load_ms": _rounded(busy.lags_ms)},
    )


@contextmanager
def _crowd(proxy: Proxy) -> Iterator[list[Answered]]:
    """Keep the proxy at its limit, and say in the end what the crowd saw."""
    runs: list[Answered] = []
    is_over = threading.Event()

    def push() -> None:
        while not is_over.is_set():
            runs.append(run_wrk(proxy.url(), _CROWD_SECONDS))

    pushing = threading.Thread(target=push)
    pushing.start()
    try:
        yield runs
    finally:
        is_over.set()
        pushing.join()


async def _flip(scene: Scene, proxy: Proxy, flips: int) -> Flipped:
    """Flip between two versions that answer alike, as fast as a careless person could, and probe meanwhile."""
    versions = scene.versions[BENCH]
    load = Load()
    asking = asyncio.create_task(
        run_load(proxy.port, path_of(BENCH), body_of, per_second=_PROBES_PER_SECOND, seconds=600, load=load)
    )
    await asyncio.sleep(_LEAD_SECONDS)
    committed_at: dict[int, float] = {}
    connection = await asyncpg.connect(scene.postgres.url)
    try:
        for _ in range(flips):
            generation = await connection.fetchval(FLIP, versions["champion"], versions["shadow"], BENCH)
            committed_at[generation] = time.monotonic()
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        load.is_over = True
        with suppress(asyncpg.PostgresError, OSError):
            await connection.close()
        await asking
    return Flipped([lag * 1000 for lag in lags_seconds(load.answers, committed_at)], load)


def _was_looked_at(when: str, flipped: Flipped, flips: int) -> Check:
    """Hold the probe to account: a policy that answered nobody before the next one came was not looked at."""
    met = _met(flipped)
    return Check(f"the probe met nearly every policy, {when}", met >= _MET_SHARE * flips, f"{met} of {flips + 1}")


def _met(flipped: Flipped) -> int:
    """Return how many policies answered the probe."""
    return len({answer.headers.get(b"x-policy-generation") for answer in flipped.load.answers})


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Flip with the workers of both checkouts in turns, idle and at full load."""
    proxies = checkouts.map(lambda one: scene.proxy("two-workers", checkout=one, workers=WORKERS))
    idle: Sides[list[Flipped]] = Sides([], [])
    busy: Sides[list[Flipped]] = Sides([], [])
    pushed = 0
    for number in range(1, effort.rounds + 1):
        say(f"  pair {number} of {effort.rounds}: {QUICK_FLIPS} flips, idle and at full load")
        for proxy, found in zip(proxies, idle, strict=True):
            found.append(asyncio.run(_flip(scene, proxy, QUICK_FLIPS)))
        for proxy, found in zip(proxies, busy, strict=True):
            with _crowd(proxy) as crowd:
                found.append(asyncio.run(_flip(scene, proxy, QUICK_FLIPS)))
            pushed += sum(run.not_200 + run.broken for run in crowd)
            proxy.await_log()
    every = [flipped for both in (idle, busy) for side in both for flipped in side]
    failed = sum(len(one.load.failed) for one in every) + pushed
    seen = min(_met(one) for one in every)
    return Compared(
        [
            Pairs("P6", "commit to last stale request, idle: p50", "ms", idle.map(lambda found: _seen_ms(found, 50))),
            Pairs("P6", "commit to last stale request, idle: p99", "ms", idle.map(lambda found: _seen_ms(found, 99))),
            Pairs("P6", "commit to last stale, full load: p99", "ms", busy.map(lambda found: _seen_ms(found, 99))),
        ],
        [
            Check("no request failed", failed == 0, f"{failed:,} failed"),
            Check("the probe met nearly every policy", seen >= _MET_SHARE * QUICK_FLIPS, f"at least {seen}"),
        ],
    )


def _seen_ms(found: Sequence[Flipped], percent: int) -> list[float]:
    """Return a percentile of the lags of each, but at least the time between two probes, which see no shorter one."""
    return [max(one.percentile(percent), 1000 / _PROBES_PER_SECOND) for one in found]


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]


SECTION = Section("P6", "a change of the policy", run, compare)
