"""Limits of drift: the margins and the policy from which on a change counts."""

from dataclasses import dataclass
from math import inf

from understudy.core.drift.evidence import Measure
from understudy.core.drift.measures import Rules


@dataclass(frozen=True, slots=True)
class DriftPolicy:
    """What is too far, and how sure one wants to be of it.

    Raises:
        ValueError: Naming the number that is out of range.
    """

    mean_limit_deviations: float = 0.10
    """Difference of means in the baseline's standard deviations."""
    wasserstein_limit_deviations: float = 0.10
    """Area between the distributions in the baseline's standard deviations."""
    psi_limit: float = 0.20
    nulls_limit_ratio: float = 0.02
    shares_limit_ratio: float | None = None
    """Difference of a category's share; where it is set, categories are compared by it and not by their PSI."""
    run_length_windows: float = 2_000.0
    """Windows without any drift in which one false alarm is expected, at most."""
    minimum_rows: int = 200
    minimum_buckets: int = 16
    """Of the 64 analysis buckets, so that the spread between them is known."""
    recovery_windows: int = 8
    """Windows that must be within the limits together before a drift is over."""
    recent_windows: int = 24
    """What "now" is while there is no drift."""

    def __post_init__(self) -> None:
        """Refuse what cannot be judged by."""
        for measure, limit in self.limits.items():
            if not 0 < limit < inf:
                raise ValueError(f"the limit of {measure}: expected a number above 0, got {limit:g}")
        if not 1 < self.run_length_windows < inf:
            raise ValueError(f"run_length_windows: expected more than 1, got {self.run_length_windows:g}")
        if min(self.minimum_rows, self.minimum_buckets) <= 1 or min(self.recovery_windows, self.recent_windows) <= 0:
            raise ValueError(
                "minimum_rows, minimum_buckets: expected at least 2; recovery and recent windows: at least 1"
            )

    @property
    def limits(self) -> dict[Measure, float]:
        """The limits by measure."""
        return {
            Measure.MEAN: self.mean_limit_deviations,
            Measure.WASSERSTEIN: self.wasserstein_limit_deviations,
            Measure.PSI: self.psi_limit,
            Measure.NULLS: self.nulls_limit_ratio,
            **({} if self.shares_limit_ratio is None else {Measure.SHARES: self.shares_limit_ratio}),
        }

    @property
    def rules(self) -> Rules:
        """What the measures need of it."""
        return Rules(self.limits, self.minimum_rows, self.minimum_buckets)


DEFAULT_POLICY = DriftPolicy()
