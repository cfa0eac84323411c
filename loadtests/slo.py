"""Service level objectives of load tests: read from TOML, and held against the figures of a load.

    python -m loadtests.slo steady answers.jsonl --slo my-slo.toml

judges a load that ``locust … --answers answers.jsonl`` has written. Exit status 0: all met; 1: one is not; 2: it cannot
be judged.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

from loadtests.answers import BadRecord, figures_of, read_record
from loadtests.report import digits
from loadtests.scenarios import SCENARIOS
from loadtests.target import Target

SLO_FILE = Path(__file__).with_name("slo.toml")


class Objective(NamedTuple):
    """What can be asked of a load."""

    text: str
    unit: str
    at_least: bool = False


OBJECTIVES = {
    "availability_percent": Objective("answered without failing", "%", at_least=True),
    "p50_ms": Objective("p50", "ms"),
    "p95_ms": Objective("p95", "ms"),
    "p99_ms": Objective("p99", "ms"),
    "refused_percent": Objective("refused (4xx)", "%"),
    "late_percent": Objective("late (504)", "%"),
    "fallback_percent": Objective("by the champion as fallback", "%"),
    "cache_hit_percent": Objective("from the cache", "%", at_least=True),
    "stale_ms": Objective("old policy after a change", "ms"),
    "asked_percent": Objective("sent of what was due", "%", at_least=True),
    "missing_rows": Objective("answers not in the log", "rows"),
    "doubled_rows": Objective("answers twice in the log", "rows"),
}
UNITS = {"percent": "%", "ms": "ms", "rows": "rows"}

Slos = Mapping[str, Mapping[str, float]]
"""The bound of each objective, by scenario."""


class BadSlo(Exception):
    """A file of objectives that cannot be used; says every place that is wrong, and what would be right."""


def read_slos(path: Path) -> Slos:
    """Return the objectives of a file.

    Raises:
        BadSlo: It cannot be read, or something in it cannot be.
    """
    try:
        return parse_slos(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSlo(f"{path}: cannot be read: {problem}") from problem
    except BadSlo as problem:
        raise BadSlo("\n".join(f"{path}: {line}" for line in str(problem).splitlines())) from None


def parse_slos(text: str) -> Slos:
    """Return the objectives of a TOML document.

    Raises:
        BadSlo: With a line for each thing that is wrong.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadSlo(f"no TOML: {problem}") from problem
    problems = list(_problems_of(document))
    if problems:
        raise BadSlo("\n".join(problems))
    return document


def _problems_of(document: Mapping[str, Any]) -> Iterable[str]:
    if not document:
        yield f"no scenario in it: write [steady] and below it p99_ms = 100; scenarios are {', '.join(SCENARIOS)}"
    for name, objectives in document.items():
        if name in OBJECTIVES or not isinstance(objectives, dict):
            yield f"{name!r} stands outside a scenario: write [steady] above it"
        elif name not in SCENARIOS:
            yield f"[{name}]: no such scenario{_meant(name, SCENARIOS)}; there are {', '.join(SCENARIOS)}"
        else:
            if not objectives:
                yield f"[{name}]: no objective in it, so that it would always pass; write for example p99_ms = 100"
            for objective, bound in objectives.items():
                problem = _problem_of(objective, bound)
                if problem:
                    yield f"[{name}] {problem}"


def _problem_of(name: str, bound: Any) -> str | None:
    if name not in OBJECTIVES:
        quantity = name.rpartition("_")[0] or name
        same = [known for known in OBJECTIVES if known.rpartition("_")[0] == quantity]
        if same:
            unit = UNITS[same[0].rpartition("_")[2]]
            return f"{name}: wrong unit: {quantity} is measured in {unit}; write {same[0]} = …"
        return f"{name}: no such objective{_meant(name, OBJECTIVES)}; there are {', '.join(OBJECTIVES)}"
    unit = OBJECTIVES[name].unit
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return f"{name} = {bound!r}: write a number without unit; it is in {unit}"
    if not isfinite(bound) or bound < 0 or (unit == "%" and bound > 100):
        return f"{name} = {bound}: expected {'0 to 100' if unit == '%' else '0 or more'}, in {unit}"
    return None


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f", {close[0]} perhaps" if close else ""


def judge(slos: Slos, scenario: str, figures: Mapping[str, float]) -> list[Target]:
    """Hold figures against the objectives of their scenario; one that was not measured is not met.

    Raises:
        BadSlo: There are no objectives for the scenario: nothing would be judged.
    """
    if scenario not in slos:
        raise BadSlo(
            f"nothing is asked of {scenario}: write [{scenario}] with its objectives; there are {', '.join(slos)}"
        )
    return [
        Target(
            scenario,
            name,
            figures.get(name, nan),
            OBJECTIVES[name].unit,
            bound,
            at_least=OBJECTIVES[name].at_least,
        )
        for name, bound in slos[scenario].items()
    ]


def broken(targets: Iterable[Target]) -> list[Target]:
    """Return the objectives that are not met."""
    return [target for target in targets if target.verdict != "pass"]


def how_broken(target: Target) -> str:
    """Return in words which objective is not met, in which scenario and by how much."""
    asked = f"{'at least' if target.at_least else 'at most'} {exact(target.bound)} {target.unit}"
    if isnan(target.figure):
        return f"{target.source}: {target.text} was not measured, and should be {asked}"
    apart = abs(target.figure - target.bound)
    by = f"{digits(apart)} {'points' if target.unit == '%' else target.unit} too {'low' if target.at_least else 'high'}"
    return f"{target.source}: {target.text} is {exact(target.figure)} {target.unit}, {by} (should be {asked})"


def exact(figure: float) -> str:
    """Return a figure as tables show it: of 99.95 three digits would be too few."""
    if isnan(figure):
        return "not measured"
    return f"{figure:.3f}".rstrip("0").rstrip(".") if 99 < figure < 100 else digits(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge a written load and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=list(SCENARIOS))
    parser.add_argument("answers", type=Path, help="what locust --answers has written")
    parser.add_argument("--slo", type=Path, default=SLO_FILE, help="objectives (loadtests/slo.toml)")
    asked = parser.parse_args(arguments)
    try:
        targets = judge(read_slos(asked.slo), asked.scenario, figures_of(read_record(asked.answers)))
    except (BadSlo, BadRecord) as problem:
        print(problem, file=sys.stderr)
        return 2
    print(verdict_of(targets))
    return 1 if broken(targets) else 0


def verdict_of(targets: Sequence[Target]) -> str:
    """Return the verdict first, and below it each objective with its figure."""
    short = broken(targets)
    first = (
        f"✖ {len(short)} of {len(targets)} objectives are not met"
        if short
        else f"✔ all {len(targets)} objectives are met"
    )
    lines = [
        f"  {'✖' if target in short else '✔'} {target.text:<22}{exact(target.figure):>14} {target.unit:<5}"
        f"{'≥' if target.at_least else '≤'} {exact(target.bound)}"
        for target in targets
    ]
    return "\n".join([first, *lines, *(how_broken(target) for target in short)])


if __name__ == "__main__":
    sys.exit(main())
