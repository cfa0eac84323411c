"""Counts the calls of a challenger's entities stretch by stretch, in bounded memory."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.canary.entities.worst_entities import (
    FALSE_DISCOVERY_RATE,
    LEVELS,
    MAX_WORST,
    MIN_UNITS,
    RATE_FLOOR,
    EntityCount,
    EntityCounts,
    unit_evidence,
)
from understudy.core.statistics.sequential_evidence import IntArray

UNIT_SECONDS = 120
"""What one entity calls in it counts as one: retries are no further failures, and a short incident is one or two."""
MAX_ENTITIES = 20_000
"""Each takes some 250 bytes. Those that come later are not judged."""
_INCIDENT_LEVEL = LEVELS // 10
_INCIDENT_RATIO = 0.1
"""Where a tenth of the other entities fail a tenth of their calls or more, the version has an incident, which is no
fault towards one of them: the stretch is left out."""
_INCIDENT_ENTITIES = 2
"""At least, unless there is one other: of a handful, one fails a call now and then."""
_MAX_ROWS = 3


class EntityCalls(NamedTuple):
    """What came of one entity's calls of the challenger in a stretch."""

    entity_id: str
    calls: int
    failed: int
    inputs: int
    """Different ones: a call that is made again with the same inputs is no other."""
    failed_inputs: int
    """Of them those that no call succeeded with."""
    rows: Sequence[tuple[int, int]] = ()
    """Calls that failed: ``id`` and ``predicted_at`` in microseconds of their rows of the log, the oldest first."""


class Before(NamedTuple):
    """An entity's calls of the champion in the six hours before."""

    calls: int = 0
    failed: int = 0


class EntityTally:
    """What is counted of a rollout's entities so far.

    Args:
        most: Entities that are counted.
    """

    def __init__(self, most: int = MAX_ENTITIES) -> None:
        self._most = most
        self._places: dict[str, int] = {}
        self._units = np.zeros((256, LEVELS + 1), np.uint16)
        self._calls = np.zeros((256, 2), np.int64)
        self._rows: dict[int, list[tuple[int, int]]] = {}
        self._totals = np.zeros(2)

    def add(self, found: Sequence[EntityCalls]) -> None:
        """Count one stretch, with all entities that called in it."""
        kept = [one for one in found if one.inputs and self._place(one.entity_id) is not None]
        if not kept:
            return
        places = np.array([self._places[one.entity_id] for one in kept])
        self._calls[places] += np.array([(one.calls, one.failed) for one in kept], np.int64)
        inputs = np.array([(one.inputs, one.failed_inputs) for one in kept], np.int64)
        for one, place in zip(kept, places.tolist(), strict=True):
            if one.failed:
                rows = self._rows.setdefault(place, [])
                rows.extend(list(one.rows)[: _MAX_ROWS - len(rows)])
        level = LEVELS * inputs[:, 1] // inputs[:, 0]
        counted = ~_in_incident(level)
        self._units[places[counted], level[counted]] += 1
        self._totals += int(counted.sum()), float((inputs[counted, 1] / inputs[counted, 0]).sum())

    def suspects(self) -> list[str]:
        """Return the entities whose evidence would be enough if each were the only one; the worst first."""
        return [entity_id for entity_id, _ in self._ranked()]

    def counts(self, before: Mapping[str, Before]) -> EntityCounts:
        """Return the worst entities; those without calls of the champion that were looked for are not in ``before``."""
        units, failing = self._totals.tolist()
        return EntityCounts(
            len(self._places), int(units), failing, tuple(self._count(*one, before) for one in self._ranked())
        )

    def _place(self, entity_id: str) -> int | None:
        place = self._places.get(entity_id)
        if place is None and len(self._places) < self._most:
            place = self._places[entity_id] = len(self._places)
            if place == len(self._units):
                self._units = np.concatenate([self._units, np.zeros_like(self._units)])
                self._calls = np.concatenate([self._calls, np.zeros_like(self._calls)])
        return place

    def _ranked(self) -> list[tuple[str, int]]:
        units = self._units[: len(self._places)]
        suspected = np.flatnonzero(units[:, 1:].sum(axis=1) >= MIN_UNITS)
        if not len(suspected):
            return []
        evidence = unit_evidence(units[suspected].astype(np.int64), RATE_FLOOR)
        enough = evidence >= -np.log(FALSE_DISCOVERY_RATE)
        worst = suspected[enough][np.argsort(-evidence[enough], kind="stable")][:MAX_WORST].tolist()
        names = dict.fromkeys(worst, "")
        names |= {place: entity_id for entity_id, place in self._places.items() if place in names}
        return [(names[place], place) for place in worst]

    def _count(self, entity_id: str, place: int, before: Mapping[str, Before]) -> EntityCount:
        calls, failed = self._calls[place].tolist()
        past = before.get(entity_id)
        return EntityCount(
            tuple(self._rows[place]),
            calls,
            failed,
            tuple(self._units[place].tolist()),
            None if past is None else past.calls,
            None if past is None else past.failed,
        )


def _in_incident(level: IntArray) -> NDArray[np.bool_]:
    """Return for each entity of a stretch whether too many of the others fail in it."""
    fails = level >= _INCIDENT_LEVEL
    others = len(level) - 1
    if others < 1:
        return np.zeros(len(level), np.bool_)
    tolerated = max(_INCIDENT_RATIO * others, min(_INCIDENT_ENTITIES, others))
    found: NDArray[np.bool_] = np.count_nonzero(fails) - fails.astype(np.int64) >= tolerated
    return found
