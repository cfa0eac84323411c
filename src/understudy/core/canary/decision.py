"""What a canary analysis comes to, as values: the verdict, and each check with its state and its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from math import inf
from typing import Any, NamedTuple

from understudy.core.canary.entities.worst_entities import FailingEntity
from understudy.core.canary.slices.failing_slices import FailingSlice


class Verdict(StrEnum):
    """The result of one canary analysis.

    ``HOLD`` covers everything that is not decided yet, no traffic included; ``INVALID`` says that the two sides cannot
    be compared, because the traffic is not split as the policy says.
    """

    ADVANCE = "ADVANCE"
    HOLD = "HOLD"
    ROLL_BACK = "ROLL_BACK"
    INVALID = "INVALID"


class Unit(Enum):
    """What the values of a check's two sides are."""

    RATE = auto()
    """A share, 0 to 1; where the champion's is 0, the ratio of the two is infinite."""
    SECONDS = auto()
    NUMBER = auto()
    COUNT = auto()


class Worse(Enum):
    """Which side of its limit a change is on when the challenger is worse."""

    ABOVE = auto()
    EITHER_SIDE = auto()
    """Above the limit or below its negative: the value may move either way."""
    BEYOND_LIMIT = auto()
    """Above a limit above 1, and below one up to 1: what more of it means, the policy says."""


@dataclass(frozen=True, slots=True)
class Check:
    """What is compared, and how its values are read."""

    name: str
    """In JSON and in the labels of metrics."""
    title: str
    """In texts."""
    unit: Unit
    worse: Worse = Worse.ABOVE
    is_in_deviations: bool = False
    """Whether the change is a difference in standard deviations of the champion's; otherwise it is a ratio."""
    is_distance: bool = False
    """Whether the change is a distance without a unit and without an interval."""
    has_interval: bool = False
    """Whether sentences tell both bounds of the change, not only the lower one."""
    is_drawn: bool = True
    """Whether a rollout's page draws its change and its evidence over time."""
    needs_past: bool = False
    """Whether it takes a past of the step, or of the champion, that there need not be: no sentence names it as not
    known yet."""
    is_of_latency: bool = False
    """Whether a server whose caches are empty makes it fail."""

    def is_beyond(self, low: float | None, high: float | None, limit: float | None) -> bool:
        """Return whether an interval of the change lies wholly beyond its limit, on the worse side."""
        if low is None or limit is None:
            return False
        if self.worse is Worse.BEYOND_LIMIT and limit <= 1:
            return high is not None and high < limit
        return low > limit or (self.worse is Worse.EITHER_SIDE and high is not None and high < -limit)


class CheckState(StrEnum):
    """What a check says."""

    OK = "pass"
    FAIL = "fail"
    TOO_EARLY = "too_early"
    UNPROVEN = "unproven"
    """Its interval lies beyond the limit, and the evidence that a rollback takes is not there. It decides nothing."""
    WARMING = "warming"
    """It would fail, perhaps because the challenger's server is cold: it holds the step, and takes nothing back."""
    SHARED = "shared"
    """It would fail only with calls that the champion, asked in the challenger's place, failed as well."""
    INVALID = "invalid"


class Evidence(NamedTuple):
    """One check, as a row of a table. ``None`` stands for what is not known or does not apply.

    The sides' values are in the check's unit, and their change is a ratio, or a difference in standard deviations of
    the champion's. Those of ``sample_ratio`` are entities, and its change is the challenger's share over the policy's.
    """

    check: Check
    state: CheckState
    champion: float | None
    challenger: float | None
    change: float | None
    change_low: float | None
    """The change is at least this, at all analyses of the rollout together with 95 % confidence."""
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
    subject: str | None = None
    """What of several is judged: the name of an outcome, or of an input that drifts."""

    @property
    def title(self) -> str:
        """What is compared, in texts."""
        return self.check.title if self.subject is None else f"{self.check.title} {self.subject}"

    @property
    def is_beyond_limit(self) -> bool:
        """Whether the whole interval of the change lies on the wrong side of the limit."""
        return self.check.is_beyond(self.change_low, self.change_high, self.limit)

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object.

        Infinity becomes ``null``, which :func:`understudy.core.canary.checks.evidence_from_json` tells from the
        unknown; ``since`` and ``subject`` are there only if they say something.
        """
        document = {name: None if value == inf else value for name, value in self._asdict().items()}
        document["check"] = self.check.name
        later = ("since", "subject")
        return {name: value for name, value in document.items() if name not in later or value is not None}


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, its reason in words, and what it rests on."""

    verdict: Verdict
    reason: str
    """What was found, or what is missing."""
    evidence: tuple[Evidence, ...] = ()
    missing_requests: int | None = None
    """How many more challenger requests, about, an ``ADVANCE`` waits for; ``None`` when it waits for something else."""
    needs_human: bool = False
    """The stage's time is over and it can still not be decided."""
    entities: tuple[FailingEntity, ...] = ()
    """Entities that the challenger fails while it does nothing worse for all others: an operator has to decide."""
    slices: tuple[FailingSlice, ...] = ()
    """Categories and values of features for which it does worse while it does not for all others."""
    has_shared_errors: bool = False
    """It would be a rollback but for errors that the champion had as well: an operator has to decide."""
    place: str = ""
    """Whom the verdict is about, and when: ``fraud v42 at 10 % (minute 69)``; empty while it is undecided."""
    missing: tuple[str, ...] = ()
    """What an ``ADVANCE`` waits for, each in words; ``reason`` has them in one sentence."""

    @property
    def sentence(self) -> str:
        """Verdict, place and reason in one sentence."""
        return f"{self.verdict.replace('_', ' ')}{self.place and f' {self.place}'}: {self.reason}"

    def to_json(self) -> Mapping[str, Any]:
        """Return it as a JSON object."""
        return {
            "verdict": self.verdict,
            "reason": self.sentence,
            "evidence": [row.to_json() for row in self.evidence],
            "missing_requests": self.missing_requests,
            "needs_human": self.needs_human,
        }
