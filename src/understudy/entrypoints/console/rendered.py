"""Parts of pages as they were rendered last: all viewers of a page are sent the same ones at each news."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

MAX_KEPT = 128
T = TypeVar("T")


class Live(NamedTuple):
    """A part of a page that is fetched again and again."""

    html: str
    digest: str
    view: Any = None
    """What it shows."""
    read_at: float = 0.0
    """Seconds since the epoch."""
    is_stale: bool = False


class Rendered(Generic[T]):
    """Keeps what was made, by a name of all that it was made of; beyond :data:`MAX_KEPT` the oldest are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def of(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return what was made under a name, or make it."""
        if name not in self._kept:
            self._kept[name] = make()
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return self._kept[name]
