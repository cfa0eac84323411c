"""Files of the lake's table that take the place of others: merged, without an entity, or none for old rows."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from understudy.core.prediction_log.lake_rewrites import TableFile
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.entity_erasure import Erasure

Kind = Literal["merge", "age", "erase"]


class LakeRewrite(NamedTuple):
    """Files that go, and files that may have been written in their place."""

    number: int
    kind: Kind
    old_paths: Sequence[str]
    new_keys: Sequence[str]
    sequence: int | None
    """From this state of the table on the old files are in no snapshot; ``None`` until the rewrite has ended."""


class LakeRewrites(Protocol):
    """What is known of rewrites, in Postgres. Raises ``RegistryUnavailable``, and ``LeadershipLost`` where fenced."""

    async def moment(self) -> float:
        """Return the database's clock, in seconds: a monitor's own may be wrong, and rows go by their age."""

    async def crowded_hour(self, over_seconds: float, skipped: Sequence[str]) -> str | None:
        """Return the hour, over for so long, of which one model got most files; ``None`` when none got two.

        Some hours are skipped.
        """

    async def leave_hour(self, hour: str, *, epoch: Epoch) -> None:
        """Forget the committed files of an hour: nothing is to be merged in it before others come."""

    async def begin(self, kind: Kind, old_paths: Sequence[str], *, epoch: Epoch) -> int | None:
        """Write down which files go, before anything is written in their place; return the rewrite's number.

        ``None`` while an erasure rewrites files: what is merged meanwhile would be in its way.
        """

    async def name(self, number: int, new_keys: Sequence[str], *, epoch: Epoch) -> None:
        """Write down which files are about to be written."""

    async def end(
        self,
        number: int,
        sequence: int,
        old_paths: Sequence[str],
        new_keys: Sequence[str],
        merged_keys: Sequence[str],
        *,
        epoch: Epoch,
    ) -> None:
        """Say what is left to be deleted of a rewrite, and forget committed files that it merged."""

    async def open_rewrites(self) -> Sequence[LakeRewrite]:
        """Return the rewrites that were begun and not ended, but for erasures of the last hour."""

    async def ended_rewrites(self, older_seconds: float, at_most: int) -> Sequence[LakeRewrite]:
        """Return rewrites that ended so long ago, the oldest first."""

    async def forget_rewrites(self, numbers: Sequence[int], *, epoch: Epoch) -> None:
        """Drop rewrites whose files are deleted."""


class TableLook(Protocol):
    """Files of the table at one moment. Every call blocks."""

    @property
    def files(self) -> Sequence[TableFile]:
        """What the table consisted of."""

    def write_together(self, files: Sequence[TableFile], target: Path) -> int:
        """Write the rows of some files into one, in their order; return how many they are."""

    def count_entity(self, file: TableFile, entity_id: str) -> int:
        """Return how many rows name an entity."""

    def write_erased(self, file: TableFile, target: Path, erasure: Erasure) -> tuple[int, Sequence[str]]:
        """Write a file without an entity; return how many rows named it, and the prediction ids that are gone."""


class RewritableTable(Protocol):
    """The lake's table, some of whose files are replaced. Every call blocks, and raises ``LakeUnavailable``."""

    def look(self, first_hour: str | None = None, last_hour: str | None = None, model: str | None = None) -> TableLook:
        """Return the files of some hours and one model, or of all."""

    def replace(self, old: Sequence[TableFile], new_keys: Sequence[str], number: int) -> int | None:
        """Put files in the place of others, in one change of metadata; return the table's state after it.

        ``None``: one of the old files is not in the table any more, another engine deleted rows of it meanwhile, or
        the rewrite was given up.
        """

    def give_up(self, number: int) -> None:
        """Have the table take no rewrite up to this number any more, of another process either."""

    def live_among(self, paths: Sequence[str]) -> tuple[set[str], int]:
        """Return which of some files the table consists of now, and the table's state."""

    def count_in(self, path: str, entity_id: str) -> int | None:
        """Return how many rows of a file that may not be the table's name an entity; ``None`` without such a file."""

    def path_of(self, key: str) -> str:
        """Return how the table names a file."""

    def keys_of(self, paths: Iterable[str]) -> Sequence[str]:
        """Return the store's keys of files, but for those that are none of the table's data.

        ``LakeRewrite`` is written by logins that may erase: no row of theirs reaches metadata, or other files.
        """

    def forget_before(self, moment: float | None) -> int:
        """Expire snapshots before a moment, or all but the newest; return the oldest state that a snapshot has."""
