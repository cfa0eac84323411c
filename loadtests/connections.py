"""P5: more connections than the server has work for, and hardly any load at all."""

from statistics import median

from loadtests.checkouts import Checkout, Sides
from loadtests.pairs import Pairs
from loadtests.result import say
from loadtests.rounds import Contender, Ledger, details, on_both, take_turns
from loadtests.scene import PROMPT, Proxy, Scene
from loadtests.section import Compared, Effort, Findings, Section, Target
from loadtests.steady import percentiles_of, steady_load
from loadtests.wrk import FULL, Answered

FEW, MANY = 16, 512
PER_SECOND = 200
PROCESSES = 4
"""Processes of each side for the low rate in a comparison. Where its memory happens to lie makes one process of a
source 4 % slower than another one of the same source, so that pairs of two processes compare these and not the sources.
"""
_WARM_UP_PER_SECOND = 1_000


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure throughput and tail with few and with many connections, then the median at a low rate."""
    proxy = scene.proxy()
    ledger = Ledger(scene, [proxy])
    few, many = (
        Contender(
            f"{count} connections",
            proxy.url(),
            proxy.pid,
            settle=proxy.await_log,
            what=FULL._replace(connections=count),
        )
        for count in (FEW, MANY)
    )
    take_turns(scene, [few, many], effort)

    say(f"  {PER_SECOND} requests a second, in turns with nginx A/B")
    ours: list[float] = []
    theirs: list[float] = []
    answers = failed = 0
    for _ in range(effort.rounds):
        load = steady_load(proxy.port, PROMPT, PER_SECOND, effort.seconds)
        answers, failed = answers + len(load.answers), failed + len(load.failed)
        ours.append(percentiles_of(load).p50_ms)
        beside = steady_load(scene.nginx.ports[0], PROMPT, PER_SECOND, effort.seconds)
        theirs.append(percentiles_of(beside).p50_ms)
    proxy.await_log()
    runs = [one.answered for one in many.rounds]
    return Findings(
        targets=[
            Target(
                "P5",
                f"throughput, {MANY} ÷ {FEW} connections",
                many.per_second,
                "/s",
                0.9,
                few.per_second,
                at_least=True,
            ),
            Target(
                "P5",
                f"p99 at {MANY} connections ÷ connections over throughput",
                median(one.p99_ms for one in runs),
                "ms",
                1.5,
                median(queue_ms(one, MANY) for one in runs),
            ),
            Target("P5", f"p50 at {PER_SECOND} a second ÷ nginx A/B", median(ours), "ms", 2.0, median(theirs)),
        ],
        checks=ledger.checks([few, many], answers, failed),
        detail={**details([few, many]), "p50_ms": {"understudy": ours, "nginx A/B": theirs}},
    )


def queue_ms(run: Answered, connections: int) -> float:
    """Return how long a request waits when all ``connections`` wait in one queue: Little's law."""
    return connections / run.per_second * 1000


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure both checkouts' proxies with few and with many connections, and at a low rate."""
    names = ["proxy", *(f"steady{number}" for number in range(1, PROCESSES))]
    pairs = [_both(scene, checkouts, name) for name in names]
    proxies = [proxy for pair in pairs for proxy in pair]
    ledger = Ledger(scene, proxies)
    few, many = (
        on_both(f"{count} connections", pairs[0], what=FULL._replace(connections=count)) for count in (FEW, MANY)
    )
    contenders = [*few, *many]
    take_turns(scene, contenders, effort)

    say(f"  {PER_SECOND} requests a second, in turns, {PROCESSES} processes each")
    p50_ms: Sides[list[float]] = Sides([], [])
    loads = [steady_load(proxy.port, PROMPT, _WARM_UP_PER_SECOND, effort.seconds) for proxy in proxies]
    for number in range(effort.rounds):
        for proxy, rounds in zip(pairs[number % PROCESSES], p50_ms, strict=True):
            loads.append(steady_load(proxy.port, PROMPT, PER_SECOND, effort.seconds))
            rounds.append(percentiles_of(loads[-1]).p50_ms)
    for proxy in proxies:
        proxy.await_log()
    answers, failed = sum(len(load.answers) for load in loads), sum(len(load.failed) for load in loads)
    p99_ms = many.map(lambda one: [turn.answered.p99_ms for turn in one.rounds])
    return Compared(
        [
            *(
                Pairs("P5", f"time ÷ answers, {count} connections", "µs", both.map(_wall_us))
                for count, both in ((FEW, few), (MANY, many))
            ),
            Pairs("P5", f"p99 at {MANY} connections", "ms", p99_ms),
            Pairs("P5", f"p50 at {PER_SECOND} a second", "ms", p50_ms),
        ],
        ledger.checks(contenders, answers, failed),
    )


def _both(scene: Scene, checkouts: Sides[Checkout], name: str) -> Sides[Proxy]:
    return checkouts.map(lambda one: scene.proxy(name, checkout=one))


def _wall_us(contender: Contender) -> list[float]:
    """Return the inverse of the throughput in each round, so that less is better."""
    return [1e6 / turn.answered.per_second for turn in contender.rounds]


SECTION = Section("P5", "16 to 512 connections", run, compare)
