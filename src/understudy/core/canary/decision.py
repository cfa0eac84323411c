"""What one look at a rollout comes to, as values: for people, for tables, and for the executor."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple


class Verdict(StrEnum):
    """The result of one canary analysis.

    ``HOLD`` covers everything that is not decided yet, no traffic included; ``INVALID`` says that the two sides cannot
    be compared, because the traffic is not split as the policy says.
    """

    ADVANCE = "ADVANCE"
    HOLD = "HOLD"
    ROLL_BACK = "ROLL_BACK"
    INVALID = "INVALID"


class Check(StrEnum):
    """What is compared."""

    ERROR_RATE = "error_rate"
    SLOW_TAIL = "slow_tail"
    TYPICAL_LATENCY = "typical_latency"
    SCORE_SHIFT = "score_shift"
    OUTCOME = "outcome"
    """Only where one was declared."""
    SAMPLE_RATIO = "sample_ratio"
    P99_LATENCY = "p99_latency"
    """Only of the seed's rule."""


class CheckState(StrEnum):
    """What a check says."""

    OK = "pass"
    FAIL = "fail"
    TOO_EARLY = "too_early"
    UNPROVEN = "unproven"
    """Its interval lies beyond the limit, and the evidence that a rollback takes is not there. It decides nothing."""
    INVALID = "invalid"


class Evidence(NamedTuple):
    """One check, as a row of a table. ``None`` stands for what is not known or does not apply.

    The sides' values and the change are: rates (0 to 1) and their ratio for ``error_rate`` and ``slow_tail``, seconds
    and their ratio for ``typical_latency`` and ``p99_latency``, scores and the difference in standard deviations of the
    champion's for ``score_shift``, means by entity and their ratio for ``outcome``, entities and the ratio of the
    challenger's share to the policy's for ``sample_ratio``.
    """

    check: Check
    state: CheckState
    champion: float | None
    challenger: float | None
    change: float | None
    change_low: float | None
    """The change is at least this, at all looks of the rollout with 95 % confidence."""
    change_high: float | None
    limit: float | None
    """The change that is tolerated."""
    evidence: float | None
    """The first key: whether chance would have shown it. 1 says nothing; rules without evidence have none."""
    evidence_needed: float | None
    evidence_across_entities: float | None
    """The second key: whether other entities would have shown the same."""
    evidence_across_entities_needed: float | None
    champion_requests: int
    challenger_requests: int
    since: float | None = None
    """Both values and the change are of the windows from here on, in seconds since the epoch; ``None``: of all."""

    @property
    def is_beyond_limit(self) -> bool:
        """Whether the whole interval of the change lies on the wrong side of the limit."""
        return is_beyond(self.check, self.change_low, self.change_high, self.limit)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object; infinity becomes ``null``, and :meth:`from_json` knows it from the unknown.

        ``since`` is there only if it says something.
        """
        document = {name: None if value == inf else value for name, value in self._asdict().items()}
        return {name: value for name, value in document.items() if name != "since" or value is not None}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Evidence":
        """Return the row that :meth:`to_json` wrote.

        A ``change_high`` of ``null`` beside a ``change_low`` is an interval without an upper bound; a ``change`` of
        ``null`` is infinite where a rate is compared with none.
        """
        row = cls(**{**document, "check": Check(document["check"]), "state": CheckState(document["state"])})
        if row.change_low is not None and row.change_high is None:
            row = row._replace(change_high=inf)
        is_infinite = row.check in RATES and row.change is None and row.champion == 0 and bool(row.challenger)
        return row._replace(change=inf) if is_infinite else row


RATES = (Check.ERROR_RATE, Check.SLOW_TAIL)
"""Checks of shares, whose change is a ratio that is infinite when the champion has none."""


def is_beyond(check: Check, low: float | None, high: float | None, limit: float | None) -> bool:
    """Return whether an interval lies beyond its limit as a whole.

    A mean score may move either way, and an outcome of which more is better has its limit below.
    """
    if low is None or limit is None:
        return False
    if check is Check.OUTCOME and limit <= 1:
        return high is not None and high < limit
    return low > limit or (check is Check.SCORE_SHIFT and high is not None and high < -limit)


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, its reason in words, and what it rests on."""

    verdict: Verdict
    reason: str
    evidence: tuple[Evidence, ...] = ()
    missing_requests: int | None = None
    """How many more challenger requests, about, an ``ADVANCE`` waits for; ``None`` when it waits for something else."""
    needs_human: bool = False
    """The stage's time is over and it can still not be decided."""

    def to_json(self) -> Mapping[str, Any]:
        """Return it as a JSON object."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "evidence": [row.to_json() for row in self.evidence],
            "missing_requests": self.missing_requests,
            "needs_human": self.needs_human,
        }
