"""The log as a table of a data lake: its columns, the names of its files, and the parts of a spool that they hold."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.prediction_log.archive_plan import ROWS_ROOT, model_folder

Place = tuple[int, int]
"""Segment and offset of a spool."""

LAYOUT = 2
"""Of files; a committer leaves those of a higher layout to a later release. From 2 on columns have their field ids."""
ENCODING = 3
"""Of a file's bytes, and a part of its name: raised whenever the same rows are other bytes, by a new layout or, as for
3, by another level of compression that every committer can read."""

LAKE_COLUMNS = (
    ("prediction_id", "text"),
    ("predicted_at", "time"),
    ("model", "text"),
    ("version", "text"),
    ("model_version_id", "long"),
    ("assigned_version_id", "long"),
    ("entity_id", "text"),
    ("input_hash", "text"),
    ("prediction", "text"),
    ("score", "double"),
    ("latency_ms", "int"),
    ("latency_us", "long"),
    ("role", "text"),
    ("reason", "text"),
    ("bucket", "int"),
    ("policy_generation", "long"),
    ("rollout_id", "long"),
    ("cache_hit", "bool"),
    ("status", "text"),
    ("error_code", "text"),
    ("defaulted", "text"),
    ("deadline_us", "long"),
    ("slices", "text"),
)
"""Names and kinds, in the order of a file; a later release adds some at the end, since the place, from 1 on, is the
column's field id in files and in the table. ``inputs`` stay out, as they do of the archive: they are erased by age and
by person. ``model`` and ``version`` are the names behind ``model_version_id``."""

MAX_BEHIND_SECONDS = 3_600.0
"""After how long a file that was named, and that its spool has gone past, is taken back."""

KEPT_SNAPSHOTS = 100
"""So many stay however old they are."""
MAX_SNAPSHOTS = 500
"""Beyond these they go however young they are: each change of the table copies what it knows of all of them."""
SNAPSHOTS_AT_ONCE = 50


class Stretch(NamedTuple):
    """Rows of one spool that follow each other, perhaps over several segments; the one before ended at ``start``."""

    spool_id: str
    start: Place
    end: Place


class NamedFile(NamedTuple):
    """A file of a stretch, with the rows of one model in one hour."""

    key: str
    row_count: int
    byte_count: int


def lake_spool(spool_id: str) -> str:
    """Return under which name ``SpoolOffset`` has the place of a spool in the lake."""
    return f"lake:{spool_id}"


def lake_file_key(model: str, hour: str, stretch: Stretch) -> str:
    """Return where a file lies: the same for the same rows, so that writing it again replaces it.

    Another encoding has another name: a file may be named by one release, and written by the next.

    Args:
        model: The model's name.
        hour: Such as ``2026-11-26-17``, in UTC.
        stretch: The rows that the file has a part of.
    """
    spool = stretch.spool_id.rpartition(":")[2]
    places = "-".join(map(str, (*stretch.start, *stretch.end)))
    return f"{ROWS_ROOT}/data/predicted_at_hour={hour}/{model_folder(model)}/{spool}-{places}-{ENCODING}.parquet"


def expired_before(times: Sequence[float], old: float) -> float | None:
    """Return before which moment snapshots of a table go; ``None``: none goes now.

    Args:
        times: Of the snapshots, the oldest first.
        old: Before this moment they are old.
    """
    if len(times) > MAX_SNAPSHOTS + SNAPSHOTS_AT_ONCE:
        return max(times[-MAX_SNAPSHOTS], old)
    return old if len(times) > KEPT_SNAPSHOTS and times[0] < old else None
