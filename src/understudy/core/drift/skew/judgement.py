"""Is a feature served otherwise than the feature store has it? Judged as drifts are: by entity, beyond a limit."""

from collections.abc import Mapping, Sequence
from math import copysign, isclose, log10
from typing import NamedTuple

from understudy.core.drift.baseline import CategoricalBaseline
from understudy.core.drift.detector import judge_drift
from understudy.core.drift.limits import DriftPolicy
from understudy.core.drift.report import Drift, DriftState, percent_words
from understudy.core.drift.skew.pairs import Match
from understudy.core.drift.skew.tally import counted
from understudy.core.drift.subject_window import SubjectWindow, skewed_feature
from understudy.core.windows.histogram import Histogram, merged

LIMIT_RATIO = 0.03
"""A feature that moves by itself between a call and its comparison stays below (ADR 143)."""
SKEW_POLICY = DriftPolicy(shares_limit_ratio=LIMIT_RATIO)
JUDGED_SECONDS = 3 * 86_400.0
"""A skew is a defect of today's pipeline; and judging twenty features costs a fifth of a second of processor so."""
ALL_SAME = CategoricalBaseline({Match.SAME.value: 1.0})
_SAME_SIDE = 0.02
"""Ratios that are as near to 1 say nothing about a unit."""
_SPREAD = 0.06
"""Quartiles that are further apart than this, as a share of the median: no single ratio stands for them."""


class FeatureSkew(NamedTuple):
    """A feature's served values beside the store's."""

    feature: str
    drift: Drift
    """In its terms: the shares of calls, all of which should be the same."""
    calls: int
    """Of the hours since it is skewed, else of the most recent ones; likewise what follows."""
    differs: int
    missing: int
    ratio: float | None = None
    """Of most numbers that differ, the served one over the stored one."""

    @property
    def is_skewed(self) -> bool:
        """Whether it is shown to be beyond the limit."""
        return self.drift.state is DriftState.DRIFT

    @property
    def skewed_ratio(self) -> float:
        """The share of calls that were not served the store's value, 0 to 1."""
        return (self.differs + self.missing) / self.calls if self.calls else 0.0

    @property
    def words(self) -> str:
        """What calls were served, and how often."""
        if not self.calls:
            return f"{self.feature}: no call could be compared."
        ways = []
        if self.differs:
            ways.append(f"another value in {percent_words(self.differs / self.calls)}{self._unit}")
        if self.missing:
            ways.append(f"no value in {percent_words(self.missing / self.calls)}")
        served = " and ".join(ways) if ways else "what the feature store has in all"
        return f"{self.feature}: {served} of {self.calls:,} calls (limit {percent_words(LIMIT_RATIO)})."

    @property
    def times(self) -> str:
        """The ratio as people read it: a power of ten where it is one but for the histogram's 1 %; empty for none."""
        if self.ratio is None:
            return ""
        power = copysign(10.0 ** round(log10(abs(self.ratio))), self.ratio)
        return f"{power if isclose(power, self.ratio, rel_tol=_SAME_SIDE) else self.ratio:.3g}"

    @property
    def _unit(self) -> str:
        return f" ({self.times} times it)" if self.times else ""


def judge_skew(feature: str, hours: Sequence[SubjectWindow], until: float) -> FeatureSkew:
    """Return how a feature is served.

    Args:
        feature: Its name.
        hours: Oldest first; the last one need not be over.
        until: Now, in seconds since the epoch.
    """
    recent = [hour for hour in hours if hour.start_seconds >= until - JUDGED_SECONDS]
    drift = judge_drift(feature, ALL_SAME, recent, SKEW_POLICY)
    since = drift.since_seconds
    shown = recent[-SKEW_POLICY.recent_windows :] if since is None else [h for h in recent if h.start_seconds >= since]
    counts = counted(shown)
    return FeatureSkew(
        feature, drift, sum(counts.values()), counts[Match.DIFFERS], counts[Match.MISSING], _ratio_of(shown)
    )


def judge_skews(hours: Mapping[str, Sequence[SubjectWindow]], until: float) -> list[FeatureSkew]:
    """Return each feature's skew, by name, from hours by subject; other subjects than skews are not looked at."""
    named = [(skewed_feature(subject), windows) for subject, windows in sorted(hours.items())]
    return [judge_skew(name, windows, until) for name, windows in named if name is not None]


def _ratio_of(hours: Sequence[SubjectWindow]) -> float | None:
    """Return what most numbers that differ are multiplied by; ``None`` where there is no such thing."""
    found = merged(Histogram(hour.cells) for hour in hours)
    low, middle, high = (found.quantile(share) for share in (0.25, 0.5, 0.75))
    if low is None or middle is None or high is None or not middle or abs(middle - 1) < _SAME_SIDE:
        return None
    return middle if abs(high - low) <= _SPREAD * abs(middle) else None
