"""``make bench-placement``: versions packed into servers' memory, and replicas by load, over simulated fleets and days.

No process and no clock: what is measured is what the leading monitor decides (``core.loading.placement``,
``core.loading.replicas``).

Exit status 0: every figure is within its target; 1: not.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, inf, log, pi, sin
from random import Random
from statistics import median
from typing import Final, NamedTuple

from understudy.core.loading.placement import Packing, PlacementFacts, pack
from understudy.core.loading.replicas import (
    BUSY_RATIO,
    FALL_SECONDS,
    SPAN_SECONDS,
    LoadSeen,
    Replicas,
    SpanLoad,
    replicas_needed,
)
from understudy.core.loading.wanted import GroupMember, ManagedVersion, Place, Why

VERSIONS: Final = 10_000
SERVERS: Final = 200
SEEDS: Final = (0, 1, 2, 3, 4)
GIB: Final = 2**30
ROOM_BYTES: Final = int(64 * GIB * 0.9)
FILLED_RATIO: Final = 0.8
"""Share of all room that the versions take: the volume bound is that many servers."""
SIGMA: Final = 1.0
"""Of the logarithm of sizes: the middle 95 % lie between a seventh of the median and seven times it."""
DAY_SECONDS, SINE_SECONDS = 86_400, 6 * 3_600
CONCURRENCY, SERVICE_SECONDS = 8, 0.02
ONE_SERVER: Final = CONCURRENCY * BUSY_RATIO / SERVICE_SECONDS
"""Calls a second that are planned for one server."""
LOAD_TICKS: Final = 2
"""Ticks from a placement until the replica answers, in the simulation of a hot spot."""
RANKS: Final = tuple(Why)
FEW: Final = 1.05
"""So many placements for each version of a lost server, at the most."""


class Figure(NamedTuple):
    """One figure beside its target."""

    point: str
    what: str
    found: str
    target: str
    is_good: bool


def main() -> int:
    """Measure, and return the exit status."""
    figures = [figure for seed in SEEDS for figure in _packed(seed)]
    figures += [*_noise(Random(0)), *_hot_spot(), *_sine()]
    for figure in figures:
        mark = "ok " if figure.is_good else "BAD"
        print(f"{mark} {figure.point:>2}  {figure.what:66s} {figure.found:>16s}   {figure.target}")
    return 0 if all(figure.is_good for figure in figures) else 1


# -- point 12 ----------------------------------------------------------------------------------------------------------


class Fleet(NamedTuple):
    """Versions, servers that bear them, and what the versions take."""

    versions: Sequence[ManagedVersion]
    servers: Sequence[GroupMember]
    sizes: Mapping[Place, int]

    def decided(self, placed: frozenset[Place] = frozenset(), lost: frozenset[str] = frozenset()) -> Packing:
        """Return the decision of one tick, where all that was placed is available but at lost servers."""
        available = {place for place in placed if place[1] not in lost}
        return pack(self.versions, self.servers, PlacementFacts(placed, available, (), self.sizes, lost))


def a_fleet(chance: Random) -> Fleet:
    """Return versions of log-normal sizes that take ``FILLED_RATIO`` of the room of the servers."""
    weights = [chance.lognormvariate(0.0, SIGMA) for _ in range(VERSIONS)]
    scale = FILLED_RATIO * SERVERS * ROOM_BYTES / sum(weights)
    versions = [
        ManagedVersion(
            number,
            "cpu",
            frozenset({RANKS[number % len(RANKS)]}),
            model_name=f"model-{number // 2}",
            replicas=Replicas(1, 1),
        )
        for number in range(VERSIONS)
    ]
    servers = [GroupMember(f"server-{number:03d}", "cpu", room_bytes=ROOM_BYTES) for number in range(SERVERS)]
    return Fleet(versions, servers, {(number, "gone"): int(weight * scale) for number, weight in enumerate(weights)})


def _packed(seed: int) -> Iterator[Figure]:
    fleet = a_fleet(Random(seed))
    first, again = fleet.decided(), []
    seconds = median(_timed(fleet.decided) for _ in range(5))
    what = f"seed {seed}: {VERSIONS:,} versions on {SERVERS} servers"
    yield Figure("12", what, f"{seconds * 1e3:.0f} ms", "500 ms", seconds <= 0.5)
    seconds = median(_timed(lambda: again.append(fleet.decided(first.placed))) for _ in range(5))
    yield Figure("12", "the same with all of them placed", f"{seconds * 1e3:.0f} ms", "500 ms", seconds <= 0.5)
    mebibytes = _peak_bytes(fleet.decided) / 2**20
    yield Figure("12", "memory at its highest", f"{mebibytes:.0f} MiB", "150 MiB", mebibytes <= 150)
    used, bound = len({name for _, name in first.placed}), ceil(sum(fleet.sizes.values()) / ROOM_BYTES)
    yield Figure("12", "servers in use, by the volume bound", f"{used} / {bound}", "1.25", used <= 1.25 * bound)
    is_all = not first.unplaced and len(first.placed) == VERSIONS
    yield Figure("12", "versions without a place", str(len(first.unplaced)), "0", is_all)
    changed = len(again[0].placed ^ first.placed)
    yield Figure("12", "moves when nothing changes", str(changed), "0", changed == 0)
    yield from _lost_server(fleet, first, Random(seed))


def _lost_server(fleet: Fleet, first: Packing, chance: Random) -> Iterator[Figure]:
    lost = frozenset({chance.choice(sorted({name for _, name in first.placed}))})
    had = {number for number, name in first.placed if name in lost}
    found, ticks = first, 0
    while ticks == 0 or (found.unplaced and ticks < 10):
        found, ticks = fleet.decided(found.placed, lost), ticks + 1
    again = {number for number, name in found.placed if name not in lost} >= had
    new = len(found.placed - first.placed)
    what = f"ticks until the {len(had)} versions of a lost server have a place"
    yield Figure("12", what, str(ticks), "2", again and ticks <= 2)
    yield Figure("12", "replicas that this placed anew", str(new), f"{len(had)} + 5 %", new <= len(had) * FEW)


def _noise(chance: Random) -> Iterator[Figure]:
    """A day of load that wavers by 1 %: replicas of 200 versions, each minute."""
    limits, numbers = Replicas(1, 50), range(200)
    loads = [ONE_SERVER * chance.uniform(0.1, 5) for _ in numbers]
    counts = [replicas_needed(limits, 1, _steady(load), concurrency=CONCURRENCY, may_fall=True) for load in loads]
    versions = [
        ManagedVersion(n, "cpu", frozenset({Why.CHAMPION}), model_name=f"model-{n}", replicas=limits) for n in numbers
    ]
    servers = [GroupMember(f"server-{n:03d}", "cpu", room_bytes=ROOM_BYTES) for n in range(SERVERS)]
    fleet = Fleet(versions, servers, {(n, "gone"): GIB for n in numbers})
    placed = _of_counts(fleet, counts, frozenset())
    spans: list[list[SpanLoad]] = [[] for _ in numbers]
    changed = 0
    for _ in range(DAY_SECONDS // SPAN_SECONDS):
        before = list(counts)
        for number, load in enumerate(loads):
            spans[number] = [*spans[number], SpanLoad(load * chance.uniform(0.99, 1.01), SERVICE_SECONDS)][-15:]
            seen = LoadSeen(spans[number][-1], spans[number])
            counts[number] = replicas_needed(
                limits, counts[number], seen, concurrency=CONCURRENCY, may_fall=len(spans[number]) == 15
            )
        if counts != before:
            after = _of_counts(fleet, counts, placed)
            changed += len(after ^ placed)
            placed = after
    yield Figure("12", "moves in a day of load that wavers by 1 %", str(changed), "5", changed <= 5)


def _of_counts(fleet: Fleet, counts: Sequence[int], placed: frozenset[Place]) -> frozenset[Place]:
    facts = PlacementFacts(placed, placed, (), fleet.sizes)
    return pack(fleet.versions, fleet.servers, facts, dict(enumerate(counts))).placed


def _steady(load: float) -> LoadSeen:
    return LoadSeen(SpanLoad(load, SERVICE_SECONDS), [SpanLoad(load, SERVICE_SECONDS)])


# -- point 13 ----------------------------------------------------------------------------------------------------------


class _Counter:
    """A version's number of replicas, minute by minute, as ``loading.placement.replica_watch`` counts."""

    def __init__(self, limits: Replicas, replicas: int = 1) -> None:
        self.replicas = replicas
        self._limits = limits
        self._spans = [SpanLoad(0.0, SERVICE_SECONDS)] * (FALL_SECONDS // SPAN_SECONDS)
        self._fell = inf
        """Minutes since one went."""

    def next(self, load: float) -> int:
        """Count by one more minute."""
        self._spans = [*self._spans[1:], SpanLoad(load, SERVICE_SECONDS)]
        may_fall = self._fell * SPAN_SECONDS >= FALL_SECONDS
        seen = LoadSeen(self._spans[-1], self._spans)
        before = self.replicas
        self.replicas = replicas_needed(self._limits, before, seen, concurrency=CONCURRENCY, may_fall=may_fall)
        self._fell = 0 if self.replicas < before else self._fell + 1
        return self.replicas


def _hot_spot() -> Iterator[Figure]:
    """One of 50 versions gets 20 times its calls for an hour, and then as many as before."""
    usual, hour = 0.5 * ONE_SERVER, 60
    servers = [GroupMember(f"server-{n:02d}", "cpu", room_bytes=ROOM_BYTES) for n in range(20)]
    limits = [Replicas(1, 20) if n == 0 else Replicas(1, 1) for n in range(50)]
    versions = [
        ManagedVersion(n, "cpu", frozenset({Why.CHAMPION}), model_name=f"model-{n}", replicas=limits[n])
        for n in range(50)
    ]
    sizes = {(n, "gone"): GIB * (1 + n % 8) for n in range(50)}
    placed = available = pack(versions, servers, PlacementFacts(sizes=sizes)).placed
    usual_p99 = _p99(usual, 1)
    counter, due, turns = _Counter(limits[0]), dict[Place, int](), 0
    reached = back = fell = -1
    for tick in range(6 * hour):
        load, before = (usual * 20 if tick < hour else usual), counter.replicas
        count = counter.next(load)
        turns += count > before
        placed = pack(versions, servers, PlacementFacts(placed, available, (), sizes), {0: count}).placed
        due = {place: due.get(place, tick + LOAD_TICKS) for place in placed - available}
        available = frozenset(place for place in placed if due.get(place, tick) <= tick)
        replicas = sum(number == 0 for number, _ in available)
        if reached < 0 and replicas == count:
            reached = tick
        if back < 0 and _p99(load, replicas) <= 1.3 * usual_p99:
            back = tick
        if fell < 0 and tick >= hour and count < before:
            fell = tick - hour + 1
    most = 2 + LOAD_TICKS
    what = f"ticks until all replicas answer, {LOAD_TICKS} of them their load"
    yield Figure("13", what, str(reached), str(most), 0 <= reached <= most)
    yield Figure("13", "ticks until the 99th percentile is within 1.3 times", str(back), str(most), 0 <= back <= most)
    yield Figure(
        "13", "minutes until the first replica goes once calls have fallen", str(fell), "15 or more", fell >= 15
    )
    yield Figure("13", "times that replicas were added, of a rise and a fall in six hours", str(turns), "1", turns == 1)
    yield Figure("13", "replicas at the end", str(counter.replicas), "1", counter.replicas == 1)


def _sine() -> Iterator[Figure]:
    """Six hours of load that rises and falls once an hour and a half, wavering besides."""
    chance, counter, turns, is_rising = Random(1), _Counter(Replicas(1, 20), 4), 0, True
    for minute in range(SINE_SECONDS // SPAN_SECONDS):
        before = counter.replicas
        load = ONE_SERVER * (3 + 2 * sin(2 * pi * minute / 90)) * chance.uniform(0.97, 1.03)
        after = counter.next(load)
        if after != before:
            turns += (after > before) != is_rising
            is_rising = after > before
    what = "turns from more to fewer replicas or back, four waves in six hours"
    yield Figure("13", what, str(turns), "8", turns <= 8)


def _p99(calls_per_second: float, replicas: int) -> float:
    """Return the 99th percentile of a call's time at ``replicas`` servers, by Erlang's C formula; infinity beyond them.

    Source: Erlang (1917), M/M/c: P(wait > t) = C · exp(-(c·mu - lambda)·t).
    """
    slots, offered = replicas * CONCURRENCY, calls_per_second * SERVICE_SECONDS
    if offered >= slots:
        return inf
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
