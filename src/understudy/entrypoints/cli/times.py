"""Times as people type them: ``24h``, ``7d``, a day, a moment."""

import re
from datetime import UTC, datetime

from understudy.entrypoints.cli.failure import CommandRefused, ExitCode

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhdw])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_EXAMPLES = "For example 90s, 30m, 24h, 7d or 2w."


def seconds_of(text: str, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        CommandRefused: It is none, or no time at all; ``option`` is where it was typed.
    """
    found = _DURATION.fullmatch(text.replace(" ", ""))
    seconds = float(found["number"]) * _SECONDS[found["unit"]] if found is not None else 0.0
    if seconds <= 0:
        raise CommandRefused(ExitCode.USAGE, f"{option}: {text!r} is no duration", _EXAMPLES)
    return seconds


def moment_of(text: str, now: float, option: str) -> float:
    """Return a moment in seconds since the epoch: so long ago, or a day or moment in ISO 8601, by default in UTC.

    Raises:
        CommandRefused: It is neither, or not in the past.
    """
    if _DURATION.fullmatch(text.replace(" ", "")):
        return now - seconds_of(text, option)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandRefused(
            ExitCode.USAGE, f"{option}: {text!r} is no time", f"{_EXAMPLES} Or a moment: 2026-11-20, 2026-11-20T13:00Z."
        ) from None
    seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if seconds >= now:
        raise CommandRefused(ExitCode.USAGE, f"{option}: {text} has not come yet", "Name a moment in the past.")
    return seconds


def day_of(seconds: float) -> str:
    """Return a moment's day, in UTC: ``20 Nov``."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.day} {moment:%b}"
