"""The measurements: alternating rounds, so that a noisy moment hits every contender alike."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import orjson
import uvloop
from e2e.load import Load, run_load

from loadtests.machine import cpu_seconds
from loadtests.scene import PREDICT, Scene
from loadtests.wrk import Answered, run_wrk

LATENCY_PER_SECOND = 400
_ROW = {f"feature_{number:02d}": number / 16 for number in range(1, 14)}


class CpuRound(NamedTuple):
    """One contender under load for some seconds; times are per answered request."""

    server_us: float
    postgres_us: float
    answered: Answered

    @property
    def per_second(self) -> float:
        return self.answered.requests / self.answered.seconds


@dataclass
class Contender:
    """A server under load. ``prepare`` runs before each round, ``settle`` before its processor time is read."""

    name: str
    url: str
    pid: int
    prepare: Callable[[], None] = lambda: None
    settle: Callable[[], None] = lambda: None
    rounds: list[CpuRound] = field(default_factory=list)
    sent: list[Answered] = field(default_factory=list)
    """Every run of the load, the one to warm up included."""

    def load(self, seconds: int) -> Answered:
        """Run the load and wait until the work that it caused is done."""
        answered = run_wrk(self.url, seconds)
        self.settle()
        self.sent.append(answered)
        return answered

    def measure(self, seconds: int, postgres_pid: int) -> None:
        """Add one round."""
        self.prepare()
        server, postgres = cpu_seconds([self.pid]), cpu_seconds([postgres_pid])
        answered = self.load(seconds)
        server, postgres = cpu_seconds([self.pid]) - server, cpu_seconds([postgres_pid]) - postgres
        per_request = 1e6 / max(1, answered.requests)
        self.rounds.append(CpuRound(server * per_request, postgres * per_request, answered))

    @property
    def server_us(self) -> float:
        """Processor time per request, in microseconds: the median of the rounds."""
        return median(one.server_us for one in self.rounds)

    @property
    def postgres_us(self) -> float:
        """What Postgres needed for one request, in microseconds: the median of the rounds."""
        return median(one.postgres_us for one in self.rounds)

    @property
    def per_second(self) -> float:
        """Requests answered in a second of wall-clock time: the median of the rounds."""
        return median(one.per_second for one in self.rounds)


def contenders(scene: Scene) -> list[Contender]:
    """Return who is measured, the product first."""
    return [
        Contender("understudy", scene.proxy_url, scene.proxy_pid, lambda: scene.set_shadow(None), scene.await_log),
        Contender(
            "understudy, shadow of every call",
            scene.proxy_url,
            scene.proxy_pid,
            lambda: scene.set_shadow(scene.shadow),
            scene.await_log,
        ),
        Contender("nginx A/B (split_clients)", scene.split_url, scene.nginx_pid),
        Contender("nginx A/B + mirror", scene.mirror_url, scene.nginx_pid),
        Contender("uvicorn echo (empty ASGI app)", scene.echo_url, scene.echo_pid),
    ]


class Percentiles(NamedTuple):
    """The champion's latency in one round, in milliseconds."""

    p50_ms: float
    p99_ms: float


@dataclass
class ShadowRounds:
    """The champion's latency at a low, fixed rate, with and without a shadow; ``loads`` is everything sent."""

    without: list[Percentiles] = field(default_factory=list)
    shadowed: list[Percentiles] = field(default_factory=list)
    hanging: list[Percentiles] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)

    def ratio(self, rounds: list[Percentiles]) -> Percentiles:
        """Return the medians of ``rounds`` over those without a shadow."""
        with_shadow, without = _medians(rounds), _medians(self.without)
        return Percentiles(with_shadow.p50_ms / without.p50_ms, with_shadow.p99_ms / without.p99_ms)


def _medians(rounds: list[Percentiles]) -> Percentiles:
    return Percentiles(median(one.p50_ms for one in rounds), median(one.p99_ms for one in rounds))


def measure_shadow(scene: Scene, rounds: int, seconds: float) -> ShadowRounds:
    """Alternate between no shadow, one of every call, and one that never answers."""
    measured = ShadowRounds()
    modes = ((None, measured.without), (scene.shadow, measured.shadowed), (scene.hanging, measured.hanging))
    for _ in range(rounds):
        for version, results in modes:
            scene.set_shadow(version)
            load = _steady_load(scene, seconds)
            measured.loads.append(load)
            results.append(Percentiles(load.percentile_seconds(50) * 1000, load.percentile_seconds(99) * 1000))
    scene.set_shadow(None)
    scene.await_log()
    return measured


def _steady_load(scene: Scene, seconds: float) -> Load:
    port = int(scene.proxy_url.split(":")[2].partition("/")[0])
    gc.collect()
    gc.disable()  # a collection in this process would look like a slow answer
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run_load(port, PREDICT, _body_of, per_second=LATENCY_PER_SECOND, seconds=seconds))
    finally:
        gc.enable()


def _body_of(number: int) -> bytes:
    return orjson.dumps({"entity_id": f"steady-{number}", "inputs": _ROW})
