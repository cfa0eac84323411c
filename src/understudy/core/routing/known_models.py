"""What a caller who names a model that there is not is told: the nearest name, and the list, of those it may know."""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from functools import lru_cache

from understudy.errors import UnknownModel

MAX_LISTED = 10
"""Names in an error."""
MAX_CHARACTERS = 400
"""Of all of them together."""
MAX_SHOWN = 64
"""Of one, and of a name that is looked for."""
ALIKE = 16
"""Names before and after the one that is looked for, in the order of the alphabet and of their last letters, that are
compared with it: all of five thousand would take the event loop tens of milliseconds, for each call of a wrong name."""
_ALL_COMPARED = 4 * ALIKE
MIN_LIKENESS = 0.6
"""Of the letters of the longer name that both begin and end with."""
_LISTS_ALL = "GET /v1/models lists the served models"


class KnownModels:
    """The names of a snapshot's models, in order; made anew when the models change."""

    def __init__(self) -> None:
        self._of: Collection[str] | None = None
        self._names: tuple[str, ...] = ()
        self._reversed: tuple[str, ...] = ()

    def unknown(self, model_name: str, models: Collection[str], permitted: frozenset[str] | None) -> UnknownModel:
        """Return the error that a caller gets.

        Args:
            model_name: What the caller named.
            models: Those that there are; the same object while they do not change.
            permitted: The ones that the caller may read; ``None``: all of them.
        """
        if permitted is not None:
            return unknown_model(model_name, *_orders(name for name in permitted if name in models))
        if self._of is not models:
            self._names, self._reversed = _orders(models)
            self._of = models
        return unknown_model(model_name, self._names, self._reversed)


def unknown_model(model_name: str, names: tuple[str, ...], backwards: tuple[str, ...]) -> UnknownModel:
    """Return the error that names a model, the nearest one, and the first of those that there are.

    Args:
        model_name: What the caller named.
        names: Those that it may know, in order.
        backwards: The same, written backwards, in order.
    """
    detail = f"no model {_shown(model_name)} is served"
    if not names:  # none, or none that this caller may know
        return UnknownModel(detail)
    near = _nearest(model_name[:MAX_SHOWN], _alike(model_name, names, backwards))
    if near is not None:
        detail += f"; did you mean {_shown(near)}?"
    return UnknownModel(detail, hint=_listed(names, near))


def _orders(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    ordered = tuple(sorted(names))
    return ordered, tuple(sorted(name[::-1] for name in ordered))


def _alike(model_name: str, names: tuple[str, ...], backwards: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that stand beside the one that is looked for, in either order; all of them if they are few."""
    if len(names) <= _ALL_COMPARED:
        return names
    found = dict.fromkeys(_beside(model_name, names))
    found.update(dict.fromkeys(name[::-1] for name in _beside(model_name[::-1], backwards)))
    return tuple(found)


def _beside(model_name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    place = bisect_left(names, model_name)
    return names[max(0, place - ALIKE) : place + ALIKE]


@lru_cache(maxsize=256)
def _nearest(model_name: str, names: tuple[str, ...]) -> str | None:
    wanted = model_name.lower()
    likeness, near = max((_likeness(wanted, name[:MAX_SHOWN].lower()), name) for name in names)
    return near if likeness >= MIN_LIKENESS else None


def _likeness(one: str, other: str) -> float:
    """Return which part of the longer name both begin and end with: what a slip or two in one place leaves.

    difflib finds more, for a hundred times the time.
    """
    shorter = min(len(one), len(other))
    begins = next((place for place in range(shorter) if one[place] != other[place]), shorter)
    rest = shorter - begins
    ends = next((place for place in range(rest) if one[-1 - place] != other[-1 - place]), rest)
    return (begins + ends) / max(len(one), len(other), 1)


def _listed(names: tuple[str, ...], near: str | None) -> str:
    first = dict.fromkeys([*([] if near is None else [near]), *names[:MAX_LISTED]])
    shown: list[str] = []
    room = MAX_CHARACTERS
    for name in list(first)[:MAX_LISTED]:
        text = _shown(name)
        room -= len(text)
        if room < 0:
            break
        shown.append(text)
    more = len(names) - len(shown)
    if more:
        return f"There are {', '.join(shown)} and {more:,} more: {_LISTS_ALL}."
    there = f"There are {', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else f"There is {shown[0]}"
    return f"{there}; a model is served once it has a row in ServingPolicy."


def _shown(name: str) -> str:
    return repr(name if len(name) <= MAX_SHOWN else f"{name[: MAX_SHOWN - 1]}…")
