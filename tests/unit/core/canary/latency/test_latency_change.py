from dataclasses import replace

import pytest
from stats.worlds import ROLLOUT, Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.latency.latency_change import LATENCY_CHANGE
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.canary.messages import comparison_of
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS

POLICY = CanaryPolicy(dwell_seconds=86_400.0, min_entities=1)
STAGE = Stage("fraud", "42", ROLLOUT, (0.0,), 1, 20.0, {1: 20.0})
HOURS = 3
ONSET = HOURS * 60.0
"""Minutes."""


def traffic(minutes: float, **changes: float) -> Strata:
    world = replace(World("slower", requests_per_minute=333, entities=20_000), **changes)  # type: ignore[arg-type]
    return stratify(Traffic(world, 1).windows(0, int(minutes * 60) // WINDOW_SECONDS, 20.0), ROLLOUT)


def at(strata: Strata, minute: float, stage: Stage = STAGE) -> Decision:
    return judge(strata, POLICY, stage, 60 * minute + 5.0)


def row_of(decision: Decision) -> Evidence:
    return next(row for row in decision.evidence if row.check is LATENCY_CHANGE)


@pytest.mark.deep
def test_a_challenger_that_gets_three_times_slower_after_hours_of_its_step_is_rolled_back_in_these_words():
    strata = traffic(ONSET + 10, latency_factor=3.0, onset_minute=ONSET)

    before, *minutes = (at(strata, ONSET + minute) for minute in range(8))

    found = next(decision for decision in minutes if decision.verdict is Verdict.ROLL_BACK)
    row = row_of(found)
    assert (row_of(before).state, row.state) == (CheckState.OK, CheckState.FAIL)
    assert row.change == pytest.approx(3, rel=0.2)
    assert (row.since or 0) >= 60 * (ONSET - 5)
    assert comparison_of(row).startswith("latency change ")
    assert " since 0" in comparison_of(row)


@pytest.mark.deep
def test_by_earlier_rules_it_stayed():
    strata = traffic(ONSET + 10, latency_factor=3.0, onset_minute=ONSET)

    verdicts = {at(strata, ONSET + minute, replace(STAGE, rules=Rules.INCIDENTS)).verdict for minute in range(8)}

    assert verdicts == {Verdict.HOLD}


@pytest.mark.deep
def test_two_minutes_of_slow_answers_after_hours_take_no_traffic_back():
    strata = traffic(
        ONSET + 10, incident_seconds=120.0, incident_minute=ONSET, incident_latency_factor=10.0, incident_error_rate=0.0
    )

    states = {row_of(at(strata, ONSET + minute / 2)).state for minute in range(20)}

    assert states == {CheckState.OK}


def test_in_the_first_hour_of_a_step_it_has_no_past_and_no_sentence_names_it():
    strata = traffic(40)

    decision = judge(strata, replace(POLICY, dwell_seconds=60.0, detectable_ratio=100.0), STAGE, 2_405.0)

    row = row_of(decision)
    assert (row.state, row.champion, row.change) == (CheckState.TOO_EARLY, None, None)
    assert decision.verdict is Verdict.ADVANCE
    assert LATENCY_CHANGE.title not in decision.reason


def test_without_calls_it_is_too_early():
    assert row_of(judge(stratify([], ROLLOUT), POLICY, STAGE, 60.0)).state is CheckState.TOO_EARLY
