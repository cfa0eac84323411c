"""Declared A/B tests: what was fixed before their end was known, and the interim analyses that were made."""

from typing import Any, NamedTuple

from understudy.core.experiments.ab import AbPlan, AbState, AbVerdict
from understudy.core.statistics.difference import Difference
from understudy.core.statistics.sample_size import ALPHA, look_fractions
from understudy.ports.experiments.experiment_store import ExperimentRecord

DECIDED = (AbState.A_BETTER, AbState.B_BETTER, AbState.NO_DIFFERENCE)
"""States after which a test is over."""
SEEN_SECONDS = 60.0
"""Before a test's declaration: in less, a person has hardly read a report of its calls."""


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
    declared_at: float | None = None
    """In seconds since the epoch, of a test that counts calls from more than :data:`SEEN_SECONDS` before then on: what
    they brought may have been known. ``None``: of all others."""

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
        # The release before knows neither of the two, and can read all tests that have none.
        absent = {"beside": (), "declared_at": None}
        return {name: value for name, value in document.items() if name not in absent or value != absent[name]}


class Figures(NamedTuple):
    """What an interim analysis found, as numbers; A is the champion, and a share is from 0 to 1."""

    entities_a: int
    entities_b: int
    value_a: float
    value_b: float
    difference: float
    """B less A; adjusted by what was known before the test, so it may differ from ``value_b - value_a``."""
    low: float
    high: float
    """Of the difference: the interval that the look decided by."""
    p_value: float | None = None
    """Of a test with one look."""


class InterimAnalysis(NamedTuple):
    """A declared interim analysis (a look) that was made, and what the test said then."""

    at: float
    """Seconds since the epoch."""
    fraction: float
    state: AbState
    sentence: str
    figures: Figures | None = None
    """``None`` where the release before took it: it kept the sentence alone."""

    def to_json(self) -> dict[str, Any]:
        """Return what ``declared_rows.declared_test`` reads."""
        document = {**self._asdict(), "state": self.state.value}
        figures = {} if self.figures is None else {"figures": self.figures._asdict()}
        return {name: value for name, value in document.items() if name != "figures"} | figures


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


def with_interim_analysis(
    test: DeclaredTest, verdict: AbVerdict, difference: Difference | None, now: float
) -> DeclaredTest:
    """Return an open test after one more interim analysis; it is over when that decided.

    Args:
        test: As it is stored.
        verdict: What the analysis says.
        difference: What it rests on; it is kept as numbers.
        now: When it is made, in seconds since the epoch.
    """
    look = InterimAnalysis(now, verdict.fraction, verdict.state, verdict.sentence, _figures(verdict, difference))
    ended_at = now if verdict.state in DECIDED else None
    return test._replace(record=test.record._replace(ended_at=ended_at), looks=(*test.looks, look))


def _figures(verdict: AbVerdict, difference: Difference | None) -> Figures | None:
    if difference is None or verdict.interval is None:
        return None
    return Figures(
        entities_a=int(difference.entities_a),
        entities_b=int(difference.entities_b),
        value_a=float(difference.value_a),
        value_b=float(difference.value_b),
        difference=float(difference.difference),
        low=float(verdict.interval.low),
        high=float(verdict.interval.high),
        p_value=None if verdict.p_value is None else float(verdict.p_value),
    )
