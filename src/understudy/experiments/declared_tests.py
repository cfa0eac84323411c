"""Declared A/B tests: what was fixed before their end was known, and the interim analyses that were made."""

from typing import Any, NamedTuple

from understudy.core.experiments.ab import AbPlan, AbState, AbVerdict
from understudy.core.statistics.sample_size import ALPHA, look_fractions
from understudy.ports.experiments.experiment_store import ExperimentRecord

DECIDED = (AbState.A_BETTER, AbState.B_BETTER, AbState.NO_DIFFERENCE)
"""States after which a test is over."""


class Wanted(NamedTuple):
    """A difference that is to be seen."""

    amount: float
    is_relative: bool = True
    """Whether ``amount`` is a share of the champion's value (0.05 for 5 %), and not a difference of its own unit."""

    def difference(self, value: float) -> float:
        """Return the difference from this value of the champion."""
        return self.amount * value if self.is_relative else self.amount

    def words(self, *, is_share: bool) -> str:
        """Return the change as one says it: ``a 5 % change``."""
        if self.is_relative:
            return f"a {100 * self.amount:.3g} % change"
        return f"a {100 * self.amount:.3g}-point change" if is_share else f"a change of {self.amount:.3g}"


class MetricChoice(NamedTuple):
    """How outcomes become a number for each entity."""

    within_seconds: float
    """How long after its first exposure an entity's outcomes count."""
    per_call: bool = False
    """Per call instead of per entity."""
    higher_is_better: bool = True


class Plan(NamedTuple):
    """What is fixed with a test's declaration."""

    wanted: Wanted
    choice: MetricChoice
    is_share: bool
    difference: float
    entities_per_arm: int
    """At the last look."""
    looks: int
    """At equal steps of the sample."""
    alpha: float = ALPHA
    """Of this test and those of the versions ``beside`` it together."""
    beside: tuple[int, ...] = ()
    """Other versions that shared the calls with the champion when the test was declared."""

    def judged(self, rejected: int = 0) -> AbPlan:
        """Return the plan as the judge takes it.

        Args:
            rejected: Of the versions ``beside``, those that a test with the same share of alpha found to differ.

        Source:
            Holm's correction over tests with interim analyses: Maurer & Bretz, "Multiple testing in group sequential
            trials using graphical approaches", Statistics in Biopharmaceutical Research 5 (2013). Each test has an
            equal share of alpha; one that finds a difference leaves its own to the others. A look's boundary is the one
            of the share that the test has then, as if it had had it at all looks.
        """
        comparisons = 1 + len(self.beside) - rejected
        return AbPlan(self.entities_per_arm, look_fractions(self.looks), self.alpha / comparisons)

    def to_json(self) -> dict[str, Any]:
        """Return what ``declared_rows.declared_plan_from_json`` reads."""
        document = {**self._asdict(), "wanted": self.wanted._asdict(), "choice": self.choice._asdict()}
        # A release that knows no versions beside a test can read all others.
        return {name: value for name, value in document.items() if name != "beside" or value}


class InterimAnalysis(NamedTuple):
    """A declared interim analysis (a look) that was made, and what the test said then."""

    at: float
    """Seconds since the epoch."""
    fraction: float
    state: AbState
    sentence: str


class DeclaredTest(NamedTuple):
    """A test as it is stored."""

    record: ExperimentRecord
    plan: Plan
    looks: tuple[InterimAnalysis, ...]

    @property
    def is_open(self) -> bool:
        """Whether it still waits for its answer."""
        return self.record.ended_at is None

    @property
    def decision(self) -> InterimAnalysis | None:
        """The interim analysis that ended it."""
        return next((look for look in self.looks if look.state in DECIDED), None)


def with_interim_analysis(test: DeclaredTest, verdict: AbVerdict, now: float) -> DeclaredTest:
    """Return an open test after one more interim analysis; it is over when that decided."""
    look = InterimAnalysis(now, verdict.fraction, verdict.state, verdict.sentence)
    ended_at = now if verdict.state in DECIDED else None
    return test._replace(record=test.record._replace(ended_at=ended_at), looks=(*test.looks, look))
