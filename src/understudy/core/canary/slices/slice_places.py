"""Which slices of a rollout are told apart, in bounded memory.

A caller chooses its own category, so 64 made-up ones must not keep the others from being counted: where a feature has
more values than places, a value with more calls takes the place of the rarest one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.prediction_log.call_slices import OTHER, Slice
from understudy.core.windows.slices import MAX_CELLS, MAX_VALUES, SliceColumn, SliceCounts

MAX_WAITING = 64
"""Values of a feature that have no place and whose calls are still counted: those with the most."""
TIMES_THE_CALLS = 2.0
"""A value takes another one's place with so many times its calls: equal values would take turns, and each place that
changes hands begins with no evidence."""


class _Calls(NamedTuple):
    """Calls of a value so far."""

    champion: int = 0
    challenger: int = 0

    @property
    def compared(self) -> int:
        """Calls of the version that has fewer: one version's alone say nothing."""
        return min(self)


class SlicePlaces:
    """Gives slices their places, which are numbers from 0 on.

    Only numbers of calls decide, and not what became of them, so evidence that begins with a place is as good as
    evidence that begins with a rollout.
    """

    def __init__(self) -> None:
        self.names: list[Slice] = []
        """The slice of each place."""
        self._places: dict[Slice, int] = {}
        self._calls: dict[str, dict[str, _Calls]] = {}
        """Of each feature the values that have a place, and some that wait for one."""

    def place_of(self, one: Slice) -> int | None:
        """Return where a slice's calls count: for a value without a place with the others of its feature."""
        place = self._places.get(one)
        return self._places.get(Slice(one.feature, OTHER)) if place is None else place

    def add(self, sides: Sequence[SliceCounts]) -> list[int]:
        """Count the calls of a stretch, of the champion and the challenger; return the places that changed hands."""
        found: dict[str, set[str]] = {}
        champion, challenger = sides
        for one in (*champion, *challenger):
            found.setdefault(one.feature, set()).add(one.value)
        changed: list[int] = []
        for feature in sorted(found):
            calls = self._calls.setdefault(feature, {})
            for value in found[feature]:
                before, one = calls.get(value, _Calls()), Slice(feature, value)
                calls[value] = _Calls(
                    before.champion + _calls_of(champion, one), before.challenger + _calls_of(challenger, one)
                )
            changed += self._give_places(feature, calls)
        return changed

    def _give_places(self, feature: str, calls: dict[str, _Calls]) -> list[int]:
        """Give the values of a feature places while there are some, then those of the rarest; forget the rarest."""
        held = {value for value in calls if Slice(feature, value) in self._places}
        waiting = _heaviest_first(calls, set(calls) - held - {OTHER})
        while waiting and len(held - {OTHER}) < MAX_VALUES and len(self.names) < MAX_CELLS:
            held.add(waiting[0])
            self._append(Slice(feature, waiting.pop(0)))
        changed = []
        rarest = _heaviest_first(calls, held - {OTHER})[::-1]
        while waiting and rarest and calls[waiting[0]].compared > TIMES_THE_CALLS * calls[rarest[0]].compared:
            place = self._places.pop(Slice(feature, rarest.pop(0)))
            one = self.names[place] = Slice(feature, waiting.pop(0))
            self._places[one] = place
            changed.append(place)
        if (waiting or OTHER in calls) and Slice(feature, OTHER) not in self._places and len(self.names) < MAX_CELLS:
            self._append(Slice(feature, OTHER))
        waits = {value for value in calls if Slice(feature, value) not in self._places}
        for value in _heaviest_first(calls, waits)[MAX_WAITING:]:
            del calls[value]
        return changed

    def _append(self, one: Slice) -> None:
        self._places[one] = len(self.names)
        self.names.append(one)


def _calls_of(side: Mapping[Slice, NDArray[np.int64]], one: Slice) -> int:
    return int(side[one][:, SliceColumn.CALLS].sum()) if one in side else 0


def _heaviest_first(calls: Mapping[str, _Calls], values: Iterable[str]) -> list[str]:
    return sorted(values, key=lambda value: (-calls[value].compared, -sum(calls[value]), value))
