"""The log as a table of a data lake: what proxies write beside Postgres, and what the monitor's leader commits."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from understudy.core.prediction_log.lake import NamedFile, Place, Stretch
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.prediction_log import SpooledBatch


class VersionName(NamedTuple):
    """What people call a version."""

    model: str
    version: str


class LateRow(NamedTuple):
    """A row that is old enough to be of an entity that was erased since."""

    model: str
    entity_id: str
    predicted_at: float
    prediction_id: str


class LakeLedger(Protocol):
    """What a shipper writes down about files, in Postgres."""

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Have the calls inside use one connection: connecting takes longer than any of them."""

    async def committed(self, spool_id: str) -> Place:
        """Return up to which place a spool's rows are in stored files; ``(0, 0)`` for a new one.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """

    async def names_of(self, version_ids: Sequence[int]) -> Mapping[int, VersionName]:
        """Return the names of versions; one that is not registered (any more) is left out.

        Raises:
            RegistryUnavailable: As :meth:`committed`.
        """

    async def name(self, stretch: Stretch, keys: Sequence[str]) -> float | None:
        """Write down the names of files that are about to be stored, so that no file is unknown.

        Returns:
            Up to when rows may be of an entity that was erased, as known after that: an erasure that begins later
            waits for these files. ``None`` while no entity was ever erased.

        Raises:
            RegistryUnavailable: As :meth:`committed`.
        """

    async def late_names(self, rows: Sequence[LateRow]) -> Mapping[int, tuple[str, str]]:
        """Return by their places which of some rows are of erased entities, and their new entity and prediction ids.

        Raises:
            RegistryUnavailable: As :meth:`committed`.
        """

    async def stored(self, stretch: Stretch, files: Sequence[NamedFile]) -> bool:
        """Say that the files are stored and move the spool's place, or neither; ``False`` when that was elsewhere.

        Raises:
            RegistryUnavailable: Nothing is known to be written: read :meth:`committed` again.
        """


class LakeFiles(Protocol):
    """Turns the rows of one stretch of a spool into files. Every call may block: it belongs into a thread."""

    def add(self, batch: SpooledBatch) -> int:
        """Take the rows of a batch; return how many of them cannot be read as columns and are left out."""

    def version_ids(self) -> Sequence[int]:
        """Return the versions of all rows that were added."""

    def write(self, stretch: Stretch, names: Mapping[int, VersionName]) -> tuple[Sequence[tuple[NamedFile, Path]], int]:
        """Write what was added, one file for each model and hour.

        Returns:
            The files with where each lies, and how many rows belong to no version that has a name.

        Raises:
            OSError: The disk refuses.
        """

    def late(self, path: Path, before: float) -> Sequence[LateRow]:
        """Return the rows of a written file from before a moment, in the file's order."""

    def erase(self, file: NamedFile, path: Path, before: float, names: Mapping[int, tuple[str, str]]) -> NamedFile:
        """Write a file once more, with other names of rows by their places in :meth:`late`; its key is another one."""

    def clear(self) -> None:
        """Forget the rows that were added, and delete the files that were written; nothing is added after that."""


class WaitingFiles(NamedTuple):
    """Files that are stored and not committed."""

    files: int
    oldest_seconds: float
    """0 when there are none."""


class LakeCommit(NamedTuple):
    """A commit, which is begun in Postgres before the table has it."""

    number: int
    keys: Sequence[str]
    rows: int


class LakeCommits(Protocol):
    """What the leader writes down about commits, in Postgres; each change names its epoch."""

    async def open_commit(self) -> LakeCommit | None:
        """Return the commit that was begun and is not known to have ended.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """

    async def begin(self, above: int, layout: int, at_most: int, *, epoch: Epoch) -> LakeCommit | None:
        """Begin a commit of stored files, the oldest first, with a number above ``above`` and all others before it.

        ``None`` when no file waits, or a commit is open.

        Raises:
            LeadershipLost: Another process leads.
            RegistryUnavailable: As :meth:`open_commit`.
        """

    async def end(self, number: int, *, epoch: Epoch) -> None:
        """Say that the table has a commit. Raises as :meth:`begin` does."""

    async def waiting(self) -> WaitingFiles:
        """Count the files that wait. Raises as :meth:`open_commit` does."""

    async def left_over(self, seconds: float, at_most: int) -> Sequence[str]:
        """Return files that were named so long ago, never stored, and whose spool has gone past them.

        No shipper can say any more that one of them is stored, so no row is in it alone. Raises as
        :meth:`open_commit` does.
        """

    async def forget(self, keys: Sequence[str], committed_seconds: float, at_most: int, *, epoch: Epoch) -> None:
        """Drop left-over files from the list, and such as were committed so long ago. Raises as :meth:`begin`."""


class LakeTable(Protocol):
    """The table itself. Every call blocks for as long as object store and catalogue take."""

    def last_commit(self) -> int:
        """Return the number of the newest commit that the table has; 0 for a new table, which this makes.

        Raises:
            LakeUnavailable: The object store or the catalogue cannot be used.
        """

    def commit(self, commit: LakeCommit) -> bool:
        """Add the files of a commit and remember its number, in one step; ``False`` when the table has it already.

        Raises:
            LakeUnavailable: It is not known whether the table has it.
        """
