"""What a load test found: a table for the terminal, a page, and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadtests.scenarios import SCENARIOS
from loadtests.slo import OBJECTIVES, broken, exact, how_broken
from loadtests.target import Check, Target

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
:root { color-scheme: light dark }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .2rem .8rem .2rem 0 }
td.figure { text-align: right; font-variant-numeric: tabular-nums } tr.short { font-weight: bold }
thead th { border-bottom: 1px solid } tr.first td { border-top: 1px solid #8888 }
"""


@dataclass(frozen=True)
class Played:
    """What one scenario found."""

    name: str
    targets: Sequence[Target]
    checks: Sequence[Check]
    answered: Mapping[str, int]
    """Answers by kind."""
    per_second: float
    behind_ms: float
    """By how much later than due requests were sent, p99: the load's own delay."""
    stall_ms: float = 0.0
    """How long the whole machine stood still at most; 0 when that was never long enough to matter."""

    @property
    def holds(self) -> bool:
        """Whether every objective is met and every check holds."""
        return not broken(self.targets) and all(check.holds for check in self.checks)

    def wrong(self) -> list[str]:
        """Return in words what does not hold."""
        failed = [f"{self.name}: {check.text}: {check.found}" for check in self.checks if not check.holds]
        return [*map(how_broken, broken(self.targets)), *failed]

    def excuse(self) -> str | None:
        """Return what the machine has to do with it, if anything is wrong."""
        if self.holds or not self.stall_ms:
            return None
        return f"{self.name}: the machine itself stood still for {self.stall_ms:,.0f} ms meanwhile; run it again"


def verdict(played: Sequence[Played]) -> str:
    """Return the sentence that is the answer."""
    wrong = sum(len(one.wrong()) for one in played)
    count = sum(len(one.targets) for one in played)
    where = ", ".join(one.name for one in played if not one.holds)
    if wrong:
        return f"✖ {wrong} of {count} objectives and their checks do not hold: {where}"
    return f"✔ all {count} objectives of {len(played)} scenarios are met"


def show(played: Sequence[Played], console: Console) -> None:
    """Print verdict, table and what is wrong."""
    console.print(Text(verdict(played)), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("", "scenario", "objective"):
        table.add_column(heading, no_wrap=True)
    table.add_column("figure", justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for one in played:
        for number, target in enumerate(one.targets):
            style = "" if target.verdict == "pass" else "bold red"
            *cells, mark = _cells(target)
            table.add_row(mark, one.name if number == 0 else "", *cells, style=style)
        for check in one.checks:
            part, of, whole = check.found.partition(" of ")
            table.add_row("✔" if check.holds else "✖", "", check.text, part, (of + whole).strip())
    console.print(table)
    for one in played:
        for line in one.wrong():
            console.print(Text(f"✖ {line}"), soft_wrap=True)
        if excuse := one.excuse():
            console.print(Text(f"! {excuse}"), soft_wrap=True)


def page(played: Sequence[Played], about: Mapping[str, Any]) -> str:
    """Return the same as one HTML page, with a link to locust's own report of each scenario."""
    rows = []
    for one in played:
        for number, target in enumerate(one.targets):
            text, figure, bound, mark = map(escape, _cells(target))
            classes = " ".join(["first"] * (number == 0) + ["short"] * (target.verdict != "pass"))
            link = f'<a href="{one.name}.html">{one.name}</a>' if number == 0 else ""
            meaning = escape(OBJECTIVES[target.text].text)
            rows.append(
                f'<tr class="{classes}"><td>{link}</td><td title="{meaning}">{text}</td>'
                f'<td class="figure">{figure}</td>'
                f"<td>{bound}</td><td>{mark}</td></tr>"
            )
        for check in one.checks:
            cells = f"<td>{escape(check.text)}</td><td></td><td>{escape(check.found)}</td>"
            rows.append(f"<tr><td></td>{cells}<td>{'✔' if check.holds else '✖'}</td></tr>")
    wrong = "".join(f"<li>{escape(line)}</li>" for one in played for line in filter(None, [*one.wrong(), one.excuse()]))
    notes = "".join(
        f"<li><b>{one.name}</b>: {escape(SCENARIOS[one.name].about)}. {escape(_counted(one))}</li>" for one in played
    )
    facts = escape(", ".join(f"{name} {value}" for name, value in about.items()))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Load test</title><style>{_STYLE}</style>'
        f"<h1>Load test</h1><p>{escape(verdict(played))}</p><ul>{wrong}</ul><table><thead><tr><th>scenario</th>"
        "<th>objective</th><th>figure</th><th>target</th><th></th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table><h2>Who answered</h2><ul>{notes}</ul><p>{facts}</p></html>\n"
    )


def as_json(played: Sequence[Played], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything."""
    scenarios = {
        one.name: {
            "holds": one.holds,
            "targets": [{**asdict(target), "verdict": target.verdict} for target in one.targets],
            "checks": [check._asdict() for check in one.checks],
            "answered": one.answered,
            "per_second": round(one.per_second, 1),
            "behind_p99_ms": round(one.behind_ms, 2),
            "machine_stall_ms": round(one.stall_ms),
        }
        for one in played
    }
    return {**about, "verdict": verdict(played), "scenarios": scenarios}


def _counted(one: Played) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in one.answered.items())
    return (
        f"{one.per_second:,.0f} a second: {kinds}; requests were sent {one.behind_ms:.1f} ms after they were due (p99)"
    )


def _cells(target: Target) -> tuple[str, str, str, str]:
    sign = "≥" if target.at_least else "≤"
    figure = exact(target.figure)
    return (
        target.text,
        figure if figure == "not measured" else f"{figure} {target.unit}",
        f"{sign} {exact(target.bound)} {target.unit}",
        "✔" if target.verdict == "pass" else "✖",
    )
