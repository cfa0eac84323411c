"""Why a call got its answer: what the log says of it, and the change of the policy that decided."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from understudy.core.prediction_log.prediction_id import id_seconds
from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.ports.prediction_log.receipts import EARLY_SECONDS, LATE_SECONDS, EntityAsked, Receipt, ReceiptLog
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditSubject, Registry

SLICES_SECONDS = (60.0, 240.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
"""How far back calls of an entity are looked for, one stretch after the other: the log is not read far back for an
entity that calls often."""
SEARCH_SECONDS = 5.0
"""Of all stretches together."""
MAX_CALLS = 50
_MIN_SECONDS_LEFT = 0.3
"""Left of the search, a further stretch is not begun: Postgres would end it."""
_ROLE_OF_SHADOW = "shadow"


class Explained(NamedTuple):
    """One call, and what decided it."""

    answer: Receipt
    """The caller's; where only a shadow's is there, that."""
    shadows: Sequence[Receipt]
    policy: AuditEntry | None
    """The change that made the policy what it was; ``None`` where the audit has it no more."""


class EntityCalls(NamedTuple):
    """The newest calls of an entity, and how far back they were looked for."""

    calls: Sequence[Receipt]
    """Newest first."""
    since: float
    """What is older was not looked at; seconds since the epoch."""
    until: float
    is_out_of_time: bool
    """Whether the search ended by its time, and neither at enough calls nor at its end."""


async def explain_prediction(registry: Registry, log: ReceiptLog, prediction_id: str) -> Explained:
    """Return what was logged of a prediction, with the policy that decided.

    Raises:
        NotRegistered: It is no id of a prediction, or the log has none of it.
        RegistryUnavailable, MigrationNeeded: As the log and the registry.
    """
    at = id_seconds(prediction_id)
    if at is None:
        raise NotRegistered(
            "that is no id of a prediction", hint="The answer of a call has it as prediction_id: a UUID version 7."
        )
    found = await log.of_prediction(prediction_id, at)
    if not found:
        raise unknown_prediction(prediction_id)
    answer, generation = found[0], found[0].generation
    audit: Sequence[AuditEntry] = ()
    if generation is not None:
        only = AuditFilter(generation=generation)
        audit = await registry.list_audit(answer.model_name, 1, AuditSubject.POLICY, only=only)
    shadows = [one for one in found[1:] if one.role == _ROLE_OF_SHADOW]
    return Explained(answer, shadows, audit[0] if audit else None)


def unknown_prediction(prediction_id: str) -> NotRegistered:
    """Return what is raised for a prediction that is not there; for one that a key may not see it is the same."""
    return NotRegistered(
        f"the log has no such prediction{searched_for(prediction_id)}",
        hint="It is there some seconds after its call, and until its month is archived, which understudy log query "
        "reads. If it is an entity's id: understudy explain MODEL ID.",
    )


def searched_for(prediction_id: str) -> str:
    """Return where a prediction was looked for: among the calls of the time that its id has; empty for no id."""
    at = id_seconds(prediction_id)
    if at is None:
        return ""
    since, until = (datetime.fromtimestamp(one, UTC) for one in (at - EARLY_SECONDS, at + LATE_SECONDS))
    then = f"{since:%d %b %Y %H:%M:%S} and {until:%H:%M:%S} UTC"
    return f": by its id the call was made between {then}, and Postgres has no row of it"


async def calls_of_entity(
    log: ReceiptLog, model_name: str, entity_id: str, now: float, monotonic: Callable[[], float] = time.monotonic
) -> EntityCalls:
    """Return the newest calls of an entity: enough of them, or what could be found in time.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the log, where even the newest stretch could not be read.
    """
    async with log.shared_session():
        return await _search(log, model_name, entity_id, now, monotonic)


async def _search(
    log: ReceiptLog, model_name: str, entity_id: str, now: float, monotonic: Callable[[], float]
) -> EntityCalls:
    ends_at, until, calls = monotonic() + SEARCH_SECONDS, now + 1, list[Receipt]()
    for seconds in SLICES_SECONDS:
        left, since = ends_at - monotonic(), now - seconds
        if left < _MIN_SECONDS_LEFT:
            return EntityCalls(calls, until, now, is_out_of_time=True)
        asked = EntityAsked(model_name, entity_id, since, until, MAX_CALLS - len(calls))
        try:
            calls += await log.of_entity(asked, left)
        except RegistryUnavailable:
            if seconds == SLICES_SECONDS[0]:
                raise
            return EntityCalls(calls, until, now, is_out_of_time=True)
        if len(calls) >= MAX_CALLS:
            return EntityCalls(calls, calls[-1].predicted_at, now, is_out_of_time=False)
        until = since
    return EntityCalls(calls, until, now, is_out_of_time=False)
