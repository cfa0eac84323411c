"""The arithmetic of a comparison: figures in pairs, one of the checkout before and one of now, taken in turns.

Every figure is a cost (time, processor time): a ratio above 1 says that the product has become worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap
from math import comb, isnan, nan
from statistics import median
from typing import Literal, NamedTuple

from loadtests.checkouts import Sides
from loadtests.target import Check

MARGIN = 0.03
"""A median ratio above 1 by more than this is worse, where the spread of the pairs leaves no doubt of the direction."""
MIN_PAIRS = 3
_TAIL = 0.025

Verdict = Literal["ok", "better", "worse", "within spread", "not measured"]


class Interval(NamedTuple):
    """Where the median of all possible pairs lies with a probability of ``coverage``."""

    low: float
    high: float
    coverage: float

    @property
    def is_wide(self) -> bool:
        """Whether it is wider than ± :data:`MARGIN`, so that a change of that size can go unseen."""
        return self.high - self.low > 2 * MARGIN


@dataclass(frozen=True)
class Pairs:
    """One figure of both checkouts: the n-th of ``before`` and the n-th of ``now`` were taken one after the other."""

    target: str
    """Which target the figure belongs to, such as ``P1``."""
    text: str
    unit: str
    figures: Sides[list[float]]

    @property
    def ratios(self) -> list[float]:
        """Return now ÷ before of each pair."""
        return list(starmap(_ratio, zip(*self.figures, strict=True)))

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios; not a number when a figure could not be taken."""
        ratios = self.ratios
        return nan if any(map(isnan, ratios)) else median(ratios)

    @property
    def interval(self) -> Interval:
        """The spread of the median ratio."""
        return interval_of(self.ratios)

    @property
    def verdict(self) -> Verdict:
        """``within spread``: worse by more than the margin, but the interval does not exclude that nothing changed."""
        if isnan(self.ratio):
            return "not measured"
        if self.ratio > 1 + MARGIN:
            return "worse" if self.interval.low > 1 else "within spread"
        return "better" if self.interval.high < 1 else "ok"

    @property
    def fails(self) -> bool:
        """Whether the comparison as a whole fails."""
        return self.verdict in ("worse", "not measured")

    def with_more(self, later: "Pairs") -> "Pairs":
        """Return these pairs and later ones of the same figure."""
        before, now = ([*ours, *theirs] for ours, theirs in zip(self.figures, later.figures, strict=True))
        return Pairs(self.target, self.text, self.unit, Sides(before, now))


@dataclass
class Compared:
    """What one section found about both checkouts."""

    pairs: list[Pairs]
    checks: list[Check] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        """Whether a figure is worse, or a check did not hold."""
        return any(one.fails for one in self.pairs) or not all(check.holds for check in self.checks)

    def with_more(self, later: "Compared") -> "Compared":
        """Return this with further pairs of the same figures, in the same order."""
        pairs = [one.with_more(more) for one, more in zip(self.pairs, later.pairs, strict=True)]
        return Compared(pairs, [*self.checks, *later.checks])


def _ratio(before: float, now: float) -> float:
    return now / before if before else nan


def interval_of(values: Sequence[float]) -> Interval:
    """Return the median's interval of at least 95 %; of fewer than six values their range, which covers less.

    It assumes nothing about how the values are distributed: of ``n`` values, the number below the true median is
    binomial with probability 1/2, so the median lies below the k-th smallest with the probability of fewer than ``k``
    successes.
    """
    ordered, count = sorted(values), len(values)
    rank = max((k for k in range(1, count // 2 + 1) if _fewer_than(k, count) <= _TAIL), default=1)
    return Interval(ordered[rank - 1], ordered[count - rank], 1 - 2 * _fewer_than(rank, count))


def _fewer_than(k: int, count: int) -> float:
    return sum(comb(count, below) for below in range(k)) / float(2**count)
