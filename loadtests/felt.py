"""P12: what a caller feels: the latency that the proxy adds to a call of the model server, at three rates.

The same requests are due at the same times on three ways to one model server, which answers at once: a gRPC call to
it, the same call through nginx' ``grpc_pass``, and a predict call of the proxy. What the first needs is the model
server's own and is taken off the others, percentile by percentile and round by round.

Callers and model servers have machines of their own elsewhere; here they share a core with Postgres, which gives way.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from loadtests.checkouts import Checkout, Sides
from loadtests.machine import giving_way
from loadtests.open_loop import (
    Caller,
    GrpcCaller,
    Heard,
    HttpCaller,
    call_on_time,
    due_times,
    percentiles_of,
)
from loadtests.pairs import Pairs
from loadtests.result import say
from loadtests.rounds import Ledger
from loadtests.scene import LEAST, Proxy, Scene, path_of
from loadtests.section import Check, Compared, Effort, Findings, Section, Target
from loadtests.steady import Percentiles, body_of

RATES = (200, 1_000, 4_000)
"""Requests a second."""
TIMES_NGINX = 1.5
ENOUGH = Percentiles(0.5, 2.0)
"""What may be added however little nginx adds."""
DIRECT, NGINX, OURS = "gRPC to the model server", "nginx grpc_pass", "understudy"
_WARM_UP_PER_SECOND, _WARM_UP_SECONDS = 1_000, 1

Rounds = dict[tuple[int, str], list[Heard]]
"""By rate and way."""


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure the three ways in turns, at each rate."""
    proxy = scene.proxy()
    ledger = Ledger(scene, [proxy])
    ways: dict[str, Caller] = {
        DIRECT: GrpcCaller(scene.stubs[LEAST]),
        NGINX: GrpcCaller(scene.grpc_nginx.ports[0]),
        OURS: _caller(proxy),
    }
    with giving_way(scene.postgres_pid):
        warmed = {way: call_on_time(caller, _warm_up()) for way, caller in ways.items()}
        found = _in_turns(ways, effort, proxy)
    heard = [*warmed.values(), *(one for rounds in found.values() for one in rounds)]
    ours = [warmed[OURS], *(one for (_, way), rounds in found.items() if way == OURS for one in rounds)]
    failed, due_in_all = sum(one.failed for one in heard), sum(one.due for one in heard)
    return Findings(
        targets=[target for rate in RATES for target in targets_of(rate, *(found[rate, way] for way in ways))],
        checks=[
            *ledger.checks([], sum(len(one.seconds) for one in ours), sum(one.failed for one in ours)),
            Check("every call was answered well on each way", not failed, f"{failed:,} of {due_in_all:,} not"),
        ],
        notes=[*(_note(found, rate) for rate in RATES), *_problems(heard)],
        detail={f"{way}, {rate} a second": [_as_json(one) for one in rounds] for (rate, way), rounds in found.items()},
    )


def _in_turns(ways: Mapping[str, Caller], effort: Effort, proxy: Proxy) -> Rounds:
    found: Rounds = {(rate, way): [] for rate in RATES for way in ways}
    for number in range(1, effort.rounds + 1):
        for rate in RATES:
            due = due_times(rate, effort.seconds, seed=number)
            for way, caller in ways.items():
                found[rate, way].append(call_on_time(caller, due))
            proxy.await_log()
        figures = "; ".join(_last(found, rate) for rate in RATES)
        say(f"  round {number} of {effort.rounds}, p50 and p99 in ms: {figures}")
    return found


def targets_of(
    rate: int, direct: Sequence[Heard], through_nginx: Sequence[Heard], ours: Sequence[Heard]
) -> list[Target]:
    """Return the targets at one rate from the rounds of the three ways."""
    by_nginx, by_us = added(direct, through_nginx), added(direct, ours)
    return [
        Target(
            "P12",
            f"{name} added at {rate:,} a second ÷ nginx's, or {enough:g} ms",
            ours_ms,
            "ms",
            TIMES_NGINX,
            nginx_ms,
            enough=enough,
        )
        for name, ours_ms, nginx_ms, enough in zip(("p50", "p99"), by_us, by_nginx, ENOUGH, strict=True)
    ]


def added(direct: Sequence[Heard], way: Sequence[Heard]) -> Percentiles:
    """Return what a way adds to the direct call: of each round's pair, and then the median."""
    pairs = [(one.latency, beside.latency) for one, beside in zip(way, direct, strict=True)]
    return Percentiles(
        median(one.p50_ms - beside.p50_ms for one, beside in pairs),
        median(one.p99_ms - beside.p99_ms for one, beside in pairs),
    )


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure what callers of both checkouts' proxies feel, in turns."""
    proxies = checkouts.map(lambda one: scene.proxy(checkout=one))
    ledger = Ledger(scene, proxies)
    callers = proxies.map(_caller)
    with giving_way(scene.postgres_pid):
        heard = [call_on_time(caller, _warm_up()) for caller in callers]
        pairs = []
        for rate in RATES:
            say(f"  {rate:,} requests a second")
            found: Sides[list[Percentiles]] = Sides([], [])
            for number in range(1, effort.rounds + 1):
                due = due_times(rate, effort.seconds, seed=number)
                for caller, rounds in zip(callers, found, strict=True):
                    heard.append(call_on_time(caller, due))
                    rounds.append(heard[-1].latency)
            pairs += [
                Pairs(
                    "P12", f"p50 at {rate:,} a second", "ms", found.map(lambda rounds: [one.p50_ms for one in rounds])
                ),
                Pairs(
                    "P12", f"p99 at {rate:,} a second", "ms", found.map(lambda rounds: [one.p99_ms for one in rounds])
                ),
            ]
    for proxy in proxies:
        proxy.await_log()
    return Compared(pairs, ledger.checks([], sum(len(one.seconds) for one in heard), sum(one.failed for one in heard)))


def _caller(proxy: Proxy) -> HttpCaller:
    return HttpCaller(proxy.port, path_of(LEAST), body_of)


def _warm_up() -> list[float]:
    return due_times(_WARM_UP_PER_SECOND, _WARM_UP_SECONDS)


def _last(found: Rounds, rate: int) -> str:
    return f"{rate:,}/s " + ", ".join(
        f"{found[rate, way][-1].latency.p50_ms:.2f} {found[rate, way][-1].latency.p99_ms:.2f}"
        for way in (DIRECT, NGINX, OURS)
    )


def _note(found: Rounds, rate: int) -> str:
    whole = "; ".join(
        f"{way} {median(one.latency.p50_ms for one in found[rate, way]):.2f}, "
        f"{median(one.latency.p99_ms for one in found[rate, way]):.2f}"
        for way in (DIRECT, NGINX, OURS)
    )
    behind = median(_behind(one).p99_ms for one in found[rate, OURS])
    return f"{rate:,} a second, p50 and p99 in ms: {whole}; sent {behind:.2f} ms late (p99)"


def _problems(heard: Sequence[Heard]) -> list[str]:
    """Return what was wrong with answers, and how often, if anything was."""
    found = sum((one.problems for one in heard), Counter[str]())
    return [f"{count:,} times: {problem}" for problem, count in found.most_common()]


def _behind(heard: Heard) -> Percentiles:
    return percentiles_of(heard.behind)


def _as_json(heard: Heard) -> dict[str, Any]:
    return {name: round(value, 3) for name, value in heard.latency._asdict().items()} | {
        "sent_late_p99_ms": round(_behind(heard).p99_ms, 3)
    }


SECTION = Section("P12", "what a caller feels", run, compare)
