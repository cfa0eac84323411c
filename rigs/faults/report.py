"""What was found, as one table and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.report import digits
from rigs.faults.row import Result

_LINE = "{:<6}{:<46}{:<10}{}"
_SHOWN_LAST = ("machine_stall_ms", "requests")


def table(results: Sequence[Result], notes: Sequence[str] = ()) -> str:
    """Return a line for each row: its fault, its verdict, its figures and why it is not a pass."""
    lines = [
        _LINE.format("id", "fault", "verdict", "figures"),
        *(line(result) for result in results),
        "",
        summary(results),
        *notes,
    ]
    return "\n".join(lines)


def line(result: Result) -> str:
    """Return one row of the table."""
    row = result.row
    reason = f"  [{result.reason}]" if result.reason else ""
    return _LINE.format(row.id, _cut(row.fault, 44), result.verdict, figures_text(result.figures) + reason)


def figures_text(figures: Mapping[str, float]) -> str:
    """Return ``failed 0, p99_ms 4.1``, what is bound to be large last."""
    ordered = sorted(figures, key=lambda name: name in _SHOWN_LAST)
    return ", ".join(f"{name} {digits(figures[name])}" for name in ordered)


def summary(results: Sequence[Result]) -> str:
    """Return how many rows there are of each verdict."""
    counts: dict[str, int] = {}
    for result in results:
        counts[result.verdict] = counts.get(result.verdict, 0) + 1
    return f"{len(results)} rows: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def as_json(results: Sequence[Result], about: Mapping[str, Any], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return everything."""
    return {**about, "notes": list(notes), "rows": [result.as_json() for result in results]}


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
