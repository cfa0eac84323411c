"""Findings as people read them: a line for each, with what to do next below it."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from understudy.registry.findings.finding import Finding, State

_MARKS = {
    State.GOOD: ("✔", "green"),
    State.UNKNOWN: ("?", "dim"),
    State.WARNING: ("!", "yellow"),
    State.PROBLEM: ("✖", "red"),
}


def findings_verdict(findings: Sequence[Finding]) -> Text:
    """Return how many problems and warnings there are, or that there is none."""
    found = Counter(finding.state for finding in findings)
    problems, warnings = found[State.PROBLEM], found[State.WARNING]
    unseen = [finding.name for finding in findings if finding.state is State.UNKNOWN]
    if not problems and not warnings:
        seen = f"All that is seen from here is well; not seen: {', '.join(unseen)}." if unseen else "All is well."
        return Text(seen, "bold")
    return Text(f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}.", "bold")


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return a line for each finding, with what to do next below it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.state]
        text = Text(finding.what)
        if finding.next_step and finding.state is not State.GOOD:
            text.append(f"\n→ {finding.next_step}", "cyan")
        grid.add_row(Text(mark, style), finding.name, text)
    return grid


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
