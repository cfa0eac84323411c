"""Compares a replay with the log: what a version answers to calls that another one answered, call by call.

Both saw the same inputs, so the scores are compared as those of champion and shadow are
(:func:`understudy.core.experiments.shadow_comparison.compare_shadow`): the champion's are those that were logged.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from math import inf, isclose, nan
from typing import NamedTuple

import numpy as np

from understudy.core.amounts import amount_words
from understudy.core.experiments.logged_calls import Answer
from understudy.core.experiments.shadow_comparison import (
    DEFAULT_THRESHOLD,
    ScoreComparison,
    ShadowPairs,
    compare_shadow,
)
from understudy.core.prediction_log.row import Status
from understudy.core.statistics.sample_size import FloatArray

MAX_EXAMPLES = 5
SAME_RATIO = 1e-5
"""Scores that differ by less, of the larger one, are the same: so much may two batches of one float32 model differ."""
_SAME_DIFFERENCE = 1e-9


class ReplayedCall(NamedTuple):
    """A logged call and what became of it when it was sent again.

    Exactly one holds: there is a ``now``, the version failed (``code``), or it was not asked (``reason``).
    """

    prediction_id: str
    predicted_at: float
    entity_id: str
    version_id: int
    """Who answered then."""
    then: Answer | None
    """``None``: what was logged can be compared with nothing."""
    then_seconds: float = nan
    """NaN where no model server was asked, or two were."""
    now: Answer | None = None
    seconds: float = nan
    code: str = ""
    """The error's, when the version failed."""
    detail: str = ""
    reason: str = ""

    @property
    def incomparable(self) -> str:
        """Why nothing can be compared although nothing failed; empty when it can."""
        if self.reason or self.then is None or self.now is None:
            return self.reason
        if (self.then.label is None) != (self.now.label is None):
            return f"{_kind_of(self.then)} then, and {_kind_of(self.now)} now"
        return "" if self.then.label is not None or self.now.score is not None else "there is no score now"

    @property
    def is_compared(self) -> bool:
        """Whether there are two answers of one kind."""
        return self.then is not None and self.now is not None and not self.incomparable

    @property
    def difference(self) -> float | None:
        """The score now less the one then; ``None`` where one of both has none."""
        then, now = self.then, self.now
        if then is None or now is None or then.score is None or now.score is None:
            return None
        return now.score - then.score

    @property
    def has_other_class(self) -> bool:
        """Whether both answers are classes, and not the same one."""
        return self.then is not None and self.now is not None and self.then.label != self.now.label

    @property
    def differs(self) -> bool:
        """Whether the answers that are compared are not the same: another class, or without classes another score."""
        then, now = self.then, self.now
        if then is None or now is None or then.label is not None or then.score is None or now.score is None:
            return self.has_other_class
        return not isclose(then.score, now.score, rel_tol=SAME_RATIO, abs_tol=_SAME_DIFFERENCE)


class ReplayState(StrEnum):
    """What can be said; the first one is neither good nor bad."""

    NO_INPUTS = "no_inputs"
    NOTHING_COMPARED = "nothing_compared"
    COMPARED = "compared"


class FailedCalls(NamedTuple):
    """Calls that ended in one kind of error."""

    code: str
    calls: int
    detail: str
    """Of the first one."""


class IncomparableCalls(NamedTuple):
    """Calls of which nothing can be said, for one reason."""

    reason: str
    calls: int


class Distances(NamedTuple):
    """How far apart the scores of each call are, without the sign."""

    mean: float
    p50: float
    p95: float
    largest: float


class ClassChanges(NamedTuple):
    """Of the calls that were answered with a class both times."""

    pairs: int
    changed: int

    @property
    def changed_percent(self) -> float:
        """Share that got another class."""
        return 100 * self.changed / self.pairs


class ReplayLatency(NamedTuple):
    """How long calls took, in seconds: then in the proxy, now at the model server alone. NaN where none is known."""

    then_p50_seconds: float
    then_p99_seconds: float
    p50_seconds: float
    p99_seconds: float
    longest_seconds: float


class ReplayReport(NamedTuple):
    """The comparison; what there is no data for is ``None``, and the sentence says why.

    ``calls`` is the sum of those that agreed, differed, failed, cannot be compared and were not sent.
    """

    state: ReplayState
    sentence: str
    calls: int
    replayed: int = 0
    """Calls that the version answered or failed."""
    agreed: int = 0
    differed: int = 0
    unsent: int = 0
    """For want of time."""
    failed: tuple[FailedCalls, ...] = ()
    """The most frequent first."""
    incomparable: tuple[IncomparableCalls, ...] = ()
    distances: Distances | None = None
    scores: ScoreComparison | None = None
    """With the logged ones as the champion's."""
    classes: ClassChanges | None = None
    latency: ReplayLatency | None = None
    examples: tuple[ReplayedCall, ...] = ()
    """The calls that differ most: those with another class first, then by the distance of their scores."""

    @property
    def is_whole(self) -> bool:
        """Whether every call was sent, answered and compared, and there was one."""
        return self.state is ReplayState.COMPARED and not (self.failed or self.incomparable or self.unsent)

    @property
    def is_identical(self) -> bool:
        """Whether all of enough answers are the same to the last bit, as those of two models hardly are."""
        return not self.differed and self.scores is not None and self.scores.is_identical


def compare_replay(calls: Sequence[ReplayedCall], unsent: int = 0, top: int = MAX_EXAMPLES) -> ReplayReport:
    """Return the comparison; it lists at most ``top`` of the calls that differ."""
    taken = len(calls) + unsent
    if not taken:
        none = "Nothing was replayed: no call with stored inputs was answered in this time."
        return ReplayReport(ReplayState.NO_INPUTS, none, 0)
    compared = [call for call in calls if call.is_compared]
    differing = [call for call in compared if call.differs]
    scored = [call for call in compared if call.difference is not None]
    classes = [call.has_other_class for call in compared if call.then is not None and call.then.label is not None]
    report = ReplayReport(
        ReplayState.COMPARED if compared else ReplayState.NOTHING_COMPARED,
        "",
        taken,
        sum(call.now is not None or bool(call.code) for call in calls),
        len(compared) - len(differing),
        len(differing),
        unsent,
        _failed(calls),
        tuple(IncomparableCalls(*counted) for counted in Counter(filter(None, _reasons(calls))).most_common()),
        _distances(scored) if scored else None,
        _scores(scored) if scored else None,
        ClassChanges(len(classes), sum(classes)) if classes else None,
        _latency(calls),
        tuple(sorted(differing, key=_most_different_first)[:top]),
    )
    return report._replace(sentence=_sentence(report))


def _kind_of(answer: Answer) -> str:
    return "a score" if answer.label is None else "a class"


def _reasons(calls: Sequence[ReplayedCall]) -> list[str]:
    return [call.incomparable for call in calls]


def _failed(calls: Sequence[ReplayedCall]) -> tuple[FailedCalls, ...]:
    details: dict[str, str] = {}
    for call in calls:
        details.setdefault(call.code, call.detail)
    counts = Counter(call.code for call in calls if call.code)
    return tuple(FailedCalls(code, count, details[code]) for code, count in counts.most_common())


def _distances(scored: Sequence[ReplayedCall]) -> Distances:
    sizes = np.abs([call.difference or 0.0 for call in scored])
    p50, p95 = np.quantile(sizes, (0.5, 0.95))
    return Distances(float(sizes.mean()), float(p50), float(p95), float(sizes.max()))


def _scores(scored: Sequence[ReplayedCall]) -> ScoreComparison | None:
    """Return how the scores compare, as those of a shadow that answered every call."""
    count = len(scored)
    _, entities = np.unique(np.array([call.entity_id for call in scored], dtype=np.str_), return_inverse=True)
    ok, unknown = np.full(count, Status.OK.value), np.full(count, nan)
    pairs = ShadowPairs(
        prediction_ids=np.array([call.prediction_id for call in scored], dtype=np.str_),
        entities=entities.astype(np.int64),
        champion_statuses=ok,
        shadow_statuses=ok,
        champion_seconds=unknown,
        shadow_seconds=unknown,
        champion_scores=_floats([call.then.score if call.then is not None else None for call in scored]),
        shadow_scores=_floats([call.now.score if call.now is not None else None for call in scored]),
    )
    return compare_shadow(pairs, top=0).scores


def _latency(calls: Sequence[ReplayedCall]) -> ReplayLatency | None:
    now = _floats([call.seconds for call in calls if call.now is not None])
    if not len(now):
        return None
    then = _floats([call.then_seconds for call in calls if call.now is not None])
    known = then[~np.isnan(then)]
    before = np.quantile(known, (0.5, 0.99)) if len(known) else (nan, nan)
    return ReplayLatency(*map(float, (*before, *np.quantile(now, (0.5, 0.99)), now.max())))


def _floats(values: Sequence[float | None]) -> FloatArray:
    return np.array([nan if value is None else value for value in values], dtype=np.float64)


def _most_different_first(call: ReplayedCall) -> tuple[bool, float, str]:
    distance = inf if call.difference is None else abs(call.difference)
    return not call.has_other_class, -distance, call.prediction_id


def _sentence(report: ReplayReport) -> str:
    """Return what matters most: that calls fail, then how many answers are others and how far they are apart."""
    failures = sum(one.calls for one in report.failed)
    codes = ", ".join(f"{one.code} {one.calls:,}" for one in report.failed)
    said = [f"{failures:,} of {report.calls:,} calls failed ({codes})."] if failures else []
    unknown = sum(one.calls for one in report.incomparable)
    if report.state is ReplayState.COMPARED:
        said.append(_compared(report, after_failures=bool(failures)))
        said += [f"{unknown:,} cannot be compared."] if unknown else []
    else:
        said.append("Nothing can be compared.")
    if report.unsent:
        said.append(f"{report.unsent:,} were not sent: the time was over.")
    return " ".join(said)


def _compared(report: ReplayReport, *, after_failures: bool) -> str:
    count = report.agreed + report.differed
    the_same = "Of the others: the same answer" if after_failures else "The same answer"
    if not report.differed:
        return f"{the_same} as then in {'the only call' if count == 1 else f'all {count:,} calls'}."
    share = f"{the_same} as then in {report.agreed:,} of {count:,} calls ({100 * report.agreed / count:.1f} %)"
    if report.classes is not None:
        return f"{share}; another class in {report.classes.changed:,}."
    if report.distances is None or report.scores is None:
        return f"{share}."
    if report.scores.decides(DEFAULT_THRESHOLD):
        share += f", the same decision at {DEFAULT_THRESHOLD:g} in {report.scores.same_decision_percent:.1f} %"
    apart = report.distances
    return (
        f"{share}; the scores are {amount_words(apart.mean)} apart on average, {amount_words(apart.largest)} at most."
    )
