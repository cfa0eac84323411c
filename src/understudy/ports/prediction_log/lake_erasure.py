"""Port of erasing one entity from the lake: what the ledger of erasures knows of the table's files."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from understudy.ports.prediction_log.entity_erasure import Erasure
from understudy.ports.prediction_log.lake_rewrites import LakeRewrite


class UnfinishedFile(NamedTuple):
    """A file that no commit has, and of which an object may be in the store."""

    key: str
    is_stored: bool
    named_seconds: float
    """How long ago, the last time."""
    is_left: bool
    """Whether its spool has gone past it, so that it will never be stored."""
    has_seen: bool
    """Whether it was named (again) by a proxy that knew of the erasure."""


class LakeErasureLedger(Protocol):
    """Raises as ``ports.ErasureLedger`` does; every change names the erasure, and the entity that it is of."""

    async def moment(self) -> float:
        """Return the database's clock: what a proxy names from now on has seen the erasure."""

    async def unfinished(self, since: float, known: Sequence[str]) -> Sequence[UnfinishedFile]:
        """Return the files that are on their way and were named before a moment, and those known from then.

        A proxy that names a file again has seen the erasure; what it stored before may still lie in the store.
        """

    async def is_merging(self) -> bool:
        """Return whether the monitor rewrites files, or was stopped at it."""

    async def open_rewrites(self, erasure: Erasure) -> Sequence[LakeRewrite]:
        """Return what a run of this erasure was stopped at."""

    async def ended_rewrites(self) -> Sequence[LakeRewrite]:
        """Return all that replaced files, some of which may not be deleted yet."""

    async def begin(self, erasure: Erasure, old_paths: Sequence[str]) -> int:
        """Write down which files go; without any, the monitor is kept from merging files until it is ended."""

    async def name(self, erasure: Erasure, number: int, new_keys: Sequence[str], rows: int) -> None:
        """Write down which files are about to be stored, and how many rows named the entity."""

    async def end(self, erasure: Erasure, number: int, state: int, *, is_in_table: bool) -> None:
        """Say that a rewrite is over; what it erased is added to the erasure's counts if the table has it."""
