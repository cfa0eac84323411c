"""Freeze windows of a plan: times of the calendar in which a rollout takes no step.

As operators write them, each with a time zone at its end if it is not UTC::

    Fri 18:00 - Mon 08:00 Europe/Berlin         each week
    18:00 - 08:00                               each day
    2026-12-23 18:00 - 2027-01-04 08:00         once

A window holds forward steps only. Whatever is found worse meanwhile is rolled back at once.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAYS_A_WEEK = len(DAYS)
EXPECTED = "expected such as Fri 18:00 - Mon 08:00 Europe/Berlin, 18:00 - 08:00, 2026-12-23 18:00 - 2027-01-04 08:00"

_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_MOMENT = r"(?:(?P<{0}_day>[A-Za-z]{{3}}|\d{{4}}-\d\d-\d\d) +)?(?P<{0}>\d\d:\d\d)"
_WINDOW = re.compile(rf"{_MOMENT.format('begins')} *- *{_MOMENT.format('ends')}(?: +(?P<zone>[\w+/-]+))?", re.ASCII)


class FreezeWindow(NamedTuple):
    """One window; its two days are both names of weekdays (0 is Monday), both dates, or both ``None`` for each day."""

    text: str
    """As the operator wrote it."""
    first_day: int | date | None
    begins: time
    last_day: int | date | None
    ends: time
    zone: str = "UTC"

    def words(self) -> str:
        """Return it as the operator wrote it, with its zone also where that is not written."""
        return self.text if self.text.endswith(self.zone) else f"{self.text} {self.zone}"

    def spans(self, since: float, until: float) -> Iterator[tuple[float, float]]:
        """Return when each of its windows begins and ends that may lie between two times, in seconds since the epoch.

        The clocks of the zone count: where they change within a window, it is an hour longer or shorter.
        """
        zone = _zone(self.zone)
        first, last = (datetime.fromtimestamp(moment, zone).date() for moment in (since, until))
        for day, length in self._days(first - _WEEK, last):
            began, ended = ((day, self.begins), (day + length, self.ends))
            yield datetime.combine(*began, zone).timestamp(), datetime.combine(*ended, zone).timestamp()

    def _days(self, first: date, last: date) -> Iterator[tuple[date, timedelta]]:
        """Return the days from the first to the last on which it begins, with how many days later it ends."""
        if isinstance(self.first_day, date) and isinstance(self.last_day, date):
            yield self.first_day, self.last_day - self.first_day
            return
        every, length = _DAY, (self.ends <= self.begins) * _DAY
        if isinstance(self.first_day, int) and isinstance(self.last_day, int):
            length = (self.last_day - self.first_day) % DAYS_A_WEEK * _DAY
            every, length = _WEEK, length or (self.ends <= self.begins) * _WEEK
            first += (self.first_day - first.weekday()) % DAYS_A_WEEK * _DAY
        while first <= last:
            yield first, length
            first += every


def read_freeze(text: str) -> FreezeWindow:
    """Return the window that a text describes.

    Raises:
        ValueError: It describes none; what is expected instead.
    """
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError(EXPECTED)
    try:
        window = FreezeWindow(
            text=text.strip(),
            first_day=_day(found["begins_day"]),
            begins=time.fromisoformat(found["begins"]),
            last_day=_day(found["ends_day"]),
            ends=time.fromisoformat(found["ends"]),
            zone=found["zone"] or "UTC",
        )
    except ValueError as problem:  # such as 25:00 or 30 February
        raise ValueError(f"{problem}; {EXPECTED}") from None
    if type(window.first_day) is not type(window.last_day):
        raise ValueError(f"expected both ends with a weekday, both with a date, or both with neither; {EXPECTED}")
    if isinstance(window.first_day, date) and isinstance(window.last_day, date):
        if (window.first_day, window.begins) >= (window.last_day, window.ends):
            raise ValueError("expected an end after its beginning")
    elif (window.first_day, window.begins) == (window.last_day, window.ends):
        raise ValueError("expected an end that is not its beginning: no step could ever be taken")
    _zone(window.zone)
    return window


def open_window(windows: Sequence[FreezeWindow], now: float) -> tuple[FreezeWindow, float] | None:
    """Return the open window that ends last, and its end in seconds since the epoch; ``None``: none is open."""
    spans = ((window, *span) for window in windows for span in window.spans(now, now))
    opened = [(ended, window) for window, began, ended in spans if began <= now < ended]
    if not opened:
        return None
    ended, window = max(opened, key=lambda one: one[0])
    return window, ended


def freeze_words(windows: Sequence[FreezeWindow], now: float) -> str:
    """Return in words until when no step is taken, and by which window; empty when none is open."""
    found = open_window(windows, now)
    if found is None:
        return ""
    window, ends = found
    local = datetime.fromtimestamp(ends, _zone(window.zone))
    return f"frozen until {local:%a %Y-%m-%d %H:%M} {window.zone} ({window.text})"


def unfrozen_seconds(windows: Sequence[FreezeWindow], since: float, now: float) -> float:
    """Return how much of the time from ``since`` to ``now`` lay in no window."""
    free_seconds, free_from = 0.0, since
    for began, ended in sorted(span for window in windows for span in window.spans(since, now)):
        free_seconds += max(min(began, now) - free_from, 0.0)
        free_from = max(free_from, ended)
    return free_seconds + max(now - free_from, 0.0)


def _day(text: str | None) -> int | date | None:
    if text is None:
        return None
    if text.isalpha():
        if text.capitalize() not in DAYS:
            raise ValueError(f"{text} is no weekday; there are {', '.join(DAYS)}")
        return DAYS.index(text.capitalize())
    return date.fromisoformat(text)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # unknown, a folder of the database, no name at all
        raise ValueError(f"{name} is not a known time zone, such as UTC or Europe/Berlin") from None
