"""What windows need to know of the rows of the log, read from the records beside their text."""

import numpy as np

from understudy.core.prediction_log.row import Status
from understudy.core.prediction_log.row_record import FIELDS, REASONS, ROLES, STATUSES, RowRecords
from understudy.core.windows.row_reader import Columns, Shared

_NAMES = frozenset(name for name, _ in FIELDS)
_SHARED = np.dtype(list(FIELDS[: 1 + [name for name, _ in FIELDS].index("second")]))
_OK = STATUSES.index(Status.OK)
_Facts = tuple[int, int, int, int, int, int, int]


def read_records(records: RowRecords) -> Columns | None:
    """Return what the records say; ``None`` when they lack a field, as in segments of another release."""
    if not _NAMES.issubset(name for name, _ in records.fields):
        return None
    rows = records.array()
    is_readable = (rows["latency_us"] >= 0) & (rows["deadline_us"] >= 0)
    unreadable_rows = int(np.count_nonzero(~is_readable))
    if unreadable_rows:
        rows = rows[is_readable]
    shared = np.empty(rows.shape, _SHARED)
    for name in _SHARED.names or ():
        shared[name] = rows[name]
    numbers: dict[bytes, int] = {}
    group = [numbers.setdefault(one, len(numbers)) for one in shared.view(f"V{_SHARED.itemsize}").tolist()]
    return Columns(
        [_shared_of(one) for one in np.frombuffer(b"".join(numbers), _SHARED).tolist()],
        np.array(group, np.intp),
        rows["entity_hash"].copy(),
        rows["score"].copy(),
        rows["latency_us"].copy(),
        rows["is_hit"] != 0,
        rows["status"] == _OK,
        rows["is_out_of_time"] != 0,
        rows["deadline_us"].copy(),
        unreadable_rows,
    )


def _shared_of(facts: _Facts) -> Shared | None:
    """Return what rows of a group share; ``None`` when a later release wrote one of its codes."""
    version_id, assigned_id, generation, rollout_id, role, reason, second = facts
    if role >= len(ROLES) or reason >= len(REASONS):
        return None
    return Shared(second, version_id, assigned_id, ROLES[role], REASONS[reason], generation, rollout_id)
