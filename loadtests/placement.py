"""``make bench-placement``: packing versions into servers' memory, and copies by load, over simulated fleets and days.

No process and no clock: what is measured is the planner (``core.loading.packing``, ``core.loading.replica_count``).

Exit status 0: every figure is within its target; 1: not.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, exp, log, pi, sin
from random import Random
from statistics import median
from typing import Final, NamedTuple

from understudy.core.loading.packing import ADMITTED_RATIO, Member, Packing, Place, SizedVersion, pack
from understudy.core.loading.replica_count import TARGET_RATIO, ReplicaCount, VersionLoad, next_replica_count

VERSIONS, MEMBERS = 10_000, 200
GIB: Final = 2**30
MEMORY_BYTES = 64 * GIB
FILLED_RATIO = 0.8
"""Share of all memory that the versions take: the volume bound is that many members."""
MINUTE, DAY, SINE_SECONDS = 60, 86_400, 6 * 3_600
CONCURRENCY, SERVICE_SECONDS = 8, 0.02
LOAD_TICKS = 2
"""Ticks from a placement until the copy answers, in the simulation of a hot spot."""


class Figure(NamedTuple):
    """One figure beside its target."""

    point: str
    what: str
    found: str
    target: str
    is_good: bool


def main() -> int:
    """Measure, and return the exit status."""
    figures = [*_packed(Random(0)), *_noise(Random(0)), *_hot_spot(Random(0)), *_sine()]
    for figure in figures:
        mark = "ok " if figure.is_good else "BAD"
        print(f"{mark} {figure.point:>2}  {figure.what:58s} {figure.found:>24s}   {figure.target}")
    return 0 if all(figure.is_good for figure in figures) else 1


# -- point 12 ----------------------------------------------------------------------------------------------------------


def a_fleet(chance: Random) -> tuple[list[SizedVersion], list[Member]]:
    """Return versions of sizes over two orders of magnitude, and servers in three zones that bear them."""
    weights = [exp(chance.uniform(log(1), log(100))) for _ in range(VERSIONS)]
    scale = FILLED_RATIO * MEMBERS * MEMORY_BYTES * ADMITTED_RATIO / sum(weights)
    versions = [
        SizedVersion(number, f"model-{number // 2}", "cpu", int(weight * scale), rank=number % 4)
        for number, weight in enumerate(weights)
    ]
    return versions, [Member(f"server-{n:03d}", "cpu", MEMORY_BYTES, zone="abc"[n % 3]) for n in range(MEMBERS)]


def _packed(chance: Random) -> Iterator[Figure]:
    versions, members = a_fleet(chance)
    first, again = pack(versions, members, (), ()), []
    seconds = median(_timed(lambda: pack(versions, members, (), ())) for _ in range(5))
    yield Figure(
        "12", f"{VERSIONS:,} versions on {MEMBERS} servers", f"{seconds * 1e3:.0f} ms", "500 ms", seconds <= 0.5
    )
    seconds = median(
        _timed(lambda: again.append(pack(versions, members, first.placed, first.placed))) for _ in range(5)
    )
    yield Figure("12", "the same with all of them placed", f"{seconds * 1e3:.0f} ms", "500 ms", seconds <= 0.5)
    megabytes = _peak_bytes(lambda: pack(versions, members, (), ())) / 2**20
    yield Figure("12", "memory at its highest", f"{megabytes:.0f} MiB", "150 MiB", megabytes <= 150)
    used = len({name for _, name in first.placed})
    bound = ceil(sum(one.memory_bytes for one in versions) / (MEMORY_BYTES * ADMITTED_RATIO))
    yield Figure("12", "servers in use, by the volume bound", f"{used} / {bound}", "1.25", used <= 1.25 * bound)
    is_all = not first.unplaced and len(first.placed) == VERSIONS
    yield Figure("12", "versions without a place", str(len(first.unplaced)), "0", is_all)
    changed = len(again[0].placed ^ first.placed)
    yield Figure("12", "moves when nothing changes", str(changed), "0", changed == 0)
    yield from _lost_member(versions, members, first, chance)


def _lost_member(
    versions: Sequence[SizedVersion], members: Sequence[Member], first: Packing, chance: Random
) -> Iterator[Figure]:
    lost = chance.choice(sorted({name for _, name in first.placed}))
    had = sum(name == lost for _, name in first.placed)
    left = [member for member in members if member.name != lost]
    placed, ticks = first, 0
    while ticks == 0 or placed.unplaced:
        placed, ticks = pack(versions, left, placed.placed, placed.placed), ticks + 1
    new = len(placed.placed - first.placed)
    yield Figure("12", f"ticks until the {had} versions of a lost server have a place", str(ticks), "2", ticks <= 2)
    yield Figure("12", "copies that this placed anew", str(new), f"{had} + 5 %", new <= had * 1.05)


def _noise(chance: Random) -> Iterator[Figure]:
    """A day of load that wavers by 1 %: copies of 500 versions, each minute."""
    loads = [chance.uniform(10, 2_000) for _ in range(500)]
    counts = [_settled(load) for load in loads]
    versions = [SizedVersion(n, f"model-{n}", "cpu", GIB, one.replicas) for n, one in enumerate(counts)]
    members = [Member(f"server-{n:03d}", "cpu", MEMORY_BYTES) for n in range(MEMBERS)]
    placed = pack(versions, members, (), ()).placed
    changed = 0
    for minute in range(DAY // MINUTE):
        for number, load in enumerate(loads):
            counts[number] = _counted(counts[number], load * chance.uniform(0.99, 1.01), minute * MINUTE)
        wanted = [replace(one, replicas=count.replicas) for one, count in zip(versions, counts, strict=True)]
        if wanted != versions:
            versions = wanted
            after = pack(versions, members, placed, placed).placed
            changed += len(after ^ placed)
            placed = after
    yield Figure("12", "moves in a day of load that wavers by 1 %", str(changed), "5", changed <= 5)


# -- point 13 ----------------------------------------------------------------------------------------------------------


def _hot_spot(chance: Random) -> Iterator[Figure]:
    """One of 50 versions gets 20 times its calls for an hour."""
    usual = 0.5 * CONCURRENCY * TARGET_RATIO / SERVICE_SECONDS
    members = [Member(f"server-{n:02d}", "cpu", MEMORY_BYTES, zone="abc"[n % 3]) for n in range(20)]
    versions = [SizedVersion(n, f"model-{n}", "cpu", GIB * chance.randint(1, 8)) for n in range(50)]
    placed, available = pack(versions, members, (), ()).placed, pack(versions, members, (), ()).placed
    usual_p99 = _p99(usual, 1)
    count, due, reached, back, fell, flaps = ReplicaCount(), dict[Place, int](), -1, -1, -1, 0
    for tick in range(120):
        load = usual * 20 if tick < 60 else usual
        before = count.replicas
        count = _counted(count, load, tick * MINUTE, limits=(1, len(members)))
        flaps += count.replicas != before
        versions[0] = replace(versions[0], replicas=count.replicas)
        placed = pack(versions, members, placed, available).placed
        due = {place: due.get(place, tick + LOAD_TICKS) for place in placed - available}
        available = frozenset(place for place in placed if due.get(place, tick) <= tick)
        copies = sum(version_id == 0 for version_id, _ in available)
        if reached < 0 and copies == count.replicas:
            reached = tick
        if back < 0 and tick and _p99(load, copies) <= 1.3 * usual_p99:
            back = tick
        if fell < 0 and tick >= 60 and count.replicas < before:
            fell = tick - 60
    yield Figure(
        "13",
        f"ticks until all {ceil(10)} copies answer, {LOAD_TICKS} of them their load",
        str(reached),
        str(2 + LOAD_TICKS),
        0 <= reached <= 2 + LOAD_TICKS,
    )
    yield Figure(
        "13",
        "ticks until the 99th percentile is within 1.3 times",
        str(back),
        str(2 + LOAD_TICKS),
        0 < back <= 2 + LOAD_TICKS,
    )
    yield Figure("13", "minutes until copies go once calls have fallen", str(fell), "15 or more", fell >= 15)
    yield Figure("13", "changes of the number of copies in two hours", str(flaps), "2", flaps == 2)


def _sine() -> Iterator[Figure]:
    """Six hours of load that rises and falls once an hour and a half, wavering besides."""
    chance, usual = Random(1), CONCURRENCY * TARGET_RATIO / SERVICE_SECONDS
    count, changes, turns, rising = ReplicaCount(4), 0, 0, True
    for minute in range(SINE_SECONDS // MINUTE):
        load = usual * (3 + 2 * sin(2 * pi * minute / 90)) * chance.uniform(0.97, 1.03)
        after = _counted(count, load, minute * MINUTE, limits=(1, 20))
        if after.replicas != count.replicas:
            changes += 1
            turns += (after.replicas > count.replicas) != rising
            rising = after.replicas > count.replicas
        count = after
    yield Figure("13", "turns from more to fewer copies or back, four waves in six hours", str(turns), "8", turns <= 8)


def _settled(load: float) -> ReplicaCount:
    return _counted(ReplicaCount(), load, 0.0)


def _counted(before: ReplicaCount, load: float, now: float, limits: tuple[int, int] = (1, 50)) -> ReplicaCount:
    return next_replica_count(before, VersionLoad(load, SERVICE_SECONDS), now, concurrency=CONCURRENCY, limits=limits)


def _p99(calls_per_second: float, copies: int) -> float:
    """Return the 99th percentile of a call's time at ``copies`` servers, by Erlang's C formula; infinity beyond them.

    Source: Erlang (1917), M/M/c: P(wait > t) = C · exp(-(c·mu - lambda)·t).
    """
    slots, offered = copies * CONCURRENCY, calls_per_second * SERVICE_SECONDS
    if offered >= slots:
        return float("inf")
    blocked = 1.0
    for number in range(1, slots + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waiting = blocked / (1 - offered / slots * (1 - blocked))
    wait = 0.0 if waiting <= 0.01 else log(waiting / 0.01) * SERVICE_SECONDS / (slots - offered)
    return SERVICE_SECONDS * log(100) + wait


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    began_at = time.process_time()
    work()
    return time.process_time() - began_at


def _peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    sys.exit(main())
