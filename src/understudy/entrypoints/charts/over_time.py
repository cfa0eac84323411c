"""Charts over time: a value with its interval, with limits and moments, and values of several arms."""

from collections.abc import Sequence
from itertools import pairwise
from math import log10
from typing import NamedTuple

from understudy.entrypoints.charts.frame import (
    LEFT,
    RIGHT,
    WIDTH,
    Axis,
    Chart,
    Mark,
    Point,
    Tone,
    across,
    drawing,
    figure_words,
    grid,
    labelled,
    legend,
    level,
    powers,
    ticks,
    time_words,
    uprights,
    upwards,
)

WHEN = "time (UTC)"
_INTERVAL_HEAD: tuple[str, ...] = (WHEN, "value", "from", "to")
Times = Sequence[tuple[float, str]]
"""Labelled moments of the time axis, in seconds since the epoch."""


class Line(NamedTuple):
    """What one arm's value was over time; ``is_stepped``: it stays as it is until the next point."""

    label: str
    tone: Tone
    points: Sequence[tuple[float, float]]
    is_stepped: bool = False
    breaks: Sequence[float] = ()
    """Moments at which there was nothing: no line is drawn over them."""


def interval_over_time(
    title: str, sentence: str, points: Sequence[Point], times: Times, *, unit: str, tone: Tone = Tone.CHALLENGER
) -> Chart:
    """Return a value with its interval over time, and the line at zero; arguments as of :func:`course_over_time`."""
    low, high = min(0.0, *(point.low for point in points)), max(0.0, *(point.high for point in points))
    x = across(min(points[0].at, times[0][0]), max(points[-1].at, times[-1][0]))
    y = upwards(low, high)
    upper = [f"{x.place(point.at)},{y.place(point.high)}" for point in points]
    lower = [f"{x.place(point.at)},{y.place(point.low)}" for point in reversed(points)]
    trace = [(x.place(point.at), y.place(point.value)) for point in points]
    named = f"{title} ({unit})"
    shapes = [
        *grid(x, y, times, labelled(ticks(low, high))),
        f'<polygon class="{tone} band" points="{" ".join([*upper, *lower])}"/>',
        *_trace(trace, tone),
        f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.place(0)}" y2="{y.place(0)}"/>',
    ]
    return Chart(named, sentence, drawing(named, sentence, shapes), _INTERVAL_HEAD, _interval_rows(points))


def course_over_time(
    title: str,
    sentence: str,
    points: Sequence[Point],
    times: Times,
    *,
    span: tuple[float, float],
    levels: Sequence[Mark],
    moments: Sequence[Mark],
    is_logarithmic: bool,
) -> Chart:
    """Return a value over time with its interval, horizontal levels and vertical moments.

    Args:
        title: What the value is; no two charts of a page have the same.
        sentence: What the chart shows.
        points: In the order of their times, at least one; a value or an interval may reach to infinity.
        times: The first and last one bound the chart.
        span: Smallest and largest value that is shown; values beyond them are drawn at the chart's edge.
        levels: Horizontal lines.
        moments: Vertical lines; where two labels would overlap, only the later one is written.
        is_logarithmic: Whether the value axis is logarithmic; then the span is above 0.
    """
    scaled = log10 if is_logarithmic else float
    x = across(times[0][0], times[-1][0])
    y = upwards(scaled(span[0]), scaled(span[1]))
    beside = powers(*span) if is_logarithmic else labelled(ticks(*span))

    def at(value: float) -> float:
        return y.place(scaled(min(max(value, span[0]), span[1])))

    band = [f"{x.place(point.at)},{at(point.high)}" for point in points]
    band += [f"{x.place(point.at)},{at(point.low)}" for point in reversed(points)]
    lines = [level(at(one.value), one.label) for one in levels]
    shapes = [
        *grid(x, y, times, beside),
        f'<polygon class="{Tone.CHALLENGER} band" points="{" ".join(band)}"/>',
        *uprights([(x.place(moment.value), moment.label) for moment in moments]),
        *(line for line, _ in lines),
        *_trace([(x.place(point.at), at(point.value)) for point in points], Tone.CHALLENGER),
        *(label for _, label in lines),
    ]
    has_intervals = any((point.low, point.high) != (point.value, point.value) for point in points)
    columns = len(_INTERVAL_HEAD) if has_intervals else 2
    rows = tuple(row[:columns] for row in _interval_rows(points))
    return Chart(title, sentence, drawing(title, sentence, shapes), _INTERVAL_HEAD[:columns], rows)


def level_over_time(
    title: str,
    sentence: str,
    points: Sequence[tuple[float, float]],
    times: Times,
    *,
    level_at: Mark,
    moments: Sequence[Mark] = (),
    breaks: Sequence[float] = (),
) -> Chart:
    """Return a value above 0 over time with a level and moments; arguments as of :func:`course_over_time`.

    No line is drawn over ``breaks``, moments at which there was nothing.
    """
    x = across(times[0][0], times[-1][0])
    y = upwards(0, max(1.15 * level_at.value, *(value for _, value in points)))
    line, label = level(y.place(level_at.value), level_at.label)
    shapes = [
        *grid(x, y, times, labelled(ticks(0, y.last))),
        *uprights([(x.place(moment.value), moment.label) for moment in moments]),
        line,
        *_trace([(x.place(at), y.place(value)) for at, value in points], Tone.CHALLENGER, _placed(breaks, x)),
        label,
    ]
    rows = tuple((time_words(at), figure_words(value)) for at, value in points)
    return Chart(title, sentence, drawing(title, sentence, shapes), (WHEN, "value"), rows)


def lines_over_time(
    title: str, sentence: str, lines: Sequence[Line], times: Times, *, unit: str, moments: Sequence[float] = ()
) -> Chart:
    """Return values of several arms, all from 0 on, in ``unit``; other arguments as of :func:`course_over_time`."""
    x = across(times[0][0], times[-1][0])
    y = upwards(0, 1.1 * max(value for line in lines for _, value in line.points) or 1.0)
    beside = [(value, f"{label} {unit}") for value, label in labelled(ticks(0, y.last))]
    shapes = [
        *grid(x, y, times, beside),
        *uprights([(x.place(moment), "") for moment in moments]),
        *(_line(line, x, y) for line in lines),
        legend([(line.label, line.tone) for line in lines]),
    ]
    moments_drawn = sorted({at for line in lines for at, _ in line.points})
    rows = [(time_words(at), *(_words_at(line, at) for line in lines)) for at in moments_drawn]
    head = (WHEN, *(f"{line.label}, {unit}" for line in lines))
    return Chart(title, sentence, drawing(title, sentence, shapes), head, tuple(rows))


def _line(line: Line, x: Axis, y: Axis) -> str:
    """Return a line from point to point; a stepped one stays as it is until the next point, and to the end."""
    places = [(x.place(at), y.place(value)) for at, value in line.points]
    if line.is_stepped:
        corners = [(after, height) for (_, height), (after, _) in pairwise(places)]
        ends = [(x.end, places[-1][1])]
        places = [place for pair in zip(places, [*corners, *ends], strict=True) for place in pair]
    return "".join(_pieces(places, _placed(line.breaks, x), f"{line.tone} line", line.tone))


def _placed(breaks: Sequence[float], x: Axis) -> list[float]:
    return [x.place(at) for at in breaks]


def _pieces(places: Sequence[tuple[float, float]], breaks: Sequence[float], name: str, tone: Tone) -> list[str]:
    """Return the lines between breaks; a place alone between two of them is a dot."""
    pieces = [[places[0]]]
    for before, place in pairwise(places):
        if any(before[0] <= one <= place[0] for one in breaks):
            pieces.append([])
        pieces[-1].append(place)
    return [
        f'<polyline class="{name}" points="{_points(piece)}"/>' if len(piece) > 1 else _dot(piece[0], tone)
        for piece in pieces
    ]


def _dot(place: tuple[float, float], tone: Tone) -> str:
    return f'<circle class="{tone} dot" cx="{place[0]}" cy="{place[1]}" r="3.5"/>'


def _words_at(line: Line, at: float) -> str:
    """Return a line's value at a moment at which a line of the chart has a point."""
    known = [value for moment, value in line.points if moment == at or (line.is_stepped and moment < at)]
    return figure_words(known[-1]) if known else ""


def _trace(places: Sequence[tuple[float, float]], tone: Tone, breaks: Sequence[float] = ()) -> list[str]:
    """Return a line through places, with a dot at the last one."""
    return [*_pieces(places, breaks, f"{tone} trace", tone), _dot(places[-1], tone)]


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)


def _interval_rows(points: Sequence[Point]) -> tuple[tuple[str, ...], ...]:
    return tuple((time_words(point.at), *map(figure_words, point[1:])) for point in points)
