"""Which files of the lake's table become one file, and what the new one is called."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.prediction_log.archive_plan import ROWS_ROOT, model_folder

MERGED_BYTES = 128 * 1_048_576
"""What the files that become one have together, at most."""
SMALL_BYTES = MERGED_BYTES // 2
"""A file of so much is large enough: it is read and written no more."""
TINY_BYTES = 1_048_576
"""Below this a file joins others whatever their sizes are."""
MAX_MERGED_FILES = 200
MUCH = 2
"""How many times as large as those before it together a file may be that joins them."""


class TableFile(NamedTuple):
    """A file that the table consists of."""

    path: str
    model: str
    hour: str
    """Such as ``2026-11-26-17``, in UTC."""
    byte_count: int
    row_count: int
    deletes: frozenset[str]
    """Files by which another engine deleted some of its rows."""


def files_to_merge(files: Sequence[TableFile]) -> list[TableFile]:
    """Return which files of one model and hour become one; none when fewer than two do.

    The smallest come first, and a file joins only if those before it have half as much together: so a row is written
    anew only when its file grows by half, however many late files come. Files with row-level deletes stay as they are.
    """
    chosen: list[TableFile] = []
    total = 0
    for file in sorted(files, key=lambda one: (one.byte_count, one.path)):
        if file.deletes:
            continue
        is_much = chosen and file.byte_count > max(MUCH * total, TINY_BYTES)
        if is_much or file.byte_count >= SMALL_BYTES or total + file.byte_count > MERGED_BYTES:
            break
        chosen.append(file)
        total += file.byte_count
        if len(chosen) == MAX_MERGED_FILES:
            break
    return chosen if len(chosen) > 1 else []


def crowded(files: Sequence[TableFile]) -> list[TableFile]:
    """Return the files to merge of the model and hour that has most of them."""
    groups: dict[tuple[str, str], list[TableFile]] = {}
    for file in files:
        groups.setdefault((file.model, file.hour), []).append(file)
    return max(map(files_to_merge, groups.values()), key=len, default=[])


def rewritten_key(model: str, hour: str, number: int, attempt: str, place: int) -> str:
    """Return the name of a file that takes the place of others; no attempt of any rewrite has that of another one."""
    return f"{ROWS_ROOT}/data/predicted_at_hour={hour}/{model_folder(model)}/anew-{number}-{attempt}-{place}.parquet"
