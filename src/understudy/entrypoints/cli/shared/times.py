"""Times of options, refused with examples, and moments and spans of time as people read them."""

from datetime import UTC, datetime

from understudy.core.durations import duration_seconds, moment_seconds
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_MARKS = 5
_MINUTES_SECONDS = 3_600
"""Moments named below a chart."""
_EXAMPLES = "For example 90s, 30m, 24h, 7d or 2w."


def seconds_of(text: str, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        CommandRefused: It is none, or no time at all; ``option`` is where it was typed.
    """
    try:
        return duration_seconds(text)
    except ValueError as problem:
        raise CommandRefused(ExitCode.USAGE, f"{option}: {text!r} {problem}", _EXAMPLES) from None


def moment_of(text: str, now: float, option: str) -> float:
    """Return a moment in seconds since the epoch: so long ago, or a day or moment in ISO 8601, by default in UTC.

    Raises:
        CommandRefused: It is neither, or not in the past.
    """
    try:
        return moment_seconds(text, now)
    except ValueError as problem:
        raise CommandRefused(
            ExitCode.USAGE,
            f"{option}: {text!r} {problem}",
            f"{_EXAMPLES} Or a moment in the past: 2026-11-20, 2026-11-20T13:00Z.",
        ) from None


def day_of(seconds: float) -> str:
    """Return a moment's day, in UTC: ``20 Nov``."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.day} {moment:%b}"


def time_of_day(seconds: float) -> str:
    """Return a moment's time of the day, in UTC: ``13:00``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M}"


def moment_words(seconds: float, now: float | None = None) -> str:
    """Return a moment in UTC: ``20 Nov 13:00``; of one within a day before ``now`` the time, else the day."""
    if now is None:
        return f"{day_of(seconds)} {time_of_day(seconds)}"
    return time_of_day(seconds) if now - seconds < _DAY else day_of(seconds)


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """Return a moment in the past for people: ``12 s ago``."""
    if moment is None:
        return "never"
    seconds = int(((now or datetime.now(UTC)) - moment).total_seconds())
    if seconds < 0:
        return "just now"
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def instant(moment: datetime | float) -> str:
    """Return a moment in UTC to the second, as other tools take it: ``2026-11-20 13:00:07Z``."""
    known = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return f"{known.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def when_words(moment: datetime | None, now: datetime | None = None, *, utc: bool) -> str:
    """Return a moment in the past for a table: ``12 s ago``, or with ``utc`` as :func:`instant` says it."""
    return instant(moment) if utc and moment is not None else ago(moment, now)


def ago_and_at(moment: datetime, now: datetime | None = None) -> str:
    """Return a moment in the past where there is room for both: ``12 s ago (20 Nov 13:00 UTC)``."""
    return f"{ago(moment, now)} ({moment_words(moment.timestamp())} UTC)"


def minutes_and_seconds(seconds: float) -> str:
    """Return a short span of time as a clock shows it: ``1:04``."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes}:{rest:02}"


def event_time(at: float, began_at: float | None) -> str:
    """Return when something happened, of equal width: from ``began_at`` on, or without it as :func:`instant`."""
    return instant(at) if began_at is None else f"{minutes_and_seconds(at - began_at):>6}"


def time_axis_marks(first: float, last: float) -> list[tuple[float, str]]:
    """Return moments at equal distances between two others, and their names: days, times of the day, or its seconds."""
    moments = [first + (last - first) * number / (_MARKS - 1) for number in range(_MARKS)]
    if last - first > 2 * 86_400:
        days = [day_of(moment) for moment in moments]
        # Of two marks within one day the later one has its time: a day's name twice would be no scale.
        return [
            (moment, day if number == 0 or days[number - 1] != day else time_of_day(moment))
            for number, (moment, day) in enumerate(zip(moments, days, strict=True))
        ]
    # A mark of a short chart lies between two minutes: the minute alone would name a place up to 59 s off.
    pattern = "%H:%M" if last - first >= _MINUTES_SECONDS else "%H:%M:%S"
    return [(moment, f"{datetime.fromtimestamp(moment, UTC):{pattern}}") for moment in moments]
