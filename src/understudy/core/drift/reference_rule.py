"""The reference rule: seed 000's drift rule, as the policy named ``seed``, for comparison.

It divides by the spread of one prediction, so it sees no shift of up to three standard deviations, and cannot fire at
all where at least 10 % of a classifier's labels are positive (statistics page, §1).
"""

from collections.abc import Sequence
from math import inf

from understudy.core.drift.baseline import NumericBaseline
from understudy.core.drift.evidence import Measure
from understudy.core.drift.report import (
    Drift,
    DriftState,
    Present,
    Reading,
    drift_terms,
    drift_words,
    no_baseline_drift,
    too_early_drift,
)
from understudy.core.drift.subject_window import SubjectWindow
from understudy.core.windows.window import MICRO

REFERENCE_POLICY = "seed"
LIMIT_DEVIATIONS = 3.0

_HALF_A_MILLIONTH = 0.5 / MICRO
"""Sums are that exact per row, and so is "equal"."""


def judge_by_reference_rule(subject: str, baseline: NumericBaseline | None, windows: Sequence[SubjectWindow]) -> Drift:
    """Return what the reference rule says of the rows of all these windows together.

    Without any spread in the baseline every other mean is a drift, and without rows there is none. The rule remembers
    nothing, so it cannot tell since when.

    Source:
        Seed 000, ``detect_prediction_drift``: ``abs(mean - baseline_mean) / baseline_std > 3.0``.
    """
    if baseline is None:
        return no_baseline_drift(subject)
    if not sum(map(_rows, windows)):
        return too_early_drift(subject, 0, "the reference rule needs one")
    used = [window for window in windows if _rows(window)]
    present = _present(used, baseline)
    shown = Reading(Measure.MEAN, abs(present.shift), LIMIT_DEVIATIONS)
    state = DriftState.DRIFT if shown.distance > shown.limit else DriftState.OK
    before, after, direction = drift_terms(baseline, present, Measure.MEAN)
    return Drift(
        subject=subject,
        state=state,
        words=drift_words(subject, baseline, present, shown, state),
        rows=sum(map(_rows, used)),
        shown=shown,
        readings=(shown,),
        baseline=before,
        now=after,
        direction=direction,
        history=tuple(abs(_present([window], baseline).shift) for window in used),
        history_seconds=tuple(window.start_seconds for window in used),
    )


def _present(windows: Sequence[SubjectWindow], baseline: NumericBaseline) -> Present:
    mean = sum(sum(window.bucket_sums) for window in windows) / MICRO / sum(map(_rows, windows))
    return Present(mean=mean, shift=_deviations(mean - baseline.mean, baseline.standard_deviation))


def _deviations(difference: float, deviation: float) -> float:
    if deviation > 0:
        return difference / deviation
    if abs(difference) <= _HALF_A_MILLIONTH:
        return 0.0
    return inf if difference > 0 else -inf


def _rows(window: SubjectWindow) -> int:
    return sum(window.bucket_rows) - sum(window.bucket_nulls)
