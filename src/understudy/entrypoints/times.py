"""Times as people write them: ``24h``, ``7d``, a day, a moment."""

import re
from datetime import UTC, datetime

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhdw])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
MAX_SECONDS = 3_660 * 86_400.0
"""Ten years: a longer time is a typing error, and much longer ones are outside of ``datetime``'s range."""


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
    if seconds >= now:
        raise ValueError("is in the future")
    return seconds
