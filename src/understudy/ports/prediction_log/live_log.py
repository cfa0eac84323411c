"""The rows of ``PredictionLog`` that Postgres holds: asked in its own SQL, and the newest calls."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from understudy.ports.prediction_log.log_archive import WantedRows


class LiveResult(NamedTuple):
    """A result: its columns, and rows that are read as they are asked for."""

    columns: tuple[str, ...]
    rows: AsyncIterator[Sequence[Any]]
    unseen_rows: int
    """Rows at most of the time that was asked for, by whole days, which are in files of the archive and so not read."""


class NewestAsked(NamedTuple):
    """Which calls are wanted. Times in seconds since the epoch."""

    since: float
    at_most: int
    model_name: str | None = None
    """``None``: of every model."""
    version: str | None = None
    """Only those that this version answered."""
    only_failed: bool = False
    """Only those with an error code, answered by the champion in the end or not."""


class CallLine(NamedTuple):
    """One call as the log has it."""

    id: int
    prediction_id: str | None
    predicted_at: float
    model_name: str
    version: str
    role: str | None
    status: str
    error_code: str | None
    score: float | None
    latency_us: int | None
    is_cache_hit: bool
    entity_id: str


class LiveLog(Protocol):
    """Reads rows of the log in Postgres.

    Raises ``RegistryUnavailable`` when Postgres is away or has not found the answer in time, ``MigrationNeeded``.
    """

    def ask(self, statement: str, wanted: WantedRows) -> AbstractAsyncContextManager[LiveResult]:
        """Run one SELECT over ``predictionlog``, in a transaction that can only read.

        Raises:
            QueryRefused: It is something else, several, or wrong.
        """

    async def newest(self, asked: NewestAsked) -> Sequence[CallLine]:
        """Return the newest calls, oldest first."""
