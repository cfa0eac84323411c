"""Words of time: durations and moments as people write them (``24h``, ``7d``, a day) and read them (``1 h 12 m``)."""

import re
from datetime import UTC, datetime
from decimal import Decimal

_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1))
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhdw])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
MAX_SECONDS = 3_660 * 86_400.0
"""Ten years: a longer time is a typing error, and much longer ones are outside of ``datetime``'s range."""
_FIRST_SECONDS = datetime.min.replace(tzinfo=UTC).timestamp()
"""A zone east of Greenwich has the first hours of its year 1 before the first one of UTC."""


def duration_seconds(text: str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: It is not a duration, zero, or more than ten years.
    """
    found = _DURATION.fullmatch(text.replace(" ", ""))
    seconds = float(found["number"]) * _SECONDS[found["unit"]] if found is not None else 0.0
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError("is not a duration")
    return seconds


def exact_duration(seconds: float) -> str:
    """Return a duration above 0 as :func:`duration_seconds` reads it, in the largest unit that it is whole in: ``36h``.

    A fraction of seconds is written out, since no exponent is read.
    """
    units = ((seconds / size, unit) for unit, size in reversed(_SECONDS.items()))
    whole = next((f"{number:.0f}{unit}" for number, unit in units if number >= 1 and number.is_integer()), None)
    return whole or f"{Decimal(repr(float(seconds))):f}s"


def moment_seconds(text: str, now: float) -> float:
    """Return a moment in seconds since the epoch: a duration before ``now``, or ISO 8601, by default in UTC.

    Raises:
        ValueError: It is neither, or not in the past.
    """
    if _DURATION.fullmatch(text.replace(" ", "")):
        return now - duration_seconds(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a time") from None
    seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if seconds < _FIRST_SECONDS:
        raise ValueError("is not a time")
    if seconds >= now:
        raise ValueError("is in the future")
    return seconds


def duration_words(seconds: float) -> str:
    """Return a time in its two largest units: ``1 h 12 m``, ``30 m``, ``0.5 s``."""
    if seconds < 60:  # noqa: PLR2004  # a minute
        return f"{seconds:.3g} s"
    seconds = round(seconds)
    unit, size, smaller, part = next(row for row in _UNITS if seconds >= row[1])
    whole, rest = divmod(round(seconds / part), size // part)
    return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"


def clock_words(moment: float) -> str:
    """Return the hour and minute of a moment in seconds since the epoch: ``01:23 UTC``."""
    minutes = int(moment) // 60
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d} UTC"


def short_duration(seconds: float) -> str:
    """Return a duration in milliseconds, or from one second on in seconds: ``3 ms``, ``2.0 s``."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1_000:.0f} ms"


def moment(seconds: float) -> str:
    """Return a moment, given in seconds since the epoch, in UTC: ``20 Nov 13:00:07``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %H:%M:%S}"
