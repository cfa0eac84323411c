"""Check input: what each check of a canary analysis is given, and the row of evidence that it comes to."""

from collections.abc import Callable
from math import log
from typing import NamedTuple

from understudy.core.canary.decision import Check, CheckState, Evidence
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.metric_samples import MetricSamples
from understudy.core.statistics.difference import Difference
from understudy.core.statistics.sequential_evidence import FloatArray, Processes, Restarts, finite_exp, processes_of
from understudy.core.windows.strata import Strata

Outcomes = tuple[Difference | None, ...]
"""Challenger less champion of each outcome that a policy names; ``None`` while nothing is known of one, or left out."""
Metrics = tuple[MetricSamples, ...]
"""Of the metrics that a policy names, in their order; none while nothing was read."""
INTERVAL_ALPHA = 0.05
"""Intervals hold at all analyses together with 95 %."""


class Keys(NamedTuple):
    """Logarithms of the evidence against chance, of what it needs, and of the evidence across entities."""

    against_chance: float
    needed: float
    across_entities: float
    leading_restart: int | None = None
    """First window of the process against chance that says the most, if it began within a stage."""


class CheckInput(NamedTuple):
    """What a check compares: windows that are closed, and where each stage begins among them."""

    strata: Strata
    policy: CanaryPolicy
    stage: Stage
    firsts: tuple[int, ...]
    """Index of the first window of each stage."""
    warm: int
    """Index of the first window in which latency is judged."""
    restarts: tuple[Restarts, ...] = ()
    """Processes that have begun within stages, by schedule; none where none ever does."""
    outcomes: Outcomes = ()
    """Of the policy's outcomes, in their order."""
    is_error_detectable: bool = False
    """Whether the error ratio that the policy asks about would have been seen by now."""
    latency_shift: FloatArray | None = None
    """How far the challenger's typical latency was above the champion's in the last minutes of each window, as a
    logarithm; ``None`` where slow answers count whatever explains them."""
    early_failure: Keys | None = None
    """Evidence that the challenger fails from its first calls on, which then stands for that of the error rate."""
    metrics: Metrics = ()
    now: float = 0.0
    """Seconds since the epoch; metrics and judgements count that were known by then."""
    judgements: Judgements = NO_JUDGEMENTS
    """What the policy's judge has said."""

    @property
    def requests(self) -> tuple[int, int]:
        """Judged calls of the champion and the challenger in the rollout."""
        return int(self.strata.champion["calls"].sum()), int(self.strata.challenger["calls"].sum())

    def outcome(self, number: int) -> Difference | None:
        """Return what is known of one of the policy's outcomes."""
        return self.outcomes[number] if number < len(self.outcomes) else None

    @property
    def hurried_requests(self) -> int:
        """Calls of the challenger that no version is judged by, because their callers gave them too little time."""
        return int(self.strata.challenger["hurried_calls"].sum())

    @property
    def has_enough_requests(self) -> bool:
        """Whether so many challenger requests were judged that a difference would mean something."""
        return self.requests[1] >= self.policy.min_requests

    def is_judged_like(self, other: "CheckInput") -> bool:
        """Return whether every check that does not go by the clock comes to the same row for both.

        ``restarts`` and ``latency_shift`` follow from the windows and the stage.
        """
        return (
            (self.policy, self.stage, self.firsts, self.warm) == (other.policy, other.stage, other.firsts, other.warm)
            and self.outcomes == other.outcomes
            and self.is_error_detectable == other.is_error_detectable
            and self.early_failure == other.early_failure
            and self.strata.is_equal(other.strata)
        )

    def processes(self) -> Processes:
        """Return where evidence begins."""
        return processes_of(self.firsts, self.stage.planned, self.restarts)

    def processes_of_stages(self) -> Processes:
        """Return where evidence about latency and scores begins: with stages alone.

        The pods of one side have a bad few minutes, and a few windows do not show the variance between them: with a
        restart every three minutes, equal versions on pods whose latency wanders were rolled back (ADR 51).
        """
        return processes_of(self.firsts, self.stage.planned)


class Comparison(NamedTuple):
    """Both sides' values, the change between them, and its bounds."""

    champion: float | None
    challenger: float | None
    change: float | None
    change_low: float | None
    change_high: float | None


def evidence_row(
    inputs: CheckInput, check: Check, comparison: Comparison, limit: float, keys: Keys, *, is_enough: bool
) -> Evidence:
    """Return a row; it fails when both keys say so, and passes only if ``is_enough`` was seen and nothing worse."""
    second_needed = -log(inputs.policy.across_entities_alpha)
    state = CheckState.OK if is_enough else CheckState.TOO_EARLY
    if check.is_beyond(comparison.change_low, comparison.change_high, limit):
        state = CheckState.UNPROVEN
    if keys.against_chance >= keys.needed:
        state = CheckState.FAIL if keys.across_entities >= second_needed else CheckState.TOO_EARLY
    return Evidence(
        check,
        state,
        *comparison,
        limit,
        finite_exp(keys.against_chance),
        finite_exp(keys.needed),
        finite_exp(keys.across_entities),
        finite_exp(second_needed),
        *inputs.requests,
    )


def since_leading_restart(
    inputs: CheckInput, row: Evidence, keys: Keys, comparison: Callable[[int], Comparison]
) -> Evidence:
    """Return a failing row with the figures since the leading restart, if one within a stage says the most.

    Of a challenger that was fine for days the figures of all its days would say that it is. The windows were chosen by
    what is in them, so no interval holds.
    """
    if row.state is not CheckState.FAIL or keys.leading_restart is None:
        return row
    found = comparison(keys.leading_restart)._replace(change_low=None, change_high=None)
    return row._replace(**found._asdict(), since=float(inputs.strata.starts[keys.leading_restart]))
