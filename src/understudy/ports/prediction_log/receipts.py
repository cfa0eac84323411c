"""What the log says of single calls: who answered, and by which decision."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

EARLY_SECONDS, LATE_SECONDS = 1.0, 10.0
"""How long before and after its id was made a call may be dated: a shadow is asked after the answer."""
MAX_OF_PREDICTION = 20
MAX_LABEL, MAX_DEFAULTED = 200, 8_192
"""Bytes of a label's JSON, and of the names of features that took their default; longer ones are left out."""


class Receipt(NamedTuple):
    """One call as the log has it; of one that a shadow saw there is another, with its role."""

    prediction_id: str | None
    predicted_at: float
    """Seconds since the epoch."""
    model_name: str
    version: str
    """Which answered, or failed last."""
    assigned: str | None
    """The version of the route; another one after a fallback. ``None`` where it is not known."""
    entity_id: str
    role: str | None
    """Of the version of the route."""
    reason: str | None
    status: str
    error_code: str | None
    score: float | None
    label: str | None
    """The class that was answered, as JSON; ``None`` where there is none, or a long one."""
    latency_us: int | None
    bucket: int | None
    generation: int | None
    """Of the policy that decided."""
    rollout_id: int | None
    is_cache_hit: bool
    defaulted: Sequence[str]
    """Features that took their declared default."""


class EntityAsked(NamedTuple):
    """Calls of one entity in a stretch of time. Seconds since the epoch."""

    model_name: str
    entity_id: str
    since: float
    until: float
    """Not included."""
    at_most: int


class ReceiptLog(Protocol):
    """Reads single calls from the log, each question within its own bound of time.

    Raises ``RegistryUnavailable``, also when the answer was not found in time, and ``MigrationNeeded``.
    """

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Have the questions inside use one connection, where the log is asked over one."""

    async def of_prediction(self, prediction_id: str, at: float) -> Sequence[Receipt]:
        """Return what was logged of a prediction that was made at a time: the caller's answer first, then shadows."""

    async def of_entity(self, asked: EntityAsked, timeout_seconds: float) -> Sequence[Receipt]:
        """Return the newest calls of an entity, newest first, without what shadows made of them."""
