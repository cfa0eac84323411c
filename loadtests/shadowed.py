"""P2: what a shadow of every call costs, and what the champion's callers notice of it.

The shadow's model server has a machine of its own elsewhere. Here it would answer on the callers' core just when they
read the champion's answer, and they would take its work for latency: so it gives way to them.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from loadtests.checkouts import Checkout, Sides
from loadtests.machine import giving_way
from loadtests.pairs import Pairs
from loadtests.result import say
from loadtests.rounds import Contender, Ledger, cpu_pairs, details, on_both, take_turns
from loadtests.scene import BENCH, Scene
from loadtests.section import Compared, Effort, Findings, Section, Target
from loadtests.steady import Percentiles, percentiles_of, steady_load

PER_SECOND = 400
_STEADY_SHARE = 0.75
"""Seconds of a steady round for one second of a round under load."""


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure the cost in turns with nginx' mirror, then the champion's latency at a steady rate."""
    proxy = scene.proxy()
    ledger = Ledger(scene, [proxy])
    alone = Contender("understudy", proxy.url(), proxy.pid, lambda: scene.set_shadow(None), proxy.await_log)
    shadowed = Contender(
        "understudy, shadow of every call", proxy.url(), proxy.pid, lambda: scene.set_shadow("shadow"), proxy.await_log
    )
    mirror = Contender("nginx A/B + mirror", scene.nginx_url(1), scene.nginx.pid)
    take_turns(scene, [alone, shadowed, mirror], effort)

    say(f"  the champion at {PER_SECOND} requests a second: without a shadow, with one, with one that hangs")
    modes: dict[str | None, list[Percentiles]] = {None: [], "shadow": [], "hanging": []}
    answers = failed = 0
    with _shadows_giving_way(scene):
        for _ in range(effort.rounds):
            for label, rounds in modes.items():
                scene.set_shadow(label)
                load = steady_load(proxy.port, BENCH, PER_SECOND, effort.seconds * _STEADY_SHARE)
                answers, failed = answers + len(load.answers), failed + len(load.failed)
                rounds.append(percentiles_of(load))
    scene.set_shadow(None)
    proxy.await_log()
    without, beside, hanging = (_medians(rounds) for rounds in modes.values())
    return Findings(
        targets=[
            Target("P2", "CPU with shadow ÷ nginx A/B + mirror", shadowed.server_us, "µs", 0.6, mirror.server_us),
            Target("P2", "CPU with shadow ÷ without", shadowed.server_us, "µs", 1.25, alone.server_us),
            Target("P2", "champion p50, shadow ÷ none", beside.p50_ms, "ms", 1.1, without.p50_ms),
            Target("P2", "champion p99, shadow ÷ none", beside.p99_ms, "ms", 1.2, without.p99_ms),
            Target("P2", "champion p50, shadow hangs ÷ none", hanging.p50_ms, "ms", 1.1, without.p50_ms),
            Target("P2", "champion p99, shadow hangs ÷ none", hanging.p99_ms, "ms", 1.2, without.p99_ms),
        ],
        checks=ledger.checks([alone, shadowed, mirror], answers, failed),
        notes=[
            f"latencies at {PER_SECOND} requests a second; the target names 4,000, which one client here cannot send"
        ],
        detail={
            **details([alone, shadowed, mirror]),
            "latency_ms": {label or "none": [one._asdict() for one in rounds] for label, rounds in modes.items()},
        },
    )


def _medians(rounds: Sequence[Percentiles]) -> Percentiles:
    return Percentiles(median(one.p50_ms for one in rounds), median(one.p99_ms for one in rounds))


@contextmanager
def _shadows_giving_way(scene: Scene) -> Iterator[None]:
    with ExitStack() as entered:
        for label in ("shadow", "hanging"):
            entered.enter_context(giving_way(scene.stack.processes[f"stub-{label}"].pid))
        yield


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure both checkouts' proxies with a shadow of every call, then their callers' latency beside one."""
    proxies = checkouts.map(lambda one: scene.proxy(checkout=one))
    ledger = Ledger(scene, proxies)
    contenders = on_both("with a shadow", proxies)
    scene.set_shadow("shadow")
    take_turns(scene, contenders, effort)

    pairs = [cpu_pairs("P2", "CPU with a shadow", contenders)]
    answers = failed = 0
    for label, text in (("shadow", "shadow"), ("hanging", "shadow hangs")):
        say(f"  the champion at {PER_SECOND} requests a second: {text}")
        scene.set_shadow(label)
        found: Sides[list[Percentiles]] = Sides([], [])
        with _shadows_giving_way(scene):
            for _ in range(effort.rounds):
                for proxy, rounds in zip(proxies, found, strict=True):
                    load = steady_load(proxy.port, BENCH, PER_SECOND, effort.seconds * _STEADY_SHARE)
                    answers, failed = answers + len(load.answers), failed + len(load.failed)
                    rounds.append(percentiles_of(load))
        pairs += [
            Pairs("P2", f"champion p50, {text}", "ms", found.map(lambda rounds: [one.p50_ms for one in rounds])),
            Pairs("P2", f"champion p99, {text}", "ms", found.map(lambda rounds: [one.p99_ms for one in rounds])),
        ]
    scene.set_shadow(None)
    for proxy in proxies:
        proxy.await_log()
    return Compared(pairs, ledger.checks(contenders, answers, failed))


SECTION = Section("P2", "a shadow of every call", run, compare)
