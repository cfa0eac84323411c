"""Entities of a verdict: their counts as events store them, and who they are, which only the log knows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.canary.decision import Decision
from understudy.core.canary.entities.worst_entities import EntityCount, EntityCounts, counts_from_json, counts_to_json
from understudy.core.rollout.state import Phase, RolloutState, WaitingFor
from understudy.ports.prediction_log.prediction_history import EntityHistory
from understudy.ports.rollout.rollout_store import RolloutEventRecord

_ENTITIES, _NAMED = "entities", "named_entities"


class NamedEntity(NamedTuple):
    """An entity that a challenger fails."""

    entity_id: str | None
    """``None`` where the log does not have its calls any more."""
    prediction_ids: Sequence[str]
    """Of calls that failed, up to three."""
    counted: EntityCount


def named_keys(decision: Decision | None, after: RolloutState) -> Sequence[int]:
    """Return the keys of the entities that a rollout waits because of; a change of the policy may be why it waits."""
    if decision is None or after.waiting_for is not WaitingFor.TIME:
        return ()
    return [found.counted.key for found in decision.entities]


def stored_entities(counts: EntityCounts | None, named: Sequence[int]) -> dict[str, Any]:
    """Return what is stored of entities with a verdict: their counts, and the keys of those that are told."""
    if counts is None or not counts.worst:
        return {}
    return {_ENTITIES: counts_to_json(counts), _NAMED: list(named)}


def counts_of(inputs: Mapping[str, Any]) -> EntityCounts | None:
    """Return the counts that a verdict rests on; ``None`` where no entity failed, and in earlier releases.

    Raises:
        LookupError, TypeError, ValueError: They cannot be read.
    """
    return None if _ENTITIES not in inputs else counts_from_json(inputs[_ENTITIES])


def told_of(events: Sequence[RolloutEventRecord]) -> set[int]:
    """Return the keys of the entities that an operator was told of: a rollout has waited because of them."""
    return {
        key
        for event in events
        if event.phase == Phase.WAITING
        for key in event.inputs.get(_NAMED, ())
        if isinstance(key, int)
    }


def failing_counts(events: Sequence[RolloutEventRecord]) -> Sequence[EntityCount]:
    """Return the counts of the entities that a rollout waits because of; none if its newest verdict names none."""
    last = next((event for event in reversed(events) if event.verdict is not None), None)
    if last is None or last.phase != Phase.WAITING:
        return ()
    named = last.inputs.get(_NAMED)
    try:
        counts = counts_of(last.inputs)
    except (LookupError, TypeError, ValueError):  # damaged, which judging it again reports
        return ()
    if counts is None or not isinstance(named, list):
        return ()
    return [one for one in counts.worst if one.key in named]


async def named_entities(history: EntityHistory, counts: Sequence[EntityCount]) -> Sequence[NamedEntity]:
    """Ask the log who entities are, and for calls of theirs as examples.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the history.
    """
    known = await history.entities_of([row for one in counts for row in one.rows])
    found = []
    for one in counts:
        rows = [known[row_id] for row_id, _ in one.rows if row_id in known]
        ids = [row.prediction_id for row in rows if row.prediction_id is not None]
        found.append(NamedEntity(rows[0].entity_id if rows else None, ids, one))
    return found
