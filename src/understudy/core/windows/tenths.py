"""Scores in tenths of the champion's own: a heat map that says something whatever the scores' unit is."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from understudy.core.windows.histogram import Histogram, cell_of, value_of

_TENTHS = 10
_BEYOND = "+Inf"


def tenth_edges(champion: Histogram) -> tuple[float, ...]:
    """Return the values up to which each tenth of the champion's scores goes, but for the last; none without scores.

    Values that many calls have may fill several tenths: there are fewer edges then.
    """
    found = (champion.quantile(number / _TENTHS) for number in range(1, _TENTHS))
    return tuple(sorted({edge for edge in found if edge is not None}))


def counts_in_bands(scores: Histogram, edges: Sequence[float]) -> Mapping[str, int]:
    """Return how many scores lie in each band, by the text of the edge that it goes up to; all of them together.

    Each band has its own, unlike a histogram's buckets: a heat map subtracts those from each other, and so they have to
    be there at the same times, but edges are made anew.
    """
    limits, names = [cell_of(edge) for edge in edges], [*map(text_of, edges), _BEYOND]
    counts = dict.fromkeys(names, 0)
    for cell, count in scores.counts.items():
        counts[names[bisect_left(limits, cell)]] += count
    return counts


def text_of(edge: float) -> str:
    """Return an edge as a label has it: the three digits that a histogram's cell is known to, as ``412000``."""
    return f"{float(f'{value_of(cell_of(edge)):.3g}'):.15g}"
