"""What was measured, as values, as a table of 80 columns, and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from loadtests.rounds import Contender, ShadowRounds
from loadtests.wrk import CONNECTIONS

_CONTENDER = "{:<34}{:>10}{:>14}{:>11}{:>11}"
_TARGET = "{:<38}{:>12}{:>10}{:>11}{:>9}"


class Target(NamedTuple):
    """A bound on a measured figure, and where it is written down."""

    text: str
    measured: float
    bound: float
    source: str

    @property
    def verdict(self) -> str:
        return "pass" if self.measured <= self.bound else "short"


class Check(NamedTuple):
    """Something without which the figures mean nothing."""

    text: str
    holds: bool
    found: str


def targets(measured: Sequence[Contender], shadows: ShadowRounds) -> list[Target]:
    """Return every target of the whole path and of its shadow."""
    shadow, hanging = shadows.ratio(shadows.shadowed), shadows.ratio(shadows.hanging)
    product, shadowed, split, mirror, echo = (contender.server_us for contender in measured)
    return [
        Target("CPU per request, µs", product, 150, "issue 2"),
        Target("CPU ÷ nginx A/B", product / split, 1.4, "P1"),
        Target("CPU ÷ uvicorn echo", product / echo, 0.9, "P1"),
        Target("CPU with shadow ÷ nginx A/B + mirror", shadowed / mirror, 0.5, "P2"),
        Target("CPU with shadow ÷ without", shadowed / product, 1.25, "P2"),
        Target("champion p50, shadow ÷ none", shadow.p50_ms, 1.1, "P2"),
        Target("champion p99, shadow ÷ none", shadow.p99_ms, 1.2, "P2"),
        Target("champion p50, shadow hangs ÷ none", hanging.p50_ms, 1.1, "P2"),
        Target("champion p99, shadow hangs ÷ none", hanging.p99_ms, 1.1, "issue 2"),
    ]


def checks(
    measured: Sequence[Contender], shadows: ShadowRounds, logged: Mapping[str, int], counted: int, dropped: int
) -> list[Check]:
    """Hold the log against what was answered.

    Args:
        measured: The contenders, the product's two first.
        shadows: The rounds at a steady rate.
        logged: Rows of the prediction log by role and status.
        counted: Calls that the proxy says it made, of all roles.
        dropped: Rows that the proxy says it dropped.
    """
    runs = [answered for contender in measured[:2] for answered in contender.sent]
    answers = sum(run.requests for run in runs) + sum(len(load.answers) for load in shadows.loads)
    rows = sum(n for kind, n in logged.items() if not kind.startswith("shadow"))
    under_way = CONNECTIONS * len(runs)
    refused = sum(run.not_200 for contender in measured for run in contender.sent)
    refused += sum(len(load.failed) for load in shadows.loads)
    broken = sum(run.broken for contender in measured for run in contender.sent)
    bad = {kind: n for kind, n in logged.items() if kind not in ("champion ok", "shadow ok", "shadow timeout")}
    return [
        Check("every answer was 200", refused == 0, f"{refused:,} others"),
        Check("no connection broke", broken == 0, f"{broken:,} broken"),
        Check(
            "every call is a row in PredictionLog", sum(logged.values()) == counted, f"{sum(logged.values()):,} rows"
        ),
        # wrk does not count what was under way when it ended.
        Check("rows = answers", answers <= rows <= answers + under_way, f"{answers:,} answers, {rows:,} rows"),
        Check("no row was dropped", dropped == 0, f"{dropped:,} dropped"),
        Check("no row says that a champion's call failed", not bad, f"{sum(bad.values()):,} rows"),
    ]


def table(measured: Sequence[Contender], bounds: Sequence[Target], found: Sequence[Check], rows_per_call: float) -> str:
    """Return everything as text."""
    split = measured[2].server_us
    lines = [
        _CONTENDER.format("whole path, server's own core", "µs CPU", "per core-s", "÷ A/B", "req/s"),
        *(
            _CONTENDER.format(
                one.name,
                f"{one.server_us:.1f}",
                f"{1e6 / one.server_us:,.0f}",
                f"{one.server_us / split:.2f}",
                f"{one.per_second:,.0f}",
            )
            for one in measured
        ),
        f"beside it, per request: Postgres {measured[0].postgres_us:.1f} µs; rows per model call {rows_per_call:.1f}",
        "",
        _TARGET.format("target", "measured", "at most", "from", ""),
        *(_TARGET.format(one.text, f"{one.measured:.2f}", f"{one.bound:g}", one.source, one.verdict) for one in bounds),
        "",
        *(f"{'ok  ' if check.holds else 'NOT '}{check.text:<45}{check.found:>31}" for check in found),
    ]
    return "\n".join(lines)


def as_json(
    measured: Sequence[Contender],
    shadows: ShadowRounds,
    bounds: Sequence[Target],
    found: Sequence[Check],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything, each round included."""
    return {
        **about,
        "contenders": {
            one.name: {
                "cpu_us": round(one.server_us, 2),
                "postgres_cpu_us": round(one.postgres_us, 2),
                "requests_per_second": round(one.per_second),
                "rounds_cpu_us": [round(each.server_us, 2) for each in one.rounds],
            }
            for one in measured
        },
        "champion_latency_ms": {
            name: [{"p50": round(one.p50_ms, 3), "p99": round(one.p99_ms, 3)} for one in rounds]
            for name, rounds in (
                ("no shadow", shadows.without),
                ("shadow of every call", shadows.shadowed),
                ("shadow hangs", shadows.hanging),
            )
        },
        "targets": [{**one._asdict(), "measured": round(one.measured, 3), "verdict": one.verdict} for one in bounds],
        "checks": [check._asdict() for check in found],
    }
