"""What was measured, in one form: a figure with its bound, and the checks without which figures mean nothing."""

from dataclasses import dataclass, field
from math import isnan
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Target:
    """A figure and its bound.

    With a ``peer``, in the figure's own unit, the bound is on their ratio; without one it is on the figure. A figure of
    ``enough`` or less passes whatever its ratio is: where both are next to nothing, a ratio says nothing.
    """

    source: str
    """Where the bound is written down, such as ``P1``."""
    text: str
    figure: float
    unit: str
    bound: float
    peer: float | None = None
    at_least: bool = False
    enough: float | None = None

    @property
    def judged(self) -> float:
        """What the bound is on: the ratio if there is a peer, else the figure."""
        if self.peer is None:
            return self.figure
        return self.figure / self.peer if self.peer > 0 else float("nan")

    @property
    def verdict(self) -> str:
        """``pass`` or ``short``; a figure that could not be taken is short."""
        if self.enough is not None and self.figure <= self.enough:
            return "pass"
        if isnan(self.judged):
            return "short"
        return "pass" if (self.judged >= self.bound if self.at_least else self.judged <= self.bound) else "short"


class Check(NamedTuple):
    """Something without which the figures mean nothing."""

    text: str
    holds: bool
    found: str


@dataclass
class Findings:
    """What one section found; ``detail`` is what its rounds gave, for the JSON alone."""

    targets: list[Target] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
