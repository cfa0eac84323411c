"""What every chart is made of: its value with the sentence and the figures, axes, grid, levels and moments.

Colours are those of Okabe and Ito, which most colour-blind readers can tell apart; arms also differ in label and line
style. Every text is escaped here, so callers pass plain text.

Source:
    Okabe & Ito, "Color Universal Design" (2008), https://jfly.uni-koeln.de/color/.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from html import escape
from math import floor, isfinite, isinf, log10
from typing import NamedTuple

from understudy.core.amounts import amount_words

WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 30, 50, 36
_MIN_SPAN = 1e-300
"""Smallest span with ticks: below it floats have too few digits."""
_TICKS = 5
_MAX_DECADES = 2
_CHARACTER = 11
"""Widest character of a name in pixels, at the font size of small screens."""
_THOUSAND, _MILLION = 1_000, 1_000_000
_MINUS = "\N{MINUS SIGN}"
_ID_CHARACTERS = 8


class Tone(StrEnum):
    """The role that data belong to; also the name of their CSS class."""

    CHAMPION = "champion"
    CHALLENGER = "challenger"
    SHADOW = "shadow"


class Chart(NamedTuple):
    """A picture, with the same in a sentence and in figures."""

    title: str
    sentence: str
    """What it shows; it is read aloud in the picture's place."""
    svg: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Every point that is drawn."""


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


def across(first: float, last: float) -> Axis:
    """Return the axis from left to right."""
    return Axis(first, last, LEFT, WIDTH - RIGHT)


def upwards(low: float, high: float) -> Axis:
    """Return the axis from below to above."""
    return Axis(low, high, HEIGHT - BOTTOM, TOP)


def drawing(title: str, sentence: str, shapes: Sequence[str]) -> str:
    """Return a chart's SVG, with its title and its sentence for who listens to it."""
    name = f"chart-{sha256(title.encode()).hexdigest()[:_ID_CHARACTERS]}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}" aria-describedby="{name}-says">'
        f'<title id="{name}">{escape(title)}</title><desc id="{name}-says">{escape(sentence)}</desc>'
        f'<text class="title" x="{LEFT}" y="16" aria-hidden="true">{escape(title)}</text>{"".join(shapes)}</svg>'
    )


def time_words(at: float) -> str:
    """Return a moment in UTC as tables of figures have it."""
    return f"{datetime.fromtimestamp(at, UTC):%m-%d %H:%M:%S}"


def figure_words(value: float) -> str:
    """Return a drawn value in four digits; what has no bound is ``∞``."""
    if isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    return amount_words(value, 4).replace("-", _MINUS)


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
    return [(log10(value), _short(value)) for value in values if low <= value <= high]


def labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return ticks with their labels."""
    return [(value, _short(value)) for value in values]


def legend(names: Sequence[tuple[str, Tone]]) -> str:
    """Return what the lines are called, each with a piece of it."""
    found = []
    for number, (label, tone) in enumerate(names):
        left = LEFT + number * (WIDTH - LEFT - RIGHT) / len(names)
        found.append(
            f'<line class="{tone} line" x1="{left:.0f}" x2="{left + 26:.0f}" y1="34" y2="34"/>'
            f'<text x="{left + 32:.0f}" y="39">{escape(label)}</text>'
        )
    return "".join(found)


def grid(x: Axis, y: Axis, below: Sequence[tuple[float, str]], beside: Sequence[tuple[float, str]]) -> list[str]:
    """Return labels below the chart, and labelled lines across it."""
    names = [
        f'<text class="below" x="{x.place(value)}" y="{HEIGHT - BOTTOM + 24}">{escape(text)}</text>'
        for value, text in below
    ]
    for value, text in beside:
        height = y.place(value)
        names.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
        names.append(f'<text class="beside" x="{LEFT - 8}" y="{height + 4}">{escape(text)}</text>')
    return names


def uprights(places: Sequence[tuple[float, str]]) -> list[str]:
    """Return vertical lines; a label is left out where it would overlap a later one."""
    drawn, free_until = [], float(WIDTH)
    for place, label in sorted(places, reverse=True):
        drawn.append(f'<line class="moment" x1="{place}" x2="{place}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        width = _CHARACTER * len(label)
        # Near the right edge a label fits only to the left of its line.
        side, shift = ("beside", -4) if place + 4 + width > WIDTH else ("moment-name", 4)
        start = place + shift - (width if shift < 0 else 0)
        if start + width <= free_until:
            drawn.append(f'<text class="{side}" x="{place + shift}" y="{TOP - 8}">{escape(label)}</text>')
            free_until = start - _CHARACTER
    return drawn


def level(height: float, label: str) -> tuple[str, str]:
    """Return a horizontal line, and its label, which is drawn over everything."""
    below = height < TOP + 2 * _CHARACTER
    return (
        f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>',
        f'<text class="level-name" x="{LEFT + 6}" y="{height + (18 if below else -6)}">{escape(label)}</text>',
    )


def _short(value: float) -> str:
    """Return a tick's label, which is to fit beside the chart: ``20k``, ``1.5M``."""
    if abs(value) >= _MILLION:
        return f"{value / _MILLION:.4g}M".replace("-", _MINUS)
    if abs(value) >= 10 * _THOUSAND:
        return f"{value / _THOUSAND:.4g}k".replace("-", _MINUS)
    return f"{value:,.6g}".replace("-", _MINUS) if abs(value) >= _THOUSAND else f"{value:.4g}".replace("-", _MINUS)
