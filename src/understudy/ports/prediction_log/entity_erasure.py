"""Port of erasing one entity: the ledger of erasures in the database, and the eraser of archived files."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from understudy.core.prediction_log.erasure import EntityRows, Erased
from understudy.ports.prediction_log.log_archive import Archive, ArchivedFile, FileName


class Erasure(NamedTuple):
    """An erasure that is not finished."""

    id: int
    model_name: str | None
    """``None``: every model."""
    entity_id: str
    salt: bytes
    is_resumed: bool


class RewrittenFile(NamedTuple):
    """A file without the entity, on local disk."""

    path: Path
    size_bytes: int
    sha256: str
    was_sha256: str
    """Of the file that it was read from."""
    rows: int
    """That named the entity."""
    longer_bytes: int
    """By how much all entity ids together are longer than before; may be negative."""
    prediction_ids: Sequence[str]
    """That the file does not have any more."""


class Replacement(NamedTuple):
    """A file that takes another's place, from before it is written until the other one is deleted."""

    archive_id: int
    old_key: str
    new_key: str


class FileEraser(Protocol):
    """Reads and writes Parquet files of the archive; every method blocks, and holds one row group in memory.

    Raises ``ArchiveDiffers`` for a file that cannot be read.
    """

    def count(self, path: Path, entity_id: str) -> int:
        """Return how many rows name the entity."""

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file."""

    def rewrite(self, path: Path, target: Path, erasure: Erasure, model_name: str) -> RewrittenFile | None:
        """Write a file without the entity; ``None`` when no row names it."""


class ErasureLedger(Protocol):
    """Erasures in the database. Each change is one short transaction, which adds what it did to the erasure's counts.

    Raises ``RegistryUnavailable``, ``MigrationNeeded``, ``LoginNotAllowed``, ``PolicyRefused``; and ``ArchiveBusy``
    when another session keeps a lock for longer than a minute.
    """

    async def lake(self) -> str | None:
        """Return where the log's table in a lake is, which no erasure reaches; ``None`` without one."""

    async def begin(self, model_name: str | None, entity_id: str, reason: str | None, via: str) -> Erasure:
        """Begin an erasure, or go on with the one that was stopped. Late rows come without their name from now on.

        ``via`` is kept with a new one: how it was asked for, and what of a lake.
        """

    async def wait_for_writers(self) -> None:
        """Wait until no transaction is open that may have come with rows before :meth:`begin`."""

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Keep the archive job and other erasures out; no lock on the log is held.

        Raises:
            ArchiveBusy: One of them is under way, and did not end within ten seconds.
        """

    async def tables(self) -> Sequence[str]:
        """Return the tables with rows of the log: months, and archived months that wait to be dropped."""

    async def erase_table(self, erasure: Erasure, table: str) -> int:
        """Erase the entity from one table and return of how many rows."""

    async def erase_beside_log(self, erasure: Erasure) -> None:
        """Erase the entity from outcomes and dead letters."""

    async def archives(self) -> Sequence[Archive]:
        """Return every archive, whatever its state."""

    async def files(self, archive: Archive) -> Sequence[ArchivedFile]:
        """Return its files that are known to be whole, by key."""

    async def names(self, archive: Archive) -> Sequence[FileName]:
        """Return every object of it that may exist, whole or not."""

    async def begin_archive_anew(self, erasure: Erasure, archive: Archive) -> None:
        """Have a month whose table is still the log's be written again; its objects are deleted."""

    async def replacements(self, erasure: Erasure, archive: Archive) -> Sequence[Replacement]:
        """Return the files of an archive that this or an earlier run of the erasure is replacing."""

    async def current(self, archive: Archive) -> Archive:
        """Return an archive as it is now."""

    async def name_file(self, erasure: Erasure, replacement: Replacement) -> None:
        """Say that a file is about to be written that takes another's place."""

    async def erase_told(self, erasure: Erasure, model_name: str, prediction_ids: Sequence[str]) -> None:
        """Erase the entity from outcomes that name such a prediction alone."""

    async def swap_file(self, erasure: Erasure, replacement: Replacement, written: RewrittenFile) -> None:
        """Have readers go to the new file, and count its rows, in one transaction."""

    async def end_files(self, erasure: Erasure, archive: Archive) -> None:
        """Say that what was replaced in an archive is deleted."""

    async def entity_rows(self, model_name: str | None, entity_id: str) -> EntityRows:
        """Count rows that name the entity. Reads the whole log."""

    async def texts(self, erasure: Erasure) -> int:
        """Count reasons and notes that people wrote with the entity's id in them."""

    async def end(self, erasure: Erasure) -> None:
        """Say that nothing is left, and delete the salt."""

    async def erased(self, erasure: Erasure) -> Erased:
        """Return what an erasure has come to."""
