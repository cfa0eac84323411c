"""Scores in tenths of the champion's own: a heat map that says something whatever the scores' unit is."""

from collections.abc import Mapping, Sequence

from understudy.core.windows.histogram import Histogram, cell_of, value_of

_TENTHS = 10


def tenth_edges(champion: Histogram) -> tuple[float, ...]:
    """Return the values up to which each tenth of the champion's scores goes, but for the last; none without scores.

    Values that many calls have may fill several tenths: there are fewer edges then.
    """
    found = (champion.quantile(number / _TENTHS) for number in range(1, _TENTHS))
    return tuple(sorted({edge for edge in found if edge is not None}))


def counts_up_to(scores: Histogram, edges: Sequence[float]) -> Mapping[str, int]:
    """Return how many scores do not exceed each edge, by its text, and at last how many there are: as by ``le``."""
    cells = sorted(scores.counts.items())
    counts = {text_of(edge): sum(count for cell, count in cells if cell <= cell_of(edge)) for edge in edges}
    return {**counts, "+Inf": scores.total}


def text_of(edge: float) -> str:
    """Return an edge as a label has it: with the three digits that a histogram's cell is known to."""
    return f"{value_of(cell_of(edge)):.3g}"
