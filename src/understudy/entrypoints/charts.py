"""Self-contained charts (SVG) and report pages (HTML): no script, no font, no request.

Colours are those of Okabe and Ito, which most colour-blind readers can tell apart; arms also differ in label and line
style. Every text is escaped here, so callers pass plain text.

Source:
    Okabe & Ito, "Color Universal Design" (2008), https://jfly.uni-koeln.de/color/.
"""

from collections.abc import Sequence
from enum import StrEnum
from html import escape
from math import floor, isfinite, log10
from typing import NamedTuple

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 30, 36, 36
_MIN_SPAN = 1e-300
"""Smallest span with ticks: below it floats have too few digits."""
_TICKS = 5
_MAX_DECADES = 2
_CHARACTER = 9
"""Widest character of a name in pixels, at the font size of small screens."""
_MINUS = "\N{MINUS SIGN}"


class Tone(StrEnum):
    """The role that data belong to; also the name of their CSS class."""

    CHAMPION = "champion"
    CHALLENGER = "challenger"
    SHADOW = "shadow"


class Distribution(NamedTuple):
    """A histogram: how many values one arm has in each cell."""

    label: str
    tone: Tone
    cells: Sequence[float]


class Point(NamedTuple):
    """A value with its interval, at a time in seconds since the epoch."""

    at: float
    value: float
    low: float
    high: float


class Mark(NamedTuple):
    """A labelled value or moment."""

    value: float
    label: str


class Axis(NamedTuple):
    """A linear scale from a span of values to a span of pixels."""

    first: float
    last: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (value - self.first) / (self.last - self.first or 1)
        return round(self.start + share * (self.end - self.start), 1)


def distributions(title: str, arms: Sequence[Distribution], edges: Sequence[float]) -> str:
    """Return the arms' histograms over each other, each as shares of its own total; a cell lies between two edges."""
    shares = [[count / (sum(arm.cells) or 1) for count in arm.cells] for arm in arms]
    highest = max((share for own in shares for share in own), default=0) or 1
    x = Axis(edges[0], edges[-1], _LEFT, WIDTH - _RIGHT)
    y = Axis(0, highest, HEIGHT - _BOTTOM, _TOP)
    lines = [_outline(arm, own, edges, x, y) for arm, own in zip(arms, shares, strict=True)]
    percents = [(share, f"{100 * share:.3g} %") for share in ticks(0, highest)]
    return _chart(title, [*_grid(x, y, _labelled(ticks(edges[0], edges[-1])), percents), *lines, _legend(arms)])


def pairs_of_values(title: str, pairs: Sequence[tuple[float, float]]) -> str:
    """Return a dot for each pair of values, at least one pair: the first value to the right, the other one up."""
    firsts, others = [first for first, _ in pairs], [other for _, other in pairs]
    x = Axis(min(firsts), max(firsts), _LEFT, WIDTH - _RIGHT)
    y = Axis(min(others), max(others), HEIGHT - _BOTTOM, _TOP)
    dots = [
        f'<circle class="{Tone.CHALLENGER} dot" cx="{x.place(one)}" cy="{y.place(other)}" r="2.5"/>'
        for one, other in pairs
    ]
    return _chart(title, [*_grid(x, y, _labelled(ticks(x.first, x.last)), _labelled(ticks(y.first, y.last))), *dots])


def interval_over_time(
    title: str, points: Sequence[Point], times: Sequence[tuple[float, str]], unit: str, tone: Tone = Tone.CHALLENGER
) -> str:
    """Return a value with its interval over time, and the line at zero; arguments as of :func:`course_over_time`."""
    low, high = min(0.0, *(point.low for point in points)), max(0.0, *(point.high for point in points))
    x = Axis(min(points[0].at, times[0][0]), max(points[-1].at, times[-1][0]), _LEFT, WIDTH - _RIGHT)
    y = Axis(low, high, HEIGHT - _BOTTOM, _TOP)
    upper = [f"{x.place(point.at)},{y.place(point.high)}" for point in points]
    lower = [f"{x.place(point.at)},{y.place(point.low)}" for point in reversed(points)]
    middle = " ".join(f"{x.place(point.at)},{y.place(point.value)}" for point in points)
    last = points[-1]
    return _chart(
        f"{title} ({unit})",
        [
            *_grid(x, y, times, _labelled(ticks(low, high))),
            f'<polygon class="{tone} band" points="{" ".join([*upper, *lower])}"/>',
            f'<polyline class="{tone} trace" points="{middle}"/>',
            f'<circle class="{tone} dot" cx="{x.place(last.at)}" cy="{y.place(last.value)}" r="3.5"/>',
            f'<line class="zero" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.place(0)}" y2="{y.place(0)}"/>',
        ],
    )


def course_over_time(
    title: str,
    points: Sequence[Point],
    times: Sequence[tuple[float, str]],
    *,
    span: tuple[float, float],
    levels: Sequence[Mark],
    moments: Sequence[Mark],
    is_logarithmic: bool,
) -> str:
    """Return a value over time with its interval, horizontal levels and vertical moments.

    Args:
        title: What the value is.
        points: In the order of their times, at least one; a value or an interval may reach to infinity.
        times: Labelled moments of the time axis, in seconds since the epoch; the first and last one bound the chart.
        span: Smallest and largest value that is shown; values beyond them are drawn at the chart's edge.
        levels: Horizontal lines.
        moments: Vertical lines; where two labels would overlap, only the later one is written.
        is_logarithmic: Whether the value axis is logarithmic; then the span is above 0.
    """
    scaled = log10 if is_logarithmic else float
    x = Axis(times[0][0], times[-1][0], _LEFT, WIDTH - _RIGHT)
    y = Axis(scaled(span[0]), scaled(span[1]), HEIGHT - _BOTTOM, _TOP)
    beside = powers(*span) if is_logarithmic else _labelled(ticks(*span))

    def at(value: float) -> float:
        return y.place(scaled(min(max(value, span[0]), span[1])))

    band = [f"{x.place(point.at)},{at(point.high)}" for point in points]
    band += [f"{x.place(point.at)},{at(point.low)}" for point in reversed(points)]
    trace = " ".join(f"{x.place(point.at)},{at(point.value)}" for point in points)
    last = points[-1]
    return _chart(
        title,
        [
            *_grid(x, y, times, beside),
            f'<polygon class="{Tone.CHALLENGER} band" points="{" ".join(band)}"/>',
            *_uprights([(x.place(moment.value), moment.label) for moment in moments]),
            *(_level(at(level.value), level.label) for level in levels),
            f'<polyline class="{Tone.CHALLENGER} trace" points="{trace}"/>',
            f'<circle class="{Tone.CHALLENGER} dot" cx="{x.place(last.at)}" cy="{at(last.value)}" r="3.5"/>',
        ],
    )


def level_over_time(
    title: str,
    points: Sequence[tuple[float, float]],
    times: Sequence[tuple[float, str]],
    *,
    level: Mark,
    moments: Sequence[Mark] = (),
) -> str:
    """Return a value above 0 over time with a level and moments; arguments as of :func:`course_over_time`."""
    x = Axis(times[0][0], times[-1][0], _LEFT, WIDTH - _RIGHT)
    y = Axis(0, max(1.15 * level.value, *(value for _, value in points)), HEIGHT - _BOTTOM, _TOP)
    trace = " ".join(f"{x.place(at)},{y.place(value)}" for at, value in points)
    last_at, last_value = points[-1]
    return _chart(
        title,
        [
            *_grid(x, y, times, _labelled(ticks(0, y.last))),
            *_uprights([(x.place(moment.value), moment.label) for moment in moments]),
            _level(y.place(level.value), level.label),
            f'<polyline class="{Tone.CHALLENGER} trace" points="{trace}"/>',
            f'<circle class="{Tone.CHALLENGER} dot" cx="{x.place(last_at)}" cy="{y.place(last_value)}" r="3.5"/>',
        ],
    )


def story(title: str, lines: Sequence[tuple[str, str]]) -> str:
    """Return a list of events, each with its time."""
    told = "".join(f"<dt>{escape(when)}</dt><dd>{escape(what)}</dd>" for when, what in lines)
    return f"<h2>{escape(title)}</h2><dl>{told}</dl>"


def heading(title: str) -> str:
    """Return the heading of a part of a page."""
    return f"<h2>{escape(title)}</h2>"


def remark(text: str) -> str:
    """Return a sentence below a part of a page."""
    return f'<p class="remark">{escape(text)}</p>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; all columns but the first are figures."""
    titles = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in rows)
    return f"<table><tr>{titles}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def page(title: str, verdict: Sequence[str], parts: Sequence[str], note: str) -> str:
    """Return a whole page: the verdict, then charts and tables, then a note on the source.

    Args:
        title: Of the page.
        verdict: Plain text, a paragraph each.
        parts: HTML that functions of this module returned.
        note: Plain text.
    """
    sentences = "".join(f'<p class="verdict">{escape(text)}</p>' for text in verdict)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>"
        f"{sentences}{''.join(f'<section>{part}</section>' for part in parts)}"
        f"<footer>{escape(note)}</footer></main></body></html>\n"
    )


def ticks(low: float, high: float) -> list[float]:
    """Return round values between two, about five of them."""
    if not (isfinite(low) and isfinite(high)) or high - low < _MIN_SPAN:
        return [low]
    raw = (high - low) / _TICKS
    size = 10.0 ** floor(log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * (1 - 1e-9))
    first = floor(low / step)
    places = [step * number for number in range(first, first + 3 * _TICKS)]
    return [float(f"{place:.12g}") for place in places if low - step * 1e-9 <= place <= high + step * 1e-9]


def powers(low: float, high: float) -> list[tuple[float, str]]:
    """Return labelled ticks of a logarithmic axis: powers of ten, over few decades also twice and five times each."""
    first, last = floor(log10(low)), floor(log10(high))
    factors = (1, 2, 5) if last - first <= _MAX_DECADES else (1,)
    step = 1 if last - first <= _TICKS else 2
    values = [factor * 10.0**power for power in range(first, last + 1, step) for factor in factors]
    return [(log10(value), f"{value:,.6g}") for value in values if low <= value <= high]


def _uprights(places: Sequence[tuple[float, str]]) -> list[str]:
    """Return vertical lines; a label is left out where it would overlap a later one."""
    drawn, free_until = [], float(WIDTH)
    for place, label in sorted(places, reverse=True):
        drawn.append(f'<line class="moment" x1="{place}" x2="{place}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        width = _CHARACTER * len(label)
        # Near the right edge a label fits only to the left of its line.
        side, shift = ("beside", -4) if place + 4 + width > WIDTH else ("moment-name", 4)
        start = place + shift - (width if shift < 0 else 0)
        if start + width <= free_until:
            drawn.append(f'<text class="{side}" x="{place + shift}" y="{_TOP - 6}">{escape(label)}</text>')
            free_until = start - _CHARACTER
    return drawn


def _level(height: float, label: str) -> str:
    below = height < _TOP + 2 * _CHARACTER
    return (
        f'<line class="level" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height}" y2="{height}"/>'
        f'<text class="level-name" x="{_LEFT + 6}" y="{height + (14 if below else -5)}">{escape(label)}</text>'
    )


def _labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    return [(value, f"{value:.4g}".replace("-", _MINUS)) for value in values]


def _outline(arm: Distribution, shares: Sequence[float], edges: Sequence[float], x: Axis, y: Axis) -> str:
    """Return a histogram's outline."""
    steps = [f"M{x.place(edges[0])},{y.place(0)}"]
    for share, left, right in zip(shares, edges, edges[1:], strict=False):
        steps.append(f"L{x.place(left)},{y.place(share)}L{x.place(right)},{y.place(share)}")
    steps.append(f"L{x.place(edges[-1])},{y.place(0)}")
    return f'<path class="{arm.tone} area" d="{"".join(steps)}"/>'


def _legend(arms: Sequence[Distribution]) -> str:
    names = []
    for number, arm in enumerate(arms):
        left = _LEFT + number * (WIDTH - _LEFT - _RIGHT) / len(arms)
        names.append(
            f'<line class="{arm.tone} line" x1="{left:.0f}" x2="{left + 26:.0f}" y1="26" y2="26"/>'
            f'<text x="{left + 32:.0f}" y="30">{escape(arm.label)}</text>'
        )
    return "".join(names)


def _grid(x: Axis, y: Axis, below: Sequence[tuple[float, str]], beside: Sequence[tuple[float, str]]) -> list[str]:
    names = [
        f'<text class="below" x="{x.place(value)}" y="{HEIGHT - _BOTTOM + 18}">{escape(text)}</text>'
        for value, text in below
    ]
    for value, text in beside:
        height = y.place(value)
        names.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height}" y2="{height}"/>')
        names.append(f'<text class="beside" x="{_LEFT - 8}" y="{height + 4}">{escape(text)}</text>')
    return names


def _chart(title: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<text class="title" x="{_LEFT}" y="14">{escape(title)}</text>{"".join(shapes)}</svg>'
    )


_STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--faint:#6b6b6b;--rule:#dcdcdc;
--champion:#0072B2;--challenger:#D55E00;--shadow:#CC79A7}
@media (prefers-color-scheme:dark){:root{--ink:#ececec;--paper:#15171a;--faint:#a3a3a3;--rule:#33373c}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:820px;margin:0 auto;padding:24px 20px}
h1{font-size:20px;margin:0 0 12px}.verdict{font-size:17px;margin:0 0 8px}
section{margin:24px 0;overflow-x:auto}footer{color:var(--faint);font-size:13px}
table{border-collapse:separate;border-spacing:0;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 8px;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap;line-height:22px}
th:first-child,td:first-child{text-align:left;padding-left:0}
.remark{color:var(--faint);font-size:13px;margin:6px 0 0}
h2{font-size:15px;margin:0 0 6px}dl{margin:0;display:grid;grid-template-columns:max-content 1fr;gap:4px 14px}
dt{color:var(--faint);font-variant-numeric:tabular-nums}dd{margin:0;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto}svg+svg{margin-top:10px}
svg text{fill:var(--ink);font-size:12px}.title{font-weight:600}
.below{text-anchor:middle}.beside{text-anchor:end}.below,.beside{fill:var(--faint)}
.grid{stroke:var(--rule)}.zero{stroke:var(--ink);stroke-width:1.5}
.champion{--tone:var(--champion)}.challenger{--tone:var(--challenger)}.shadow{--tone:var(--shadow)}
.area{fill:var(--tone);fill-opacity:.18;stroke:var(--tone);stroke-width:2}
.line,.trace{fill:none;stroke:var(--tone);stroke-width:2.5}.dot{fill:var(--tone)}
.band{fill:var(--tone);fill-opacity:.2}.challenger.area,.challenger.line{stroke-dasharray:7 3}
.shadow.area,.shadow.line{stroke-dasharray:2 3}
.level{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:6 4}.moment{stroke:var(--faint);stroke-dasharray:2 3}
.moment-name{fill:var(--faint)}.level-name{paint-order:stroke;stroke:var(--paper);stroke-width:4px}
@media (max-width:560px){main{padding:16px 10px}section{padding:6px 0 0 8px}svg{overflow:visible}
th:first-child,td:first-child{position:sticky;left:0;background:var(--paper)}
svg text{font-size:17px}svg+svg{margin-top:16px}.title{transform:translateY(-5px)}}
""".replace("\n", "")
