"""The record of a row: what windows need of it, as numbers in fixed places beside its COPY text in the spool.

The window builder reads the records of thousands of rows as one array, and the text goes to Postgres unread.

A segment names the fields of its records (:data:`FIELDS`), as it names the columns of its text. A later release may add
fields: a reader finds those that it knows by their names, and passes over the others.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.prediction_log.row import Status
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason

Fields = tuple[tuple[str, str], ...]
"""Names and numpy's formats of a record's fields, in their order and without gaps."""

NO_FIELDS: Fields = ()
"""Of rows without records."""

FIELDS: Fields = (
    ("model_version_id", "<i8"),
    ("assigned_version_id", "<i8"),
    ("policy_generation", "<i8"),
    ("rollout_id", "<i8"),
    ("role", "u1"),
    ("reason", "u1"),
    ("second", "<i8"),
    ("status", "u1"),
    ("is_hit", "u1"),
    ("is_out_of_time", "u1"),
    ("entity_hash", "<u8"),
    ("score", "<f8"),
    ("latency_us", "<i8"),
    ("deadline_us", "<i8"),
    ("is_sliced", "u1"),
    ("is_drawn", "u1"),
)
"""The fields up to ``second`` say whose window a row is in. ``second`` is that of ``predicted_at``, since the epoch;
``entity_hash`` is the analysis hash. No rollout and no deadline are 0, no score is NaN. ``is_sliced`` says whether the
row's text has slices: they have no fixed width, and most rows have none. ``is_drawn`` says whether the entity was made
for the call, since its caller named none."""

ROLES = (Role.CHAMPION, Role.CHALLENGER, Role.SHADOW)
REASONS = (Reason.BUCKET, Reason.CATEGORY, Reason.FORCED)
STATUSES = (Status.OK, Status.FALLBACK, Status.TIMEOUT, Status.UNAVAILABLE, Status.BAD_ANSWER, Status.ERROR)
"""A place in one of these stands for its value on disk: new values come behind."""

_FORMAT = re.compile(r"<[iuf][1248]|u1|V[1-9][0-9]{0,2}")


class RowRecords(NamedTuple):
    """The records of rows that follow each other."""

    fields: Fields
    content: bytes

    def array(self) -> NDArray[np.void]:
        """Return them as an array with named fields, of shape ``(n,)``."""
        return np.frombuffer(self.content, np.dtype(list(self.fields)))

    def part(self, start: int, stop: int | None = None) -> "RowRecords":
        """Return those of some rows."""
        width = record_bytes(self.fields)
        return RowRecords(self.fields, self.content[start * width : None if stop is None else stop * width])


NO_RECORDS = RowRecords(NO_FIELDS, b"")


def fields_of(document: Any) -> Fields:
    """Return the fields that a segment's header names.

    Raises:
        TypeError, ValueError: They are no fields.
    """
    fields = tuple((str(name), str(form)) for name, form in document)
    if not all(_FORMAT.fullmatch(form) for _, form in fields):
        raise ValueError("no field of a record has such a format")
    record_bytes(fields)
    return fields


@lru_cache(maxsize=8)
def record_bytes(fields: Fields) -> int:
    """Return how long a record with these fields is; 0 without any."""
    return np.dtype(list(fields)).itemsize
