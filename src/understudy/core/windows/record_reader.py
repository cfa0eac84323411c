"""What windows need to know of the rows of the log, read from the records beside their text.

Only slices are read from the text, of the rows whose records say that there are some.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.core.prediction_log.row import Status
from understudy.core.prediction_log.row_record import FIELDS, REASONS, ROLES, STATUSES, RowRecords
from understudy.core.windows.row_reader import NULL, Columns, Shared

_NAMES = frozenset(name for name, _ in FIELDS)
_SHARED = np.dtype(list(FIELDS[: 1 + [name for name, _ in FIELDS].index("second")]))
_OK = STATUSES.index(Status.OK)
_STOOD_IN = STATUSES.index(Status.FALLBACK)
_MIX = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2**64 divided by the golden ratio. Any odd constant would do whose product spreads a number over all bits."""
_Facts = tuple[int, int, int, int, int, int, int]


def read_records(records: RowRecords, texts: Sequence[bytes], columns: Sequence[str]) -> Columns | None:
    """Return what the records say; ``None`` when they lack a field, as in segments of another release.

    Args:
        records: One for each row.
        texts: Lines of COPY text, of the same rows.
        columns: What their fields are.
    """
    if not _NAMES.issubset(name for name, _ in records.fields):
        return None
    rows = records.array()
    is_readable = (rows["latency_us"] >= 0) & (rows["deadline_us"] >= 0)
    unreadable_rows = int(np.count_nonzero(~is_readable))
    if unreadable_rows:
        rows = rows[is_readable]
        texts = [text for text, is_kept in zip(texts, is_readable.tolist(), strict=True) if is_kept]
    shared = np.empty(rows.shape, _SHARED)
    for name in _SHARED.names or ():
        shared[name] = rows[name]
    groups, group = _grouped(shared)
    slices, slices_of = _slices(np.flatnonzero(rows["is_sliced"]), texts, columns)
    return Columns(
        groups=[_shared_of(one) for one in groups.tolist()],
        group=group,
        entity=rows["entity_hash"].copy(),
        score=rows["score"].copy(),
        latency_us=rows["latency_us"].copy(),
        is_hit=rows["is_hit"] != 0,
        is_ok=rows["status"] == _OK,
        has_stood_in=rows["status"] == _STOOD_IN,
        is_out_of_time=rows["is_out_of_time"] != 0,
        deadline_us=rows["deadline_us"].copy(),
        slices=slices,
        slices_of=slices_of,
        is_drawn=rows["is_drawn"] != 0,
        unreadable_rows=unreadable_rows,
    )


def _grouped(shared: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.intp]]:
    """Return the different facts, in the order they were met, and which of them each row has."""
    mixed = np.zeros(shared.shape, np.uint64)
    for name in _SHARED.names or ():
        mixed = (mixed ^ shared[name].astype(np.uint64)) * _MIX
    _, first, group = np.unique(mixed, return_index=True, return_inverse=True)
    if shared[first][group].tobytes() != shared.tobytes():  # two facts have one number: hardly ever
        numbers: dict[bytes, int] = {}
        each = [numbers.setdefault(one, len(numbers)) for one in shared.view(f"V{_SHARED.itemsize}").tolist()]
        return np.frombuffer(b"".join(numbers), _SHARED), np.array(each, np.intp)
    order = np.argsort(first)
    return shared[first[order]], np.argsort(order)[group]


def _slices(
    places: NDArray[np.intp], texts: Sequence[bytes], columns: Sequence[str]
) -> tuple[list[bytes], NDArray[np.intp]]:
    """Return the different slices, none first, and those of each row; only the rows at ``places`` have any."""
    numbers = {NULL: 0}
    slices_of = np.zeros(len(texts), np.intp)
    if places.size and "slices" in columns:
        # Counted from the end, since what stands before may be long: an answer, an entity's id.
        from_end = len(columns) - 1 - columns.index("slices")
        for place in places.tolist():
            fields = texts[place].rsplit(b"\t", from_end + 1)
            text = fields[1] if len(fields) == from_end + 2 else NULL
            slices_of[place] = numbers.setdefault(text, len(numbers))
    return list(numbers), slices_of


def _shared_of(facts: _Facts) -> Shared | None:
    """Return what rows of a group share; ``None`` when a later release wrote one of its codes."""
    version_id, assigned_id, generation, rollout_id, role, reason, second = facts
    if role >= len(ROLES) or reason >= len(REASONS):
        return None
    return Shared(second, version_id, assigned_id, ROLES[role], REASONS[reason], generation, rollout_id)
