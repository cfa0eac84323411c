"""What a canary analysis tolerates, asks for and may conclude, and where its rollout stands."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from math import isfinite
from typing import Any, NamedTuple, Self, TypeVar

from understudy.core.canary.judge_limits import JudgeLimit, read_judge
from understudy.core.canary.limit_reader import MAX_NAME
from understudy.core.canary.metric_limits import MetricLimit, read_metrics
from understudy.core.canary.outcome_limits import (
    MAX_LIMIT_RATIO,
    MAX_WITHIN_SECONDS,
    OutcomeLimit,
    read_outcomes,
)
from understudy.errors import Violation

_Limits = TypeVar("_Limits", tuple[OutcomeLimit, ...], tuple[MetricLimit, ...], JudgeLimit | None)


class _Bounds(NamedTuple):
    """What a field may be, both ends included."""

    low: float
    high: float


SLICE_MODES = ("hold", "rollback", "off")
"""A person decides, as by default; the version is taken back; or slices are not judged."""
_BOUNDS: Mapping[str, _Bounds] = {
    "alpha": _Bounds(1e-9, 0.5),
    "error_rate_share": _Bounds(0.01, 1.0),
    "slow_tail_share": _Bounds(0.01, 1.0),
    "slow_p99_share": _Bounds(0.01, 1.0),
    "slow_p999_share": _Bounds(0.01, 1.0),
    "typical_latency_share": _Bounds(0.01, 1.0),
    "latency_change_share": _Bounds(0.01, 1.0),
    "score_shift_share": _Bounds(0.01, 1.0),
    "outcome_share": _Bounds(0.01, 1.0),
    "metric_share": _Bounds(0.01, 1.0),
    "judge_share": _Bounds(0.01, 1.0),
    "tolerated_error_ratio": _Bounds(1.0, 100.0),
    "tolerated_slow_ratio": _Bounds(1.0, 100.0),
    "tolerated_latency_ratio": _Bounds(1.0, 100.0),
    "lone_latency_ratio": _Bounds(1.0, 100.0),
    "score_shift_limit": _Bounds(0.0, 100.0),
    "outcome_limit_ratio": _Bounds(0.0, MAX_LIMIT_RATIO),
    "outcome_within_seconds": _Bounds(1.0, MAX_WITHIN_SECONDS),
    "across_entities_alpha": _Bounds(1e-9, 0.5),
    "sample_ratio_alpha": _Bounds(1e-12, 0.5),
    "min_requests": _Bounds(1, 1e12),
    "min_entities": _Bounds(1, 1e12),
    "dwell_seconds": _Bounds(0.0, 1e9),
    "maximum_seconds": _Bounds(1.0, 1e9),
    "detectable_ratio": _Bounds(1.05, 1_000.0),
    "detectable_weight_percent": _Bounds(1.0, 100.0),
    "error_rate_floor": _Bounds(1e-6, 0.5),
    "warm_up_seconds": _Bounds(0.0, 86_400.0),
    "watermark_seconds": _Bounds(0.0, 3_600.0),
}


@dataclass(frozen=True, slots=True)
class CanaryPolicy:
    """Limits of a stage.

    Raises:
        ValueError: Naming the field that cannot be used, and what it may be.
    """

    alpha: float = 0.01
    """Chance that a whole rollout of an equal version is rolled back, over all its analyses and checks."""
    error_rate_share: float = 0.45
    """Of ``alpha``; the shares of the checks in use are scaled to 1."""
    slow_tail_share: float = 0.1
    slow_p99_share: float = 0.05
    slow_p999_share: float = 0.15
    typical_latency_share: float = 0.2
    latency_change_share: float = 0.05
    score_shift_share: float = 0.25
    outcome_share: float = 0.25
    metric_share: float = 0.25
    judge_share: float = 0.25
    tolerated_error_ratio: float = 1.0
    tolerated_slow_ratio: float = 1.0
    """On top of the 20 % that the challenger's threshold is higher."""
    tolerated_latency_ratio: float = 1.1
    lone_latency_ratio: float = 1.3
    """A typical latency that is worse, but by less than this, only holds: pods differ (statistics page, §7)."""
    score_shift_limit: float | None = None
    """In standard deviations of the champion's scores; ``None`` leaves the check out."""
    outcome: str | None = None
    """Name of the outcome that must not get worse; ``None`` leaves the check out. It can only roll back."""
    outcome_limit_ratio: float = 0.05
    """How much worse it may be, as a share of the champion's."""
    outcome_within_seconds: float = 3_600.0
    """How long after an entity's first call its outcomes count, and before which it does not count itself."""
    outcome_lower_is_better: bool = False
    outcomes: tuple[OutcomeLimit, ...] = ()
    """In the place of ``outcome``: several, each with limits of its own, of which any may hold a step. All of them
    share ``outcome_share``."""
    metrics: tuple[MetricLimit, ...] = ()
    """Of an operator's own, which a Prometheus API gives; all of them share ``metric_share``."""
    judge: JudgeLimit | None = None
    """Who compares both versions' answers to the same inputs; ``None`` leaves the check out."""
    across_entities_alpha: float = 0.05
    """Of the second key, which guards against entities that differ from each other; the first guards against chance."""
    sample_ratio_alpha: float = 1e-4
    min_requests: int = 100
    """Judged challenger requests of the stage."""
    min_entities: int = 30
    """Entities that met the challenger, in the rollout."""
    dwell_seconds: float = 1_800.0
    maximum_seconds: float = 21_600.0
    """Time in one stage after which an operator is asked."""
    detectable_ratio: float = 2.0
    """The error ratio that must have been visible before traffic is added, from ``detectable_weight_percent`` on. At a
    smaller weight a larger one will do, so that the harm that callers may have had undetected is the same."""
    detectable_weight_percent: float = 25.0
    error_rate_floor: float = 0.005
    """A champion with fewer errors than this counts as having them when that is asked: of 0.01 % the double would take
    longer to see than it is worth."""
    warm_up_seconds: float = 30.0
    """From the rollout's start; latency is not judged in it."""
    watermark_seconds: float = 5.0
    """A window is judged this long after its end, when its rows are in."""
    slices: str = "hold"
    """What a category, or a value of a marked feature, for which the challenger does worse leads to."""

    def __post_init__(self) -> None:
        for name, bounds in _BOUNDS.items():
            _check(name, getattr(self, name), bounds)
        _check_outcome(self.outcome, self.outcome_lower_is_better)
        if self.outcome is not None and self.outcomes:
            raise ValueError("canary policy: outcome: expected none beside outcomes, name it there")
        if self.slices not in SLICE_MODES:
            raise ValueError(f"canary policy: slices: expected {', '.join(SLICE_MODES)}, got {self.slices!r:.80}")

    @property
    def watched_outcomes(self) -> tuple[OutcomeLimit, ...]:
        """The outcomes that are judged; one that stands alone holds no step."""
        if self.outcome is None:
            return self.outcomes
        limits = self.outcome_limit_ratio, self.outcome_within_seconds, self.outcome_lower_is_better
        return (OutcomeLimit(self.outcome, *limits),)

    def detectable_ratio_at(self, weight_percent: float) -> float:
        """Return the error ratio that must have been visible at a weight."""
        scale = max(1.0, self.detectable_weight_percent / weight_percent) if weight_percent > 0 else 1.0
        return 1 + (self.detectable_ratio - 1) * scale

    def to_json(self) -> dict[str, Any]:
        """Return the policy as a JSON object; a release before lists or judges refuses an object that names them."""
        document = asdict(self)
        for name in ("outcomes", "metrics"):
            document[name] = [limit.to_json() for limit in getattr(self, name)]
        document["judge"] = None if self.judge is None else self.judge.to_json()
        optional: dict[str, object] = {"outcomes": self.outcomes, "metrics": self.metrics, "judge": self.judge}
        optional |= {"metric_share": self.metrics, "judge_share": self.judge}
        return {name: value for name, value in document.items() if optional.get(name, (name,))}

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Return the policy of a JSON object; what it leaves out has its default.

        Raises:
            ValueError: Naming the field that is unknown or cannot be used.
        """
        given = dict(document) if isinstance(document, Mapping) else None
        if given is None:
            raise ValueError(f"canary policy: expected an object, got {document!r:.80}")
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(map(str, given)) - known)
        if unknown:
            raise ValueError(f"canary policy: unknown field {unknown[0]!r:.80}; known are {', '.join(sorted(known))}")
        if "outcomes" in given:
            given["outcomes"] = _limits_of("outcomes", read_outcomes, given["outcomes"])
        if "metrics" in given:
            given["metrics"] = _limits_of("metrics", read_metrics, given["metrics"])
        if given.get("judge") is not None:
            given["judge"] = _limits_of("judge", read_judge, given["judge"])
        return cls(**given)


_WHOLE = ("min_requests", "min_entities")
_OPTIONAL = ("score_shift_limit",)


def _check(name: str, value: Any, bounds: _Bounds) -> None:
    if value is None and name in _OPTIONAL:
        return
    kinds = (int,) if name in _WHOLE else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or not bounds.low <= value <= bounds.high:
        kind = "a whole number" if name in _WHOLE else "a number"
        raise ValueError(
            f"canary policy: {name}: expected {kind} from {bounds.low:g} to {bounds.high:g}, got {value!r}"
        )


def _check_outcome(name: Any, lower_is_better: Any) -> None:
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_NAME):
        raise ValueError(f"canary policy: outcome: expected a name of 1 to {MAX_NAME} characters, got {name!r:.80}")
    if lower_is_better not in (True, False):
        raise ValueError(f"canary policy: outcome_lower_is_better: expected true or false, got {lower_is_better!r:.80}")


def _limits_of(name: str, read: Callable[[Any], tuple[_Limits, list[Violation]]], value: Any) -> _Limits:
    limits, violations = read(value)
    if violations:
        pointer, detail = violations[0]
        raise ValueError(f"canary policy: {name}{pointer}: {detail}")
    return limits


class Rules(IntEnum):
    """The rules that a verdict is made by. A stored verdict names them, and is judged again by the same ones.

    Each has what the ones before it have.
    """

    STEPS = 0
    """Evidence begins with steps alone: before restarts, and of the watch after a promotion in every release."""
    RESTARTS = 1
    """Evidence of errors begins anew within steps; no step ends in a minute that looks worse (ADR 51)."""
    INCIDENTS = 2
    """What an incident of two minutes may add to the evidence of errors is bounded (ADR 65)."""
    DAYS = 3
    """Errors begin anew every hour as well, latency is compared with its own past in the step, the typical latency
    knows how far pods wander, and slow answers count beyond what it explains (ADR 67)."""
    TAILS = 4
    """The slowest hundredth and thousandth of the answers are judged as well (ADR 69)."""
    COLD = 5
    """A challenger that may be getting warm is held, and latency counts from when it is warm (ADR 81)."""
    OUTCOMES = 6
    """A plan may name several outcomes, and steps wait until those that hold them are within their margins (ADR 86)."""
    SHARED_ERRORS = 7
    """Errors that the champion had as well take nothing back: an operator is asked (ADR 92)."""
    INTERVALS = 8
    """An incident of two minutes does not make the interval of the errors look worse either (ADR 116)."""
    JUDGE = 9
    """A plan may name a judge, who compares both versions' answers (ADR 131)."""
    CHANGES = 10
    """Within a step errors are seen sooner: the alpha of the hours lasts longer, and the second key of what began
    within a step is a likelihood ratio, which entities that are alike make smaller (ADR 151)."""
    MODERATED = 11
    """How far the mean latency scatters over a few blocks of windows is told by the champion's wandering as well
    (ADR 159)."""


NEWEST_RULES = max(Rules)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a rollout stands."""

    model_name: str
    version: str
    """The challenger's label."""
    rollout_id: int
    starts: tuple[float, ...]
    """When each stage so far began, in seconds since the epoch; the last one is going on."""
    planned: int
    """How many stages the plan has; fixed when the rollout starts."""
    weight_percent: float
    """The challenger's weight now."""
    weights_percent: Mapping[int, float]
    """The challenger's weight under each policy generation of the rollout."""
    split_from: float = 0.0
    """The split is judged from here on, in seconds since the epoch: an operator resumed the rollout then."""
    rules: Rules = NEWEST_RULES
    champion_before: tuple[tuple[float, float, float], ...] = ()
    """The champion's answers in the five minutes before the rollout, twelve times: number, sum and sum of squares of
    the logarithm of their microseconds, oldest first; those without calls are left out."""
    tail_steps: tuple[int | None, ...] = ()
    """The steps of the tail that were the champion's 99th and 99.9th percentiles in the hour before; none where that
    hour cannot say it."""

    def __post_init__(self) -> None:
        if not self.starts:
            raise ValueError("stage: starts: expected at least one")
        if self.rules not in tuple(Rules):
            raise ValueError(
                f"stage: rules: expected 0 to {NEWEST_RULES:d}, got {self.rules!r}; a newer release made it"
            )
