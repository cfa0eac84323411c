"""A rollout's last analysis is used again where nothing that a check asks for is another, and nowhere else."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, plain

from understudy.core.canary.analysis import judge
from understudy.core.canary.checks import judged_checks, needed_of
from understudy.core.canary.evidence.check_input import CheckInput, Keys
from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgement_records import Judgements
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.metric_limits import MetricLimit
from understudy.core.canary.metric_samples import MetricSamples, ReadProblem
from understudy.core.windows.strata import Side, Strata, stratify
from understudy.rollout.known_checks import KnownChecks

MINUTES = 20
POLICY, STAGE = CanaryPolicy(), Stage("fraud", "42", ROLLOUT, (0.0,), 1, 10.0, {1: 10.0})
STRATA = stratify(Traffic(plain(400), 1).windows(0, MINUTES * PER_MINUTE, 10.0), ROLLOUT)
NEEDED = needed_of(POLICY)
INPUTS = CheckInput(STRATA, POLICY, STAGE, (0,), 2, now=60.0 * MINUTES)


def strata_with(change: Callable[[Side], Side]) -> Strata:
    return replace(STRATA, challenger=change(STRATA.challenger))


def one_more(values: np.ndarray) -> np.ndarray:
    changed = values.copy()
    changed[(-1,) * values.ndim] += 1
    return changed


CHANGES = {
    "a sum": INPUTS._replace(strata=strata_with(lambda side: replace(side, sums=one_more(side.sums)))),
    "a bucket": INPUTS._replace(strata=strata_with(lambda side: replace(side, buckets=one_more(side.buckets)))),
    "the tail": INPUTS._replace(strata=strata_with(lambda side: replace(side, tails=one_more(side.tails)))),
    "a shared error": INPUTS._replace(
        strata=strata_with(lambda side: replace(side, shared=np.array([[3, 5, 1]], np.int64)))
    ),
    "a window less": INPUTS._replace(strata=STRATA.between(0, int(STRATA.starts[-1]))),
    "an arrival": INPUTS._replace(
        strata=replace(STRATA, arrivals=STRATA.arrivals._replace(new_entities=one_more(STRATA.arrivals.new_entities)))
    ),
    "the policy": INPUTS._replace(policy=replace(POLICY, tolerated_error_ratio=1.5)),
    "the stage": INPUTS._replace(stage=replace(STAGE, planned=2)),
    "the warm-up": INPUTS._replace(warm=4),
    "what is detectable": INPUTS._replace(is_error_detectable=True),
    "an early failure": INPUTS._replace(early_failure=Keys(9.0, 5.0, 9.0)),
    "an outcome": INPUTS._replace(outcomes=(None,)),
}


def test_a_later_look_at_the_same_windows_is_told_what_the_last_one_was():
    known = KnownChecks()
    rows = known(INPUTS, NEEDED)

    again = known(INPUTS._replace(now=INPUTS.now + 5, strata=replace(STRATA)), dict(NEEDED))

    assert rows == judged_checks(INPUTS, NEEDED)
    assert again is rows


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_a_check_asks_for_is_judged_anew(changed):
    known = KnownChecks()
    rows = known(INPUTS, NEEDED)

    anew = known(changed, NEEDED)

    assert anew is not rows
    assert anew == judged_checks(changed, NEEDED)


def test_metrics_and_judgements_are_judged_at_each_look_since_they_go_by_the_clock():
    policy = replace(POLICY, metrics=(MetricLimit("rate", "up", "prod"),), judge=JudgeLimit("quality"))
    inputs, needed = INPUTS._replace(policy=policy), needed_of(policy)
    times = tuple(range(60, 60 * MINUTES, 60))
    metric = MetricSamples(times, (1.0,) * len(times), (1.0,) * len(times), (), ReadProblem.NONE, times[-1])
    said = Judgements(tuple(map(float, times)), (0.0,) * len(times), (0,) * len(times))
    known = KnownChecks()
    rows = known(inputs, needed)

    for seconds in (5, 10, 600):
        later = inputs._replace(now=INPUTS.now + seconds, metrics=(metric,), judgements=said)
        found = known(later, needed)
        assert found == judged_checks(later, needed)
        assert found[0] is rows[0]


def test_what_a_check_needs_is_a_part_of_what_it_was_judged_by():
    known = KnownChecks()
    rows = known(INPUTS, NEEDED)

    assert known(INPUTS, {name: needed + 1 for name, needed in NEEDED.items()}) is not rows


def test_three_looks_within_a_window_come_to_the_verdicts_of_three_that_remember_nothing():
    known = KnownChecks()
    for now in np.arange(300.0, 400.0, 5.0).tolist():
        assert judge(STRATA, POLICY, STAGE, now, checks=known) == judge(STRATA, POLICY, STAGE, now)
