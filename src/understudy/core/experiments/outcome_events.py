"""Outcome events: what happened after a prediction, read from the documents that services, files and people send.

An event::

    {"event_id": "order-81723", "model": "churn", "entity_id": "cust-42", "name": "converted", "value": 1,
     "occurred_at": "2026-11-20T13:02:11Z"}

``prediction_id`` may stand beside or in place of ``entity_id``. HTTP bodies and files are both read here, so that an
event means the same in each; the time is parsed from its text here too, and reported with all else that is wrong.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from understudy.core.schema.features import MAX_NAME_SHOWN
from understudy.errors import MAX_VIOLATIONS, BatchInvalid, Violation

MAX_EVENTS = 1_000
"""Events of one batch."""
MAX_VALUE = 1e20
"""Of an outcome, either side of zero: sums of its squares are still finite floats."""
_BATCH_HINT = f'Send {{"events": [...]}} with 1 to {MAX_EVENTS:,} events; POST the next ones as another batch.'
_CORRECT = (
    "Nothing was stored: correct these events or leave them out, and send the batch again; each event counts once."
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_TIME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?P<fraction>\.\d+)?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01]\d|2[0-3])(?::?(?P<minutes>[0-5]\d))?)",
    re.ASCII | re.IGNORECASE,
)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""What Postgres' text cannot hold: U+0000, and halves of a surrogate pair."""
_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_800.0
"""The first second of year 1 and the first of year 10000, UTC: what both Postgres and Python can hold."""


class OutcomeEvent(NamedTuple):
    """One thing that happened to an entity, or after one prediction; at least one of both ids is there."""

    event_id: str
    """The sender's own, for this model: sent again, the event counts once."""
    model_name: str
    entity_id: str | None
    prediction_id: str | None
    name: str
    value: float
    """Finite; 1 for something that either happens or does not."""
    occurred_at: float
    """Seconds since the epoch."""


class Refusal(NamedTuple):
    """An event that cannot be used, under the id it gave itself if that can be read, and everything wrong with it."""

    event_id: str | None
    violations: tuple[Violation, ...]


def read_outcome_batch(document: Any) -> list[OutcomeEvent]:
    """Return the events of ``{"events": [...]}``, in order.

    Raises:
        BatchInvalid: If it holds no list of 1 to :data:`MAX_EVENTS` events, or events in it cannot be used: the first
            1,000 places are named, like ``/events/3/value``.
    """
    events = document.get("events") if isinstance(document, dict) else None
    if not isinstance(events, list) or len(document) != 1:
        raise BatchInvalid('expected an object with "events" alone: a list of outcome events', hint=_BATCH_HINT)
    if not 1 <= len(events) <= MAX_EVENTS:
        raise BatchInvalid(f"a batch has 1 to {MAX_EVENTS:,} events, this one {len(events):,}", hint=_BATCH_HINT)
    outcomes: list[OutcomeEvent] = []
    violations: list[Violation] = []
    for index, event in enumerate(events):
        found = read_event(event, f"/events/{index}")
        if isinstance(found, OutcomeEvent):
            outcomes.append(found)
        else:
            violations += found.violations
            if len(violations) >= MAX_VIOLATIONS:
                more = "" if index + 1 == len(events) else " or more"
                raise unusable(f"{index + 1 - len(outcomes):,}{more}", len(events), violations)
    if violations:
        raise unusable(f"{len(events) - len(outcomes):,}", len(events), violations)
    return outcomes


def unusable(bad: str, events: int, violations: list[Violation]) -> BatchInvalid:
    """Return the refusal of a batch: how many of its events cannot be used, and the first places that are wrong."""
    what = f"{bad} of {events:,} events cannot be used"
    return BatchInvalid(what, tuple(violations[:MAX_VIOLATIONS]), hint=_CORRECT)


def event_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a file as an event: empty cells are missing, and a value that reads as a number is one.

    Columns that are no field of an event are left out: a file is rarely made for this alone.
    """
    event = {name: row[name] for name in _READERS if row.get(name) not in (None, "")}
    value = event.get("value")
    if isinstance(value, str):
        with suppress(ValueError):
            event["value"] = float(value)
    return event


def read_event(event: Any, pointer: str) -> OutcomeEvent | Refusal:
    """Return an event, or everything that is wrong with it; ``pointer`` is where it stands."""
    if not isinstance(event, dict):
        return Refusal(None, (Violation(pointer, "expected an object"),))
    violations: list[Violation] = []
    values = {name: _read(name, event, pointer, violations) for name in _READERS}
    if event.get("entity_id") is None and event.get("prediction_id") is None:
        violations.append(Violation(f"{pointer}/entity_id", "missing; expected it, or a prediction_id, or both"))
    unknown = islice((str(name) for name in event if name not in _READERS), MAX_VIOLATIONS)
    violations.extend(
        Violation(f"{pointer}/{_escaped(name)}", "is not a field of an outcome event") for name in unknown
    )
    if violations:
        return Refusal(values["event_id"], tuple(violations))
    return OutcomeEvent(**{_NAMES.get(name, name): value for name, value in values.items()})


def _read(name: str, event: Mapping[str, Any], pointer: str, violations: list[Violation]) -> Any:
    """Return one field; ``None`` when it is missing or cannot be used, which is then among the violations."""
    value = event.get(name)
    if value is None and name in _OPTIONAL:
        return None
    try:
        return _READERS[name](value)
    except ValueError as problem:
        missing = "missing; " if value is None else ""
        violations.append(Violation(f"{pointer}/{name}", f"{missing}{problem}"))
        return None


def _escaped(name: str) -> str:
    return name[:MAX_NAME_SHOWN].replace("~", "~0").replace("/", "~1")


def _text(longest: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= longest:
            raise ValueError(f"expected a string of 1 to {longest} characters")
        if _UNSTORABLE.search(value):
            raise ValueError("holds U+0000 or half of a surrogate pair, which Postgres cannot store")
        return value

    return read


def _uuid(value: Any) -> str:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise ValueError("expected the prediction_id of an answer, a UUID")
    return value.lower()


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("expected a number; 1 for yes and 0 for no")
    # NaN is not within anything.
    if not abs(value) <= MAX_VALUE:
        raise ValueError(f"expected a number from {-MAX_VALUE:g} to {MAX_VALUE:g}")
    return float(value)


def _time(value: Any) -> float:
    """Return a time in seconds since the epoch; numpy knows the calendar, which ``datetime`` is not to do in here."""
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('expected a time with its zone as in ISO 8601, "2026-11-20T13:02:11Z"')
    try:
        local = np.datetime64(f"{found['date']}T{found['time']}", "s").astype(np.int64)
    except ValueError:
        raise ValueError("is no time that exists") from None
    offset = 3600 * int(found["hours"] or 0) + 60 * int(found["minutes"] or 0)
    seconds = float(local) + float(found["fraction"] or 0) - (-offset if found["sign"] == "-" else offset)
    if not _EARLIEST <= seconds < _LATEST:
        raise ValueError("expected a time between the years 1 and 9999")
    return seconds


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "event_id": _text(255),
    "model": _text(255),
    "entity_id": _text(255),
    "prediction_id": _uuid,
    "name": _text(100),
    "value": _number,
    "occurred_at": _time,
}
"""The fields of an event; the lengths are those of the columns of ``OutcomeEvent``."""
_OPTIONAL = ("entity_id", "prediction_id")
_NAMES = {"model": "model_name"}
