"""Archiving a month of the log: which one is due, the next step, the figures to compare, and where its files lie."""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple, Self

from understudy.errors import ArchiveDiffers

ROWS_ROOT = "predictionlog"
"""The root folder of the Hive layout that Spark, Trino and DuckDB read."""
MANIFESTS_ROOT = "manifests"
MAX_ATTEMPTS = 3
"""Of writing one month's files in one run; then the run fails, and an operator has to act."""
# What Hive and Spark write as %XX in a partition's value; they leave all else as it is, and so do readers.
MAX_FOLDER_BYTES = 255
"""Of a folder's name in UTF-8: what ext4, XFS, APFS and NTFS take."""
_MODEL = "model="
_CUT = "%7E"
"""Between the beginning of a name and its digest. Nothing else escapes ``~``, so no name that is whole holds this."""
_DIGEST_BYTES = 16
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What readers of Hive's layout take for NULL."""
MAX_QUOTED_KEY = 200
"""Of a refused key in an error, in characters."""
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


class LogPartition(NamedTuple):
    """A month of ``PredictionLog``; times in seconds since the epoch."""

    name: str
    start: float
    end: float
    """The first moment that is not in it."""
    has_rows: bool
    has_inputs: bool
    """Whether it still has logged inputs, which are erased by an age of their own and never archived."""


class ArchiveState(StrEnum):
    """How far archiving a month has come."""

    EXPORTING = "exporting"
    """Its files are being written, or were when the archiver was killed."""
    EXPORTED = "exported"
    VERIFIED = "verified"
    DETACHED = "detached"
    """Readers read the files; its table still exists."""
    ARCHIVED = "archived"


class Step(StrEnum):
    """The next step of archiving a month."""

    EXPORT = "export"
    VERIFY = "verify"
    DETACH = "detach"
    DROP = "drop"


class Fingerprint(NamedTuple):
    """Figures in which a table and its files must agree; sums that do not depend on the order.

    ``understudy_archive_fingerprint`` (migration 0010) has the same ones in SQL, so that Postgres and the reader of
    Parquet files compute them independently.
    """

    rows: int = 0
    id_sum: int = 0
    version_sum: int = 0
    latency_ms_sum: int = 0
    scores: int = 0
    """Rows that have one."""
    prediction_ids: int = 0
    """Rows that have one."""
    entity_bytes: int = 0
    """Of all entity ids, in UTF-8."""
    first_us: int = 0
    """Of the first row, in microseconds since the epoch; 0 without rows."""
    last_us: int = 0

    def plus(self, other: "Fingerprint") -> "Fingerprint":
        """Return the figures of both together."""
        if not self.rows or not other.rows:
            return self if self.rows else other
        added = Fingerprint(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))
        return added._replace(first_us=min(self.first_us, other.first_us), last_us=max(self.last_us, other.last_us))

    @property
    def text(self) -> str:
        """In Postgres' form."""
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what :attr:`text` wrote.

        Raises:
            ValueError: The text is no fingerprint.
        """
        return cls(*map(int, text.split(":")))


def together(parts: Iterable[Fingerprint]) -> Fingerprint:
    """Return the figures of all parts."""
    whole = Fingerprint()
    for part in parts:
        whole = whole.plus(part)
    return whole


def due(
    partitions: Sequence[LogPartition], now: float, after_seconds: float, inputs_seconds: float
) -> list[LogPartition]:
    """Return the months to be archived, the oldest first.

    A month with logged inputs stays until they have reached the age at which they are erased: archiving them would keep
    what was promised to be erased, and dropping them would erase what was promised to be kept. An empty month stays
    while it is so young that it would be created again (``understudy_ensure_partitions`` begins with the month before
    this one).

    Args:
        partitions: All of them.
        now: In seconds since the epoch.
        after_seconds: How long after a month's end it goes.
        inputs_seconds: How long logged inputs are kept.
    """
    return sorted(
        (
            one
            for one in partitions
            if one.end + (max(after_seconds, inputs_seconds) if one.has_inputs else after_seconds) <= now
            and (one.has_rows or one.end + _MADE_AGAIN_SECONDS <= now)
        ),
        key=lambda one: one.start,
    )


_MADE_AGAIN_SECONDS = 31 * 86_400.0


def next_step(state: ArchiveState, *, is_read_back: bool) -> Step | None:
    """Return the next step, ``None`` when nothing is left.

    Args:
        state: How far the month has come.
        is_read_back: Whether this very run has read the files back. Files that an earlier run saw may be gone by now,
            and the table is the only other copy, so an earlier run's check allows no detach and no drop.
    """
    if state is ArchiveState.ARCHIVED:
        return None
    if state is ArchiveState.EXPORTING:
        return Step.EXPORT
    if state is ArchiveState.EXPORTED or not is_read_back:
        return Step.VERIFY
    return Step.DETACH if state is ArchiveState.VERIFIED else Step.DROP


def escaped(value: str) -> str:
    """Return a value as Hive writes it in a folder's name: ``a/b`` is ``a%2Fb``."""
    return _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", value)


def model_folder(model_name: str) -> str:
    """Return the name of a model's folder, of at most :data:`MAX_FOLDER_BYTES`; two models never share one.

    It is ``model=`` and the escaped name where that fits. Otherwise, which is so for names that SQL registered, it is
    the beginning of it, ``%7E`` and a digest of the whole name: the ledger and the manifest have the name itself.
    """
    whole = f"{_MODEL}{escaped(model_name)}"
    if len(whole.encode()) <= MAX_FOLDER_BYTES and model_name != _NULL:
        return whole
    end = f"{_CUT}{blake2b(model_name.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"
    room = MAX_FOLDER_BYTES - len(_MODEL) - len(end)
    parts = [escaped(letter) for letter in model_name]
    sizes = accumulate(len(part.encode()) for part in parts)
    return f"{_MODEL}{''.join(part for part, size in zip(parts, sizes, strict=True) if size <= room)}{end}"


def fits_folder(model_name: str) -> bool:
    """Whether the name of a model's folder alone says which model it is."""
    return _CUT not in model_folder(model_name)


def day_folder(model_name: str, day: str) -> str:
    """Return where the rows of a model and a day (``2026-08-01``, UTC) lie: ``predictionlog/model=…/day=…``."""
    return f"{ROWS_ROOT}/{model_folder(model_name)}/day={day}"


def file_key(model_name: str, day: str, archive_id: int, attempt: int, number: int) -> str:
    """Return the name of one file; no two archives or attempts share one, so a late writer overwrites nothing."""
    return f"{day_folder(model_name, day)}/part-{archive_id}-{attempt}-{number:05d}.parquet"


def manifest_key(partition_name: str, archive_id: int) -> str:
    """Return the name of the list of a month's files, for readers that have the archive and not the database."""
    return f"{MANIFESTS_ROOT}/{partition_name}-{archive_id}.json"


def archive_key(key: str) -> str:
    """Return a key below an archive's own folders, so that a row of ``LogArchiveFile`` reaches no other file.

    Raises:
        ArchiveDiffers: The key is absolute, leaves these folders, or names none of them. Understudy writes no such key.
    """
    root, *below = key.split("/")
    if root in {ROWS_ROOT, MANIFESTS_ROOT} and below and not {"", ".", ".."}.intersection(below):
        return key
    raise ArchiveDiffers(
        f"its key {key[:MAX_QUOTED_KEY]!r} leads out of {ROWS_ROOT}/ and {MANIFESTS_ROOT}/: understudy db archive "
        "writes no such key into LogArchiveFile. No file was touched; delete that row",
        hint="Find the login that inserted the row, and change its password: only understudy db archive should have "
        "the role understudy_retention.",
    )
