"""Contenders take turns, so that a noisy moment hits every one of them alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from loadtests.checkouts import Sides
from loadtests.machine import cpu_seconds
from loadtests.pairs import Pairs
from loadtests.result import say
from loadtests.scene import BENCH, Proxy, Scene
from loadtests.section import Check, Effort
from loadtests.wrk import FULL, Answered, Load, run_wrk

_WARM_UP_SECONDS = 1


class CpuRound(NamedTuple):
    """One contender under load for some seconds; times are per answered request."""

    server_us: float
    postgres_us: float
    answered: Answered


@dataclass
class Contender:
    """A server under load. ``prepare`` runs before each round, ``settle`` before its processor time is read.

    ``send`` loads it, by default over HTTP.
    """

    name: str
    url: str
    pid: int
    prepare: Callable[[], None] = lambda: None
    settle: Callable[[], None] = lambda: None
    what: Load = FULL
    send: Callable[[str, float, Load], Answered] = run_wrk
    rounds: list[CpuRound] = field(default_factory=list)
    sent: list[Answered] = field(default_factory=list)
    """Every run of the load, the one to warm up included."""

    def load(self, seconds: float) -> Answered:
        """Run the load and wait until the work that it caused is done."""
        answered = self.send(self.url, seconds, self.what)
        self.settle()
        self.sent.append(answered)
        return answered

    def measure(self, seconds: float, postgres_pid: int) -> None:
        """Add one round."""
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
        return median(one.answered.per_second for one in self.rounds)

    def as_json(self) -> dict[str, Any]:
        """Return the medians and the rounds."""
        return {
            "cpu_us": round(self.server_us, 2),
            "postgres_cpu_us": round(self.postgres_us, 2),
            "requests_per_second": round(self.per_second),
            "rounds_cpu_us": [round(one.server_us, 2) for one in self.rounds],
            "rounds_p99_ms": [round(one.answered.p99_ms, 2) for one in self.rounds],
        }


def take_turns(scene: Scene, contenders: Sequence[Contender], effort: Effort) -> None:
    """Warm every contender up, and then measure them in turns."""
    for contender in contenders:
        contender.prepare()
        contender.load(_WARM_UP_SECONDS)
    for number in range(1, effort.rounds + 1):
        for contender in contenders:
            contender.prepare()
            contender.measure(effort.seconds, scene.postgres_pid)
        figures = ", ".join(f"{one.name} {one.rounds[-1].server_us:.1f}" for one in contenders)
        say(f"  round {number} of {effort.rounds}, µs CPU: {figures}")


def on_both(name: str, proxies: Sides[Proxy], model: str = BENCH, what: Load = FULL) -> Sides[Contender]:
    """Return the same load on the proxies of both checkouts."""
    before, now = (
        Contender(f"{name}, {side}", proxy.url(model), proxy.pid, settle=proxy.await_log, what=what)
        for side, proxy in proxies._asdict().items()
    )
    return Sides(before, now)


def cpu_pairs(target: str, text: str, contenders: Sides[Contender]) -> Pairs:
    """Return the processor time per request of both, round by round."""
    return Pairs(target, text, "µs", contenders.map(lambda one: [turn.server_us for turn in one.rounds]))


def details(contenders: Sequence[Contender]) -> dict[str, Any]:
    """Return every contender's rounds by its name."""
    return {one.name: one.as_json() for one in contenders}


class Ledger:
    """What the log and some proxies said when it was opened; the checks are on what came since."""

    def __init__(self, scene: Scene, proxies: Sequence[Proxy]) -> None:
        self._scene = scene
        self._proxies = proxies
        self._rows = scene.logged()
        self._calls_and_lost = self._told()

    def rows(self) -> dict[str, int]:
        """Return the rows since then by role and status."""
        return {kind: count - self._rows.get(kind, 0) for kind, count in self._scene.logged().items()}

    def checks(self, contenders: Sequence[Contender], answers: int = 0, failed: int = 0) -> list[Check]:
        """Hold the log against what was answered.

        Args:
            contenders: All that were measured; the proxies' own are found by their process.
            answers: Further answers of the proxies, from another load.
            failed: Those of them that were no 200.
        """
        ours = {proxy.pid for proxy in self._proxies}
        runs = [(run, one) for one in contenders for run in one.sent if one.pid in ours]
        answers += sum(run.requests for run, _ in runs)
        under_way = sum(one.what.connections for _, one in runs)  # wrk does not count what was under way at its end
        rows = self.rows()
        rows.pop("hit", None)
        bad = {kind: n for kind, n in rows.items() if kind not in ("champion ok", "shadow ok", "shadow timeout")}
        served = sum(n for kind, n in rows.items() if not kind.startswith("shadow"))
        calls, dropped = (now - then for now, then in zip(self._told(), self._calls_and_lost, strict=True))
        return [
            *answered_checks(contenders, failed),
            Check("every call is a row in PredictionLog", sum(rows.values()) == calls, f"{sum(rows.values()):,} rows"),
            Check("rows = answers", answers <= served <= answers + under_way, f"{answers:,} answers, {served:,} rows"),
            Check("no row was dropped", dropped == 0, f"{dropped:,.0f} dropped"),
            Check("no row of a call that failed, but of shadows in time-out", not bad, _counted(bad)),
        ]

    def _told(self) -> tuple[float, float]:
        """Return the calls that the proxies say they made, of all roles, and the rows that they lost."""
        lost = ('prediction_log_rows_total{outcome="dropped"', 'prediction_log_rows_total{outcome="rejected"')
        return (
            sum(proxy.metric("predict_requests_total{") for proxy in self._proxies),
            sum(proxy.metric(*lost) for proxy in self._proxies),
        )


def answered_checks(contenders: Sequence[Contender], failed: int = 0) -> list[Check]:
    """Return whether every request of every contender was answered well."""
    runs = [run for one in contenders for run in one.sent]
    refused, broken = sum(run.not_200 for run in runs) + failed, sum(run.broken for run in runs)
    return [
        Check("every answer was 200", refused == 0, f"{refused:,} others"),
        Check("no connection broke", broken == 0, f"{broken:,} broken"),
    ]


def _counted(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {kind}" for kind, n in sorted(rows.items())) or "0 rows"
