"""A row of the fault matrix: what is broken, how, and which figures let it pass."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any, NamedTuple, NoReturn

from rigs.faults.not_here import NotBuilt, NotHere
from rigs.faults.world import Machine

Figures = Mapping[str, float]
"""What a row found, by name; units are in the names."""


class Span(NamedTuple):
    """Seconds of load before, during and after a fault."""

    before: float = 5.0
    during: float = 15.0
    after: float = 10.0

    @property
    def total(self) -> float:
        """Of all three."""
        return self.before + self.during + self.after


class Bound(NamedTuple):
    """What a figure may be at most, or must be at least."""

    figure: str
    limit: float
    at_least: bool = False

    def holds(self, figures: Figures) -> bool:
        """Whether the figure is there and keeps to the bound."""
        value = figures.get(self.figure, float("nan"))
        return not isnan(value) and (value >= self.limit if self.at_least else value <= self.limit)

    def __str__(self) -> str:
        return f"{self.figure} {'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True)
class Row:
    """One fault.

    Args:
        id: As in the matrix.
        fault: What is broken, and how.
        expected: What the product does about it.
        bounds: What lets the row pass.
        run: Breaks it and returns the figures; raises :class:`NotHere`.
    """

    id: str
    fault: str
    expected: str
    bounds: tuple[Bound, ...]
    run: Callable[[Machine, Span], Awaitable[Figures]]

    @property
    def family(self) -> str:
        """The letters before the number."""
        return self.id.partition("-")[0]


def at_most(**limits: float) -> tuple[Bound, ...]:
    """Return bounds that figures may reach and not exceed."""
    return tuple(Bound(name, limit) for name, limit in limits.items())


def at_least(**limits: float) -> tuple[Bound, ...]:
    """Return bounds that figures must reach."""
    return tuple(Bound(name, limit, at_least=True) for name, limit in limits.items())


NOTHING_LOST = at_most(failed=0, rows_lost=0, rows_dup=0)
"""What most faults may cost: nothing."""


def not_here(reason: str) -> Callable[[Machine, Span], Awaitable[Figures]]:
    """Return the run of a row that no machine like this can run, with why."""

    async def run(_machine: Machine, _span: Span) -> NoReturn:
        raise NotHere(reason)

    return run


def not_built(reason: str) -> Callable[[Machine, Span], Awaitable[Figures]]:
    """Return the run of a row of a part that the product does not have yet."""

    async def run(_machine: Machine, _span: Span) -> NoReturn:
        raise NotBuilt(reason)

    return run


STAMP = ("at", "load_average", "commit", "source")
"""What each row says of its own run, of all that a result says: rows of several runs are put together."""


@dataclass(frozen=True)
class Result:
    """What became of a row; ``verdict`` is ``pass``, ``short``, ``not here``, ``not built`` or ``broken``."""

    row: Row
    verdict: str
    figures: Figures
    reason: str = ""
    seconds: float = 0.0
    runs: int = 1
    """How often the row was run for this result: one that did not pass may be run again, and says so."""
    stamp: Mapping[str, Any] = field(default_factory=dict)
    """When it was run, under which load, and of which code; see :data:`STAMP`."""

    def as_json(self) -> dict[str, Any]:
        """Return everything, the bounds too."""
        return {
            "id": self.row.id,
            "fault": self.row.fault,
            "expected": self.row.expected,
            "bounds": [str(bound) for bound in self.row.bounds],
            "verdict": self.verdict,
            "figures": {name: round(value, 4) for name, value in self.figures.items()},
            "reason": self.reason,
            "seconds": round(self.seconds, 1),
            "runs": self.runs,
            **self.stamp,
        }


def judge(row: Row, figures: Figures, seconds: float = 0.0) -> Result:
    """Return whether the figures keep to every bound; a figure that is missing does not."""
    missed = [str(bound) for bound in row.bounds if not bound.holds(figures)]
    return Result(row, "short" if missed else "pass", figures, ", ".join(missed), seconds)
