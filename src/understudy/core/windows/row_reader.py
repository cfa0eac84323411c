"""What windows need to know of the rows of the log, read from COPY text in columns.

Rows of this release have that in their records (:mod:`understudy.core.windows.record_reader`). This reads what a
release before has left in the spool.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import takewhile
from operator import itemgetter
from re import compile as pattern
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.prediction_log.analysis_hash import analysis_digest
from understudy.core.prediction_log.row import Status
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.errors import DeadlineExceeded

NULL = b"\\N"
OK = Status.OK.encode()
STOOD_IN = Status.FALLBACK.encode()
OUT_OF_TIME = DeadlineExceeded.code.encode()
TRUE = b"t"
NEEDED = (
    "predicted_at",
    "model_version_id",
    "assigned_version_id",
    "role",
    "reason",
    "policy_generation",
    "rollout_id",
    "entity_id",
    "score",
    "latency_us",
    "cache_hit",
    "status",
    "error_code",
)
"""The columns that windows need: first those that decide whose window it is."""
LATER = ("deadline_us", "slices")
"""Columns that spools of releases before do not have, the older ones first: calls of theirs have no deadline of their
callers', and no slices."""

_PIECE_ROWS = 256
"""So many rows are taken apart at a time: all fields of thousands do not stay in a processor's cache."""
_SCORE, _LATENCY = NEEDED.index("score"), NEEDED.index("latency_us")
_AFTER = len(NEEDED)
SECOND = len("2025-11-20T18:01:40")
"""Of ``predicted_at``, its part of whole seconds."""
_BIGINT = 2**63
"""Latencies from it on are in no column of the database."""
_ESCAPED = pattern(rb"\\(.)")
_ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


class Shared(NamedTuple):
    """What rows of one group have in common."""

    second: int
    """Of ``predicted_at``, since the epoch."""
    version_id: int
    assigned_id: int
    role: Role
    reason: Reason
    generation: int
    rollout_id: int
    """0 outside of any rollout."""


_Fields = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""The text of a group's :class:`Shared`: the second of ``predicted_at``, and the columns up to ``rollout_id``."""


class Layout(NamedTuple):
    """Where the needed fields are in a row."""

    places: tuple[int, ...]
    """In the order of :data:`NEEDED`, with those of :data:`LATER` behind them that are there."""
    facts_of: Callable[[Sequence[bytes]], tuple[bytes, ...]]
    """From a row's fields to the needed ones."""
    tabs: int
    """Of a whole row."""


class Columns(NamedTuple):
    """What many rows say, each array of shape ``(n,)`` in the order of the rows."""

    groups: list[Shared | None]
    """What the groups have in common, in the order of their first rows; ``None`` where that cannot be read."""
    group: NDArray[np.intp]
    """The group of each row: a place in ``groups``."""
    entity: NDArray[np.uint64]
    """The analysis hash."""
    score: NDArray[np.float64]
    """NaN where there is none."""
    latency_us: NDArray[np.int64]
    is_hit: NDArray[np.bool_]
    is_ok: NDArray[np.bool_]
    has_stood_in: NDArray[np.bool_]
    """Whether the champion answered in the challenger's place."""
    is_out_of_time: NDArray[np.bool_]
    """Whether a deadline ended the call, or what another version had to stand in for."""
    deadline_us: NDArray[np.int64]
    """What the caller gave the call, 0 where that is not less than it would have had anyway."""
    slices: list[bytes]
    """The slices of calls as rows have them, in the order of their first rows; the first ones are none."""
    slices_of: NDArray[np.intp]
    """Those of each row: a place in ``slices``."""
    is_drawn: NDArray[np.bool_]
    """Whether the entity was made for the call, which the text does not say."""
    unreadable_rows: int
    """Rows that were left out: with a field too few, or a number that is none."""


@lru_cache(maxsize=8)
def layout_of(columns: tuple[str, ...]) -> Layout | None:
    """Return where the needed fields are, or ``None`` when a column is missing."""
    if not set(NEEDED).issubset(columns):
        return None
    names = (*NEEDED, *takewhile(columns.__contains__, LATER))
    places = tuple(map(columns.index, names))
    return Layout(places, itemgetter(*places), len(columns) - 1)


def read_columns(rows: Sequence[bytes], layout: Layout) -> Columns | None:
    """Return what the rows say; ``None`` when none of them can be read."""
    numbers: dict[_Fields, int] = {}
    slices = {NULL: 0}
    pieces = []
    for start in range(0, len(rows), _PIECE_ROWS):
        piece = rows[start : start + _PIECE_ROWS]
        fields = _fields(piece, layout)
        read = None if fields is None else _read_fields(fields, numbers, slices)
        if read is None and (readable := _readable(piece, layout)):
            read = _read_fields(list(zip(*readable, strict=True)), numbers, slices)
        if read is not None:
            pieces.append(read)
    if not pieces:
        return None
    group, entity, score, latency_us, is_hit, is_ok, has_stood_in, is_out_of_time, deadline_us, slices_of = map(
        np.concatenate, zip(*pieces, strict=True)
    )
    return Columns(
        groups=[_shared_of(fields) for fields in numbers],
        group=group,
        entity=entity,
        score=score,
        latency_us=latency_us,
        is_hit=is_hit,
        is_ok=is_ok,
        has_stood_in=has_stood_in,
        is_out_of_time=is_out_of_time,
        deadline_us=deadline_us,
        slices=list(slices),
        slices_of=slices_of,
        is_drawn=np.zeros(group.size, np.bool_),
        unreadable_rows=len(rows) - group.size,
    )


def unescaped(text: bytes) -> bytes:
    """Undo what COPY text escapes."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text) if b"\\" in text else text


def _fields(rows: Sequence[bytes], layout: Layout) -> list[list[bytes]] | None:
    """Return the needed columns, or ``None`` when not every row has all fields."""
    tabs = layout.tabs
    if any(row.count(b"\t") != tabs for row in rows) or not all(0 < place < tabs for place in layout.places):
        return None
    # One search for all tabs. A row's last field and the next one's first come out as one, and neither is needed.
    fields = b"".join(rows).split(b"\t")
    return [fields[place::tabs] for place in layout.places]


def _readable(rows: Sequence[bytes], layout: Layout) -> list[tuple[bytes, ...]]:
    """Return the needed fields of the rows that can be read, where not every row of a piece can."""
    found = []
    for row in rows:
        try:
            facts = layout.facts_of(row.split(b"\t"))
        except IndexError:
            continue
        if (
            _read_numbers(facts[_LATENCY : _LATENCY + 1], facts[_SCORE : _SCORE + 1], facts[_AFTER : _AFTER + 1])
            is not None
        ):
            found.append(facts)
    return found


def _read_numbers(
    latency: Sequence[bytes], score: Sequence[bytes], deadline: Sequence[bytes]
) -> tuple[list[int], list[float | None], list[int]] | None:
    try:
        latencies = list(map(int, latency))
        scores = [None if text == NULL else float(text) for text in score]
        deadlines = [0 if text == NULL else int(text) for text in deadline]
    except ValueError:
        return None
    is_in_range = all(not given or (min(given) >= 0 and max(given) < _BIGINT) for given in (latencies, deadlines))
    return (latencies, scores, deadlines) if is_in_range else None


def _read_fields(
    fields: Sequence[Sequence[bytes]], numbers: dict[_Fields, int], slices: dict[bytes, int]
) -> tuple[NDArray[Any], ...] | None:
    """Return the arrays of :class:`Columns` from ``group`` on, ``None`` when a number cannot be read.

    Args:
        fields: The columns of :data:`NEEDED`, and those of :data:`LATER` that are there, of one row at least.
        numbers: The groups so far; new ones are put behind them.
        slices: The slices so far; likewise.
    """
    at, version, assigned, role, reason, generation, rollout, entity_id, score, latency, hit, status, code = fields[
        :_AFTER
    ]
    none = [NULL] * len(at)
    deadline = fields[_AFTER] if len(fields) > _AFTER else none
    sliced = fields[_AFTER + 1] if len(fields) > _AFTER + 1 else none
    read = _read_numbers(latency, score, deadline)
    if read is None:
        return None
    latencies, scores, deadlines = read
    shared = zip([text[:SECOND] for text in at], version, assigned, role, reason, generation, rollout, strict=True)
    return (
        np.array([numbers.setdefault(one, len(numbers)) for one in shared], np.intp),
        _analysis_hashes(entity_id),
        np.array(scores, np.float64),  # makes NaN of None
        np.array(latencies, np.int64),
        np.array([text == TRUE for text in hit]),
        np.array([text == OK for text in status]),
        np.array([text == STOOD_IN for text in status]) if STOOD_IN in status else np.zeros(len(status), np.bool_),
        np.array([text == OUT_OF_TIME for text in code]),
        np.array(deadlines, np.int64),
        np.array([slices.setdefault(text, len(slices)) for text in sliced], np.intp),
    )


def _analysis_hashes(entity_ids: Sequence[bytes]) -> NDArray[np.uint64]:
    digests = [analysis_digest(unescaped(one) if b"\\" in one else one) for one in entity_ids]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _shared_of(fields: _Fields) -> Shared | None:
    at, version, assigned, role, reason, generation, rollout = fields
    with suppress(ValueError):
        second = int(np.datetime64(at.decode(), "s").astype(np.int64))
        rollout_id = 0 if rollout == NULL else int(rollout)
        chosen = Role(role.decode()), Reason(reason.decode())
        return Shared(second, int(version), int(assigned), *chosen, int(generation), rollout_id)
    return None
