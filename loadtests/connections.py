"""P5: more connections than the server has work for, and hardly any load at all."""

from statistics import median

from loadtests.result import say
from loadtests.rounds import Contender, Ledger, details, take_turns
from loadtests.scene import PROMPT, Scene
from loadtests.section import Effort, Findings, Section, Target
from loadtests.steady import percentiles_of, steady_load
from loadtests.wrk import FULL, Answered

FEW, MANY = 16, 512
PER_SECOND = 200


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


SECTION = Section("P5", "16 to 512 connections", run)
