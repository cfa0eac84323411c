"""Slices as people read them: those for which a challenger does worse, and both sides' figures of all."""

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.text import Text

from understudy.core.canary.slices.failing_slices import slice_words
from understudy.core.canary.slices.slice_figures import SliceFigures, SliceRow, SliceSide, SliceState
from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.rollout.verdicts.slice_verdict import NamedSlice

MAX_ROWS = 20
"""Of a table: the worst ones, and then those with the most calls."""
SIDES = "champion → challenger"
_STATES = {
    SliceState.WORSE: Text("✖ worse", "bold red"),
    SliceState.UNPROVEN: Text("… worse, not\n  proven yet", "yellow"),
    SliceState.TOO_EARLY: Text("… too early", "dim"),
    SliceState.OK: Text("✔ pass", "green"),
}


def slice_lines(found: Sequence[NamedSlice]) -> list[Text]:
    """Return a line for each slice, and one with each call of its that failed or was slow."""
    lines = []
    for one in found:
        lines.append(Text("slice ").append(slice_words(one.counted), "bold"))
        lines += [Text(f"  for example prediction {known}", "dim") for known in one.prediction_ids]
    return lines


def unknown_examples(counts_words: Sequence[str], why: str) -> list[Text]:
    """Return the slices without calls, and why there are none."""
    return [
        *(Text(f"slice {words}") for words in counts_words),
        Text("examples: ").append(f"not known, {why}", "yellow"),
    ]


def slices_view(rows: Sequence[SliceRow], width: int | None = None) -> list[RenderableType]:
    """Return the slices as a table, and how many it leaves out."""
    if not rows:
        return [Text("slices: none, the challenger had no calls with a category or a marked feature")]
    columns = [
        Column("slice"),
        Column("errors", right=True),
        Column("slow answers", drop=1, right=True),
        Column("typical latency", right=True),
        Column("calls", drop=2, right=True),
        Column("verdict"),
    ]
    cells = []
    for row in rows[:MAX_ROWS]:
        name, calls, errors, slow, latency = slice_cells(row.figures)
        cells.append((name, errors, slow, latency, calls, _STATES[row.state]))
    more = more_slices(rows)
    return [Text(f"slices, {SIDES}:"), a_table(columns, cells, width), *([Text(more, "dim")] if more else [])]


def slice_state_words(state: SliceState) -> str:
    """Return in a line what is found of a slice."""
    return " ".join(_STATES[state].plain.split())


def slice_cells(figures: SliceFigures) -> tuple[str, str, str, str, str]:
    """Return a slice's name and both sides' calls, errors, slow answers and typical latencies."""

    def sides(words: Callable[[SliceSide], str]) -> str:
        return f"{words(figures.champion)} → {words(figures.challenger)}"

    return (
        str(figures.slice),
        sides(lambda side: f"{side.calls:,.0f}"),
        sides(lambda side: _percent(side.error_ratio)),
        sides(lambda side: _percent(side.slow_ratio)),
        sides(lambda side: "-" if side.typical_seconds is None else f"{1_000 * side.typical_seconds:.3g} ms"),
    )


def more_slices(rows: Sequence[SliceRow]) -> str:
    """Say how many slices a table of :data:`MAX_ROWS` leaves out; empty where it has all."""
    more = len(rows) - MAX_ROWS
    return f"and {more} more with fewer calls; --slices --json has all" if more > 0 else ""


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.3g} %"
