import re
from dataclasses import replace

import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, cold_and_then_slow, cold_server

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import CheckState, Decision, Verdict
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.windows.strata import Strata, stratify

POLICY = CanaryPolicy()
STAGE = Stage("fraud", "42", ROLLOUT, (0.0,), 5, 2.0, {1: 2.0})
BEFORE = replace(STAGE, rules=Rules.TAILS)


def traffic(world: World, minutes: int = 45) -> Strata:
    return stratify(Traffic(world, 1).windows(0, PER_MINUTE * minutes, 2.0), ROLLOUT)


def at(strata: Strata, minute: float, stage: Stage = STAGE) -> Decision:
    return judge(strata, POLICY, stage, 60 * minute + 5.0)


def state_of(decision: Decision) -> CheckState:
    return next(row.state for row in decision.evidence if row.check is TYPICAL_LATENCY)


@pytest.mark.deep
def test_a_cold_server_is_held_in_these_words_where_earlier_rules_took_it_back():
    strata = traffic(cold_server(3_000, 3.0))

    early, later, earlier = at(strata, 3), at(strata, 12), at(strata, 3, BEFORE)

    assert (early.verdict, later.verdict) == (Verdict.HOLD, Verdict.HOLD)
    assert (state_of(early), state_of(later)) == (CheckState.WARMING, CheckState.WARMING)
    assert re.search(r"longest: slow answers [\d.]+ % vs [^;]+ and typical latency [\d.]+ ms vs [^;]+; ", early.reason)
    assert early.reason.startswith("warming, as a cold server does (too few calls yet to say that it does not fall)")
    assert ", until 00:30 UTC at the longest: " in early.reason
    assert "warming, as a cold server does (the ratio falls, " in later.reason
    assert (earlier.verdict, state_of(earlier)) == (Verdict.ROLL_BACK, CheckState.FAIL)


@pytest.mark.deep
def test_when_it_is_warm_its_cold_minutes_count_no_more_and_the_step_ends():
    strata = traffic(cold_server(3_000, 3.0))

    warm = at(strata, 40)

    assert {row.state for row in warm.evidence if not row.check.needs_past} == {CheckState.OK}
    assert warm.verdict is Verdict.ADVANCE


def test_after_a_cold_start_a_step_waits_until_latency_was_compared():
    strata = traffic(cold_server(333, 3.0), 60)

    over, compared = at(strata, 35), at(strata, 55)

    assert re.search(r"\d+ of 100 answered challenger requests since its server is no longer cold", over.reason)
    assert (over.verdict, compared.verdict) == (Verdict.HOLD, Verdict.ADVANCE)


def test_the_time_for_it_begins_with_the_first_calls_and_is_over_after_half_an_hour():
    late = Traffic(cold_server(3_000, 3.0), 1)
    quiet = Traffic(replace(cold_server(3_000, 1.0), name="champion alone"), 2)
    windows = [
        *(window for window in quiet.windows(0, 20 * PER_MINUTE, 0.0)),
        *(
            replace(window, key=window.key._replace(start=window.key.start + 1_200))
            for window in late.windows(0, 20 * PER_MINUTE, 2.0)
        ),
    ]

    decision = at(stratify(windows, ROLLOUT), 24, replace(STAGE, split_from=1_200.0))

    assert state_of(decision) is CheckState.WARMING
    assert ", until 00:50 UTC at the longest" in decision.reason


@pytest.mark.deep
@pytest.mark.parametrize(("factor", "minutes"), [(1.5, 6.0), (2.0, 12.0), (3.0, 10.0), (10.0, 3.0)])
def test_a_slow_version_that_does_not_fall_is_taken_back_in_its_first_minutes(factor, minutes):
    strata = traffic(World("slow", 3_000, latency_factor=factor))

    verdicts = [at(strata, minute / 2).verdict for minute in range(2, int(2 * minutes) + 1)]

    assert Verdict.ROLL_BACK in verdicts


@pytest.mark.deep
def test_a_version_that_is_cold_and_then_stays_slow_is_taken_back_while_it_might_still_be_warming():
    strata = traffic(cold_and_then_slow(3_000, 3.0, 1.5))

    verdicts = [at(strata, minute).verdict for minute in range(3, 25)]

    assert verdicts[0] is Verdict.HOLD
    assert Verdict.ROLL_BACK in verdicts


@pytest.mark.parametrize("slow", [cold_server(3_000, 3.0), World("slow", 3_000, latency_factor=3.0)])
def test_what_fails_more_calls_as_well_is_not_waited_for_and_its_errors_are_judged_as_always(slow):
    decisions = [at(traffic(world, 5), 3) for world in (slow, replace(slow, error_factor=16.0))]

    assert [decision.verdict for decision in decisions] == [Verdict.HOLD, Verdict.ROLL_BACK]
    assert [state_of(decision) for decision in decisions] == [CheckState.WARMING, CheckState.FAIL]


def test_no_version_is_warming_without_calls():
    assert state_of(judge(stratify([], ROLLOUT), POLICY, STAGE, 60.0)) is CheckState.TOO_EARLY
