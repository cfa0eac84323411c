"""``make loadtest``: five scenarios against the product's own processes, in about two minutes, held against slo.toml.

Exit status 0: every objective is met; 1: one is not, and it says which, by how much and in which scenario; 2: cannot
run here.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import structlog
from rich.console import Console

from loadtests.answers import Answer, BadRecord, Recorded, answered_by, behind_ms, figures_of, log_figures
from loadtests.locust_run import Asked, LocustFailed, LocustRun
from loadtests.machine import a_folder, what_is_missing
from loadtests.result import RESULTS, about, say, write_result
from loadtests.scenarios import SCENARIOS
from loadtests.scene import a_scene
from loadtests.slo import SLO_FILE, BadSlo, Slos, judge, read_slos
from loadtests.stage import (
    CACHED,
    CHALLENGER_PERCENT,
    LOADED,
    MODEL_MS,
    SLOW_MS,
    Play,
    Stage,
    cast,
    empty_cache,
    flip,
    kill_challenger,
    nothing,
)
from loadtests.summary import Played, as_json, page, show
from loadtests.target import Check

PER_SECOND = 150.0
PLANTS = {"slow-backend": MODEL_MS + SLOW_MS}
"""What can be made bad on purpose, with the time that a model server then takes, in milliseconds."""


class Part(NamedTuple):
    """How a scenario is played: with which model and weight, what is done, and how one sees that it happened."""

    model: str
    weight: int | None
    play: Play
    text: str
    happened: Callable[[Answer], bool]
    """Of an answer that there can only be when it did."""


PARTS = {
    "steady": Part(LOADED, CHALLENGER_PERCENT, nothing, "the challenger answered", lambda one: one.version == "2"),
    "burst": Part(LOADED, CHALLENGER_PERCENT, nothing, "the challenger answered", lambda one: one.version == "2"),
    "weight-flip": Part(LOADED, 0, flip, "the challenger answered", lambda one: one.version == "2"),
    "dead-challenger": Part(
        LOADED, CHALLENGER_PERCENT, kill_challenger, "the champion stood in", lambda one: one.fallback
    ),
    "cold-cache": Part(
        CACHED, None, empty_cache, "the new version answered", lambda one: one.version == "2" and not one.cached
    ),
}


def main() -> int:
    """Run the scenarios and return the exit status."""
    asked = _arguments()
    try:
        slos = read_slos(asked.slo)
        for name in asked.only:
            judge(slos, name, {})
    except BadSlo as problem:
        print(problem, file=sys.stderr)
        return 2
    if problems := what_is_missing(()):
        print("the load test needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # everything started is stopped
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    reports = asked.reports or RESULTS / f"loadtest-{datetime.now(UTC):%Y-%m-%dT%H%M%S}"
    reports.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    model_ms = PLANTS[asked.plant] if asked.plant else MODEL_MS
    with a_folder("us-load-") as folder, a_scene(folder, "oip", cast(model_ms)) as scene:
        stage = Stage(scene)
        say(f"  started in {time.monotonic() - started:.0f} s")
        played, broke = play_all(stage, slos, reports, asked)
    facts = {
        **about(),
        "rate": asked.rate,
        "planted": asked.plant or "nothing",
        "seconds": round(time.monotonic() - started),
    }
    (reports / "index.html").write_text(page(played, facts), encoding="utf-8")
    write_result(as_json(played, facts), reports / "result.json")
    say(f"report: {reports / 'index.html'}")
    if broke is not None:
        print(f"✖ {broke}: it cannot be judged, and what was to follow was not played", file=sys.stderr)
        return 2
    show(played, Console(highlight=False))
    return 0 if all(one.holds for one in played) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), help="some scenarios")
    parser.add_argument("--slo", type=Path, default=SLO_FILE, help="objectives (loadtests/slo.toml)")
    parser.add_argument("--plant", choices=list(PLANTS), help=f"slow-backend: model servers take {SLOW_MS:g} ms longer")
    parser.add_argument("--rate", type=_positive, default=PER_SECOND, help=f"requests a second ({PER_SECOND:g})")
    parser.add_argument("--seconds", type=_positive, help="of each scenario (20 to 24; less is a look)")
    parser.add_argument("--reports", type=Path, help="folder for the reports (one of its own in loadtests/results)")
    return parser.parse_args()


def _positive(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError("expected 1 to 3600")
    return value


def play_all(stage: Stage, slos: Slos, reports: Path, asked: argparse.Namespace) -> tuple[Sequence[Played], str | None]:
    """Play the scenarios, and return what was played, and why it went no further, if it did not."""
    played: list[Played] = []
    for name in asked.only:
        try:
            played.append(play(stage, name, slos, reports, seconds=asked.seconds, per_second=asked.rate))
        except (LocustFailed, BadRecord, OSError, RuntimeError) as problem:  # the product is away, or its log
            return played, f"{name}: {problem}"
    return played, None


def play(
    stage: Stage, name: str, slos: Slos, reports: Path, *, seconds: float | None = None, per_second: float = PER_SECOND
) -> Played:
    """Play one scenario and judge it.

    Raises:
        LocustFailed: There was no load.
        BadRecord: It ended before its time.
    """
    scenario, part = SCENARIOS[name], PARTS[name]
    lasts = float(round(seconds or scenario.seconds))
    say(f"  {name}: {scenario.about}; {lasts:.0f} s")
    if part.weight is not None:
        stage.settle(part.weight)
    before = sum(stage.rows().values())
    load = Asked(stage.host, part.model, name, per_second, lasts, stage.inputs)
    with LocustRun(load, reports / f"{name}.html", stage.scene.folder) as run:
        changes = part.play(stage, run)
        recorded = run.recorded()
    rows = stage.rows()
    figures = {**figures_of(recorded, changes), **log_figures(recorded.answers, rows)}
    return Played(
        name,
        judge(slos, name, figures),
        _checks(part, recorded, sum(rows.values()) - before),
        answered_by(recorded.answers),
        len(recorded.answers) / recorded.lasted,
        behind_ms(recorded.answers),
        stage.standstills.longest_since(recorded.began) * 1000,
    )


def _checks(part: Part, recorded: Recorded, rows: int) -> Sequence[Check]:
    """Say whether what was to happen did, and whether the log has a row for nothing else."""
    seen = sum(part.happened(answer) for answer in recorded.answers)
    named = sum(bool(answer.prediction_id) for answer in recorded.answers)
    return (
        Check(part.text, seen > 0, f"{seen:,} of {len(recorded.answers):,}"),
        Check("rows = answers", rows == named, f"{rows:,} of {named:,}"),
    )


if __name__ == "__main__":
    sys.exit(main())
