"""Charts of distributions: histograms of several arms over each other, and pairs of values."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from understudy.entrypoints.charts.frame import (
    Axis,
    Chart,
    Tone,
    across,
    drawing,
    figure_words,
    grid,
    labelled,
    legend,
    ticks,
    upwards,
)


class Distribution(NamedTuple):
    """A histogram: how many values one arm has in each cell."""

    label: str
    tone: Tone
    cells: Sequence[float]


def distributions(title: str, arms: Sequence[Distribution], edges: Sequence[float]) -> Chart:
    """Return the arms' histograms over each other, each as shares of its own total; a cell lies between two edges."""
    shares = [[count / (sum(arm.cells) or 1) for count in arm.cells] for arm in arms]
    highest = max((share for own in shares for share in own), default=0) or 1
    x, y = across(edges[0], edges[-1]), upwards(0, highest)
    lines = [_outline(arm, own, edges, x, y) for arm, own in zip(arms, shares, strict=True)]
    percents = [(share, f"{100 * share:.3g} %") for share in ticks(0, highest)]
    shapes = [
        *grid(x, y, labelled(ticks(edges[0], edges[-1])), percents),
        *lines,
        legend([(arm.label, arm.tone) for arm in arms]),
    ]
    sentence = f"Half of the values are below {' and '.join(_middle_words(arm, edges) for arm in arms)}."
    head = ("from", "to", *(f"{arm.label}, %" for arm in arms))
    rows = [
        (figure_words(low), figure_words(high), *(figure_words(100 * own[cell]) for own in shares))
        for cell, (low, high) in enumerate(pairwise(edges))
    ]
    return Chart(title, sentence, drawing(title, sentence, shapes), head, tuple(rows))


def pairs_of_values(
    title: str, pairs: Sequence[tuple[float, float]], names: tuple[str, str] = ("to the right", "up")
) -> Chart:
    """Return a dot for each pair of values, at least one pair: the first value to the right, the other one up."""
    firsts, others = [first for first, _ in pairs], [other for _, other in pairs]
    x, y = across(min(firsts), max(firsts)), upwards(min(others), max(others))
    dots = [
        f'<circle class="{Tone.CHALLENGER} dot" cx="{x.place(one)}" cy="{y.place(other)}" r="2.5"/>'
        for one, other in pairs
    ]
    shapes = [*grid(x, y, labelled(ticks(x.first, x.last)), labelled(ticks(y.first, y.last))), *dots]
    furthest = max(abs(one - other) for one, other in pairs)
    sentence = f"{len(pairs):,} pairs; the two values of one are at most {figure_words(furthest)} apart."
    rows = tuple((figure_words(one), figure_words(other)) for one, other in pairs)
    return Chart(title, sentence, drawing(title, sentence, shapes), names, rows)


def _outline(arm: Distribution, shares: Sequence[float], edges: Sequence[float], x: Axis, y: Axis) -> str:
    """Return a histogram's outline."""
    steps = [f"M{x.place(edges[0])},{y.place(0)}"]
    for share, left, right in zip(shares, edges, edges[1:], strict=False):
        steps.append(f"L{x.place(left)},{y.place(share)}L{x.place(right)},{y.place(share)}")
    steps.append(f"L{x.place(edges[-1])},{y.place(0)}")
    return f'<path class="{arm.tone} area" d="{"".join(steps)}"/>'


def _middle_words(arm: Distribution, edges: Sequence[float]) -> str:
    """Return the end of the cell that has an arm's middle value."""
    total, seen = sum(arm.cells), 0.0
    for count, end in zip(arm.cells, edges[1:], strict=False):
        seen += count
        if total and seen >= total / 2:
            return f"{figure_words(end)} for {arm.label}"
    return f"an unknown value for {arm.label}"
