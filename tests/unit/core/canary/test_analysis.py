import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import orjson
import pytest
from failing.calls import with_failures
from hypothesis import given, settings
from hypothesis import strategies as st
from stats.worlds import Traffic, World

from understudy.core.canary.analysis import evaluate, judge
from understudy.core.canary.checks import evidence_from_json, needed_of
from understudy.core.canary.decision import Check, CheckState, Decision, Evidence, Verdict
from understudy.core.canary.entities.worst_entities import EntityCount, EntityCounts
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import NEWEST_RULES, CanaryPolicy, Rules, Stage
from understudy.core.canary.scores.score_shift import SCORE_SHIFT
from understudy.core.canary.slices.failing_slices import SliceCheck, SliceCount, SliceCounts
from understudy.core.routing.policy import Role
from understudy.core.statistics.sequential_evidence import FREQUENT_RESTARTS
from understudy.core.windows.strata import Side, Strata, join_strata, stratify
from understudy.core.windows.window import MICRO, WINDOW_SECONDS, BucketColumn, Window

DWELL = 600.0
POLICY = CanaryPolicy(dwell_seconds=DWELL, detectable_ratio=5.0)
WEIGHT = 25.0
STAGE = Stage("fraud", "42", 1, (0.0,), 5, WEIGHT, {1: WEIGHT})
WORLD = World("small", requests_per_minute=2_000, error_rate=0.02)
COUNT = 48
"""Windows: twelve minutes."""
LATER = COUNT * WINDOW_SECONDS + POLICY.watermark_seconds


def traffic(count: int = COUNT, weight: float = WEIGHT, **changes) -> list[Window]:
    return Traffic(replace(WORLD, **changes), 1).windows(0, count, weight)


def row_of(decision: Decision, check: Check) -> Evidence:
    return next(row for row in decision.evidence if row.check is check)


def without(windows: Sequence[Window], role: Role) -> list[Window]:
    return [window for window in windows if window.key.role is not role]


def of_one_entity(window: Window) -> Window:
    """Let all the challenger's errors of a window be those of entities in one analysis bucket."""
    if window.key.role is not Role.CHALLENGER:
        return window
    buckets = window.buckets.copy()
    buckets[:, [BucketColumn.CALLS, BucketColumn.ERRORS]] = 0
    buckets[5, [BucketColumn.CALLS, BucketColumn.ERRORS]] = window.calls, window.errors
    return replace(window, buckets=buckets)


def test_an_equal_challenger_advances_when_its_time_is_over():
    decision = evaluate(traffic(), POLICY, STAGE, LATER)

    assert decision.verdict is Verdict.ADVANCE
    assert decision.sentence.startswith("ADVANCE fraud v42 at 25 % (minute 12): nothing found in error rate, slow")
    assert {row.state for row in decision.evidence if not row.check.needs_past} == {CheckState.OK}
    assert decision.missing_requests is None


def test_before_its_time_is_over_it_holds_however_often_one_looks():
    windows = traffic()

    decisions = [evaluate(windows, POLICY, STAGE, float(now)) for now in range(300, int(DWELL), 60)]

    assert {decision.verdict for decision in decisions} == {Verdict.HOLD}
    assert "5 m of 10 m at 25 %" in decisions[0].reason


@pytest.mark.parametrize(
    ("windows", "reason"),
    [
        ([], "no challenger requests yet at 25 %"),
        (without(traffic(4), Role.CHALLENGER), "no challenger requests yet at 25 %"),
        (without(traffic(4), Role.CHAMPION), "no champion requests to compare with"),
    ],
)
def test_no_traffic_is_a_hold_and_no_error(windows, reason):
    decision = evaluate(windows, POLICY, STAGE, LATER)

    assert (decision.verdict, decision.reason, decision.missing_requests) == (Verdict.HOLD, reason, None)


def test_a_challenger_with_more_errors_is_rolled_back_in_these_words():
    decision = evaluate(traffic(error_factor=4.0), POLICY, STAGE, LATER)

    errors = row_of(decision, ERROR_RATE)
    assert decision.verdict is Verdict.ROLL_BACK
    assert errors.state is CheckState.FAIL
    assert decision.sentence == (
        f"ROLL BACK fraud v42 at 25 % (minute 12): error rate {100 * (errors.challenger or 0):.3g} % vs "
        f"{100 * (errors.champion or 0):.3g} % = {errors.change:.3g}x (at least {errors.change_low:.3g}x), "
        f"evidence over a million (222 is enough), {errors.challenger_requests:,} challenger requests"
    )
    assert (errors.change_low or 0) < 4 < (errors.change_high or 0)


def after_an_incident(
    count: int, healthy: int, error_factor: float, stage: Stage = STAGE, looks: int | None = None
) -> list[Verdict]:
    """Return the verdicts from the beginning of an incident of so many windows to ten minutes after its end.

    Or only the first ones.
    """
    calm: dict[str, Any] = {"error_rate": 0.005, "requests_per_minute": 3_000}
    during = range(healthy, healthy + count)
    failing = Traffic(replace(WORLD, **calm, error_factor=error_factor), 2).windows(healthy, count, WEIGHT)
    windows = [w for w in traffic(healthy + count + 40, **calm) if w.key.start // WINDOW_SECONDS not in during]
    strata = stratify([*windows, *failing], 1)
    moments = range(healthy, healthy + count + 40)[:looks]
    return [judge(strata, POLICY, stage, moment * WINDOW_SECONDS + 5.0).verdict for moment in moments]


@pytest.mark.deep
@pytest.mark.parametrize("error_factor", [60.0, 1e6], ids=["30 %", "100 %"])
@pytest.mark.parametrize("healthy", [10, 80])
def test_an_incident_of_two_minutes_takes_no_traffic_back_and_one_of_five_does(error_factor, healthy):
    assert Verdict.ROLL_BACK not in after_an_incident(8, healthy, error_factor)
    assert Verdict.ROLL_BACK in after_an_incident(20, healthy, error_factor, looks=21)


@pytest.mark.deep
def test_earlier_rules_took_traffic_back_after_an_incident_of_two_minutes_and_a_stored_verdict_is_judged_by_them():
    earlier = replace(STAGE, rules=Rules.RESTARTS)

    assert Verdict.ROLL_BACK in after_an_incident(8, 10, 1e6, earlier)
    assert Verdict.ROLL_BACK not in after_an_incident(4, 10, 1e6, earlier)


# -- from its first calls on -------------------------------------------------------------------------------------------

BUSY = World("150 calls a second", requests_per_minute=9_000)
FIRST_WEIGHT = 2.0
FIRST_STAGE = Stage("fraud", "42", 1, (0.0,), 2, FIRST_WEIGHT, {1: FIRST_WEIGHT})


def first_seconds(world: World) -> list[Window]:
    """Return the first two windows of a world at the first weight."""
    return Traffic(world, 1).windows(0, 2, FIRST_WEIGHT)


def of_second(windows: Sequence[Window], now: float, policy: CanaryPolicy | None = None) -> Decision:
    return evaluate(windows, policy or CanaryPolicy(), FIRST_STAGE, now)


def test_a_challenger_that_fails_from_its_first_calls_on_is_rolled_back_before_its_first_window_ends():
    windows = first_seconds(replace(BUSY, error_factor=1e6))

    before, then = of_second(windows, 9.9), of_second(windows, 10.0)

    assert before.verdict is Verdict.HOLD
    assert then.verdict is Verdict.ROLL_BACK
    errors = row_of(then, ERROR_RATE)
    assert (errors.challenger, errors.state) == (1.0, CheckState.FAIL)
    assert then.sentence.startswith("ROLL BACK fraud v42 at 2 % (minute 0): error rate 100 % vs 0.")
    assert f"evidence over a million (222 is enough), {errors.challenger_requests} challenger requests" in then.reason


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (replace(BUSY, error_rate=0.9), "the champion fails as well"),
        (replace(BUSY, error_rate=0.01, error_factor=70), "three of ten callers got an answer"),
        (replace(BUSY, requests_per_minute=200, error_factor=1e6), "few entities have met it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_in_its_first_seconds_a_challenger_stays_when(world, why):
    decision = of_second(first_seconds(world), 15.0)

    assert decision.verdict is Verdict.HOLD


def test_in_its_first_seconds_a_challenger_that_fails_one_busy_entity_stays():
    windows = [of_one_entity(window) for window in first_seconds(replace(BUSY, error_factor=1e6))]

    assert of_second(windows, 15.0).verdict is Verdict.HOLD


@pytest.mark.deep
def test_a_challenger_that_served_well_in_its_first_window_has_the_time_of_an_incident():
    well = [window for window in first_seconds(BUSY) if window.key.start == 0]
    failing = Traffic(replace(BUSY, error_factor=1e6), 1).windows(1, 4, FIRST_WEIGHT)

    assert {of_second([*well, *failing], float(now)).verdict for now in range(16, 60)} == {Verdict.HOLD}


# -- entities, latency, scores and the split ---------------------------------------------------------------------------


def test_errors_of_one_entity_alone_hold_and_say_so():
    windows = [of_one_entity(window) for window in traffic(error_factor=4.0)]

    decision = evaluate(windows, POLICY, STAGE, LATER)

    assert decision.verdict is Verdict.HOLD
    assert "proven for too few entities" in decision.reason
    assert row_of(decision, ERROR_RATE).state is CheckState.TOO_EARLY


def test_half_as_long_again_is_rolled_back_and_a_fifth_as_long_again_only_holds():
    slower = evaluate(traffic(latency_factor=1.5), POLICY, STAGE, LATER)
    a_little = evaluate(traffic(latency_factor=1.2), POLICY, STAGE, LATER)

    typical = row_of(slower, TYPICAL_LATENCY)
    assert slower.verdict is Verdict.ROLL_BACK
    assert typical.champion == pytest.approx(0.010, rel=0.05)  # a lognormal around 10 ms
    assert typical.change == pytest.approx(1.5, rel=0.05)
    assert "typical latency 15" in slower.reason
    assert "ms vs" in slower.reason
    assert a_little.verdict is Verdict.HOLD
    assert "below 1.3x, which alone does not roll back: typical latency" in a_little.reason


def test_a_slower_tail_is_rolled_back_although_the_typical_call_is_as_fast():
    decision = evaluate(traffic(slowest_tenth_factor=3.0), POLICY, STAGE, LATER)

    assert decision.verdict is Verdict.ROLL_BACK
    assert "slow answers" in decision.reason
    assert row_of(decision, TYPICAL_LATENCY).state is CheckState.OK


def test_latency_in_the_warm_up_is_not_judged_and_errors_are():
    warm_up = replace(POLICY, warm_up_seconds=2 * LATER)

    assert evaluate(traffic(latency_factor=2.0), warm_up, STAGE, LATER).verdict is not Verdict.ROLL_BACK
    assert evaluate(traffic(error_factor=4.0), warm_up, STAGE, LATER).verdict is Verdict.ROLL_BACK


@pytest.mark.parametrize("shift", [0.05, -0.05])
def test_scores_that_move_either_way_are_rolled_back_if_a_limit_is_set(shift):
    windows = traffic(has_scores=True, score_shift=shift)  # of a standard deviation of 0.1

    decision = evaluate(windows, replace(POLICY, score_shift_limit=0.2), STAGE, LATER)

    assert decision.verdict is Verdict.ROLL_BACK
    assert row_of(decision, SCORE_SHIFT).change == pytest.approx(10 * shift, abs=0.05)
    assert f"= {10 * shift:+.1f}"[:4] in decision.reason
    assert evaluate(windows, POLICY, STAGE, LATER).verdict is Verdict.ADVANCE


def test_scores_that_move_less_than_the_limit_pass():
    windows = traffic(has_scores=True, score_shift=0.01)

    decision = evaluate(windows, replace(POLICY, score_shift_limit=0.2), STAGE, LATER)

    scores = row_of(decision, SCORE_SHIFT)
    assert scores.state is CheckState.OK
    # A fifth of one percent, once for each direction.
    assert scores.evidence_needed == pytest.approx(2 / 0.002)


def test_a_split_that_is_off_is_invalid_unless_the_challenger_fails_anyway():
    lost = evaluate(traffic(lost_ratio=0.4), POLICY, STAGE, LATER)
    lost_and_failing = evaluate(traffic(lost_ratio=0.4, error_factor=1e6), POLICY, STAGE, LATER)

    assert lost.verdict is Verdict.INVALID
    assert "0.6" in lost.reason
    assert "cannot be compared" in lost.reason
    assert lost_and_failing.verdict is Verdict.ROLL_BACK


def test_too_little_traffic_holds_with_what_could_have_been_seen_and_what_is_missing():
    policy = replace(POLICY, dwell_seconds=0.0, detectable_ratio=1.3)

    decision = evaluate(traffic(), policy, STAGE, LATER)
    # What is missing is in the traffic of as many minutes more.
    requests = row_of(decision, ERROR_RATE).challenger_requests
    needed_windows = int(COUNT * (1 + (decision.missing_requests or 0) / requests) * 1.2)
    later = evaluate(traffic(needed_windows), policy, STAGE, needed_windows * WINDOW_SECONDS + 5.0)

    assert decision.verdict is Verdict.HOLD
    assert decision.sentence.startswith("HOLD: about ")
    assert " more requests are missing: so far only a rise of the error rate to " in decision.reason
    assert later.verdict is Verdict.ADVANCE


def test_fewer_requests_or_entities_than_asked_for_hold():
    few_requests = evaluate(traffic(), replace(POLICY, min_requests=10**6), STAGE, LATER)
    few_entities = evaluate(traffic(entities=60), replace(POLICY, min_entities=30), STAGE, LATER)

    assert "of 1,000,000 challenger requests at 25 %" in few_requests.reason
    assert "of 30 challenger entities" in few_entities.reason


def test_after_the_stages_time_a_person_is_asked():
    policy = replace(POLICY, min_requests=10**6, maximum_seconds=LATER)

    waiting, over = (evaluate(traffic(), policy, STAGE, now) for now in (LATER - 1, LATER))

    assert (waiting.needs_human, over.needs_human) == (False, True)
    assert over.reason.endswith("; the stage's time is over: a person has to decide")


def test_a_window_counts_when_its_rows_are_in():
    windows = traffic(1)

    early, late = (evaluate(windows, POLICY, STAGE, WINDOW_SECONDS + lag) for lag in (4.9, 5.0))

    assert row_of(early, ERROR_RATE).challenger_requests == 0
    assert row_of(late, ERROR_RATE).challenger_requests > 0


def test_other_rollouts_and_shadows_are_left_out():
    windows = traffic()
    others = [replace(window, key=window.key._replace(rollout_id=2)) for window in traffic(error_factor=9.0)]
    shadows = [replace(window, key=window.key._replace(role=Role.SHADOW)) for window in traffic(error_factor=9.0)]

    decision = evaluate([*others, *windows, *shadows], POLICY, STAGE, LATER)

    assert decision == evaluate(windows, POLICY, STAGE, LATER)


@pytest.mark.deep
@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, COUNT - 1))
def test_the_order_of_windows_and_how_they_are_joined_change_nothing(random, middle):
    windows = traffic()
    shuffled = windows.copy()
    random.shuffle(shuffled)

    parts = join_strata([stratify(shuffled[middle:], 1), stratify([], 1), stratify(shuffled[:middle], 1)])

    expected = evaluate(windows, POLICY, STAGE, LATER)
    assert evaluate(shuffled, POLICY, STAGE, LATER) == expected
    assert judge(parts, POLICY, STAGE, LATER) == expected


def test_windows_of_several_shippers_are_one_window():
    windows = traffic(error_factor=2.0)
    doubled = [w for window in windows for w in (window, replace(window, key=window.key._replace(shipper="worker-2")))]

    once, twice = (row_of(evaluate(seen, POLICY, STAGE, LATER), ERROR_RATE) for seen in (windows, doubled))

    assert twice.challenger_requests == 2 * once.challenger_requests
    assert twice.change == once.change


def test_a_late_regression_is_found_by_the_process_that_began_with_its_stage():
    count = 240
    world = replace(WORLD, error_factor=2.0, onset_minute=count / 2 * WINDOW_SECONDS / 60)
    windows = Traffic(world, 1).windows(0, count, WEIGHT)
    now = count * WINDOW_SECONDS + 5.0

    since_start = evaluate(windows, POLICY, STAGE, now)
    restarted = evaluate(windows, POLICY, replace(STAGE, starts=(0.0, count / 2 * WINDOW_SECONDS)), now)

    evidence = [row_of(decision, ERROR_RATE).evidence or 0 for decision in (since_start, restarted)]
    assert evidence[1] > 10 * evidence[0]


DAY = 24 * 3_600 // WINDOW_SECONDS
ONE_STEP = replace(STAGE, planned=1)


def after_a_day(minutes: int, **changes) -> Strata:
    """Return an hour of equal versions, 24 times over, and then what was changed."""
    before = {name: value for name, value in changes.items() if name in ("entities", "requests_per_minute")}
    hour = stratify(traffic(DAY // 24, **before), 1)
    champion, challenger = (
        Side(np.tile(side.sums, (24, 1)), np.tile(side.buckets, (1, 24, 1)))
        for side in (hour.champion, hour.challenger)
    )
    healthy = Strata(np.arange(DAY) * WINDOW_SECONDS, champion, challenger, hour.arrivals)
    count = minutes * 60 // WINDOW_SECONDS
    return join_strata([healthy, stratify(Traffic(replace(WORLD, **changes), 2).windows(DAY, count, WEIGHT), 1)])


def minutes_until_taken_back(strata: Strata, stage: Stage, step: int = 1) -> tuple[float, Decision]:
    """Analyse after each window, or each of several, that comes after the day; infinite if it stays."""
    for start in strata.starts[DAY::step].tolist():
        decision = judge(strata, POLICY, stage, start + WINDOW_SECONDS + POLICY.watermark_seconds)
        if decision.verdict is Verdict.ROLL_BACK:
            return (start + WINDOW_SECONDS - DAY * WINDOW_SECONDS) / 60, decision
    return inf, decision


@pytest.mark.deep
def test_a_challenger_that_served_well_for_a_day_of_its_step_is_taken_back_minutes_after_it_begins_to_fail():
    minutes, decision = minutes_until_taken_back(after_a_day(10, error_factor=1e6), ONE_STEP)

    errors = row_of(decision, ERROR_RATE)
    assert minutes <= 7
    assert errors.state is CheckState.FAIL
    # The figures are of the windows that tell: over the whole day hardly any call failed.
    assert (errors.challenger or 0) > 0.5
    assert (errors.since or 0) >= (DAY - 2 * FREQUENT_RESTARTS.seconds // WINDOW_SECONDS) * WINDOW_SECONDS
    assert (errors.change_low, errors.change_high) == (None, None)
    assert re.search(r"^error rate [\d.]+ % vs [\d.]+ % = [\d.]+x since \d\d:\d\d UTC, evidence", decision.reason)


@pytest.mark.deep
def test_without_processes_that_begin_within_a_step_it_would_stay():
    minutes, _ = minutes_until_taken_back(after_a_day(30, error_factor=1e6), replace(ONE_STEP, rules=Rules.STEPS), 20)

    assert minutes == inf


@pytest.mark.deep
@pytest.mark.parametrize("minutes_before", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
def test_a_minute_of_slow_answers_takes_back_nobody_who_served_well(minutes_before):
    began = -60.0 * minutes_before  # so that evidence begins anew at another moment of the incident
    fine, slow = Traffic(WORLD, 1), Traffic(replace(WORLD, latency_factor=3.0), 1)
    windows = [*fine.windows(0, 240, WEIGHT), *slow.windows(240, 4, WEIGHT), *fine.windows(244, 40, WEIGHT)]
    strata = stratify(windows, 1)
    stage = replace(ONE_STEP, starts=(began,))

    verdicts = {judge(strata, POLICY, stage, 15.0 * count + 5).verdict for count in range(240, 284)}

    assert Verdict.ROLL_BACK not in verdicts


@pytest.mark.deep
def test_some_thirty_entities_that_all_fail_after_a_day_are_enough():
    few = {"entities": 100, "requests_per_minute": 333.0}
    strata = after_a_day(10, error_factor=1e6, **few)

    minutes, _ = minutes_until_taken_back(strata, ONE_STEP)

    assert minutes <= 6


@pytest.mark.deep
def test_after_a_day_an_incident_of_two_minutes_takes_nothing_back_and_the_rest_of_the_day_neither():
    incident = after_a_day(2, error_factor=1e6)
    fine = stratify(Traffic(WORLD, 3).windows(DAY + 8, 120, WEIGHT), 1)

    minutes, _ = minutes_until_taken_back(join_strata([incident, fine]), ONE_STEP, 5)

    assert minutes == inf


def test_evidence_begins_anew_by_the_clock_and_not_more_often_than_there_are_windows():
    late = evaluate(traffic(4), POLICY, replace(ONE_STEP, starts=(10_000.0,)), 20_000.0)

    assert late.verdict is not Verdict.ROLL_BACK


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"error_factor": 1e6},
            r"^until the last minute has passed, .*: error rate [\d.]+ % vs ",
        ),
        (
            {"latency_factor": 3.0},
            r"^until the last minute has passed, .*: slow answers [\d.]+ % vs ",
        ),
    ],
)
def test_a_step_does_not_end_in_the_minute_in_which_the_challenger_begins_to_fail(changes, words):
    fine = traffic()
    broken = Traffic(replace(WORLD, **changes), 2).windows(COUNT, 1, WEIGHT)
    now = (COUNT + 1) * WINDOW_SECONDS - 1.0  # the window is open still

    before = evaluate(fine, POLICY, STAGE, now)
    decision = evaluate([*fine, *broken], POLICY, STAGE, now)
    passed = evaluate([*fine, *broken], POLICY, STAGE, now + 60.0 + WINDOW_SECONDS)

    assert (before.verdict, decision.verdict) == (Verdict.ADVANCE, Verdict.HOLD)
    assert "the last minute" not in passed.reason
    assert re.match(words, decision.reason)


def test_errors_of_one_entity_in_the_last_minute_hold_nothing_up():
    broken = [
        of_one_entity(window) for window in Traffic(replace(WORLD, error_factor=20.0), 2).windows(COUNT, 1, WEIGHT)
    ]

    decision = evaluate([*traffic(), *broken], POLICY, STAGE, (COUNT + 1) * WINDOW_SECONDS - 1.0)

    assert decision.verdict is Verdict.ADVANCE


def test_a_row_says_since_when_only_if_it_is_not_all_windows():
    row = row_of(evaluate(traffic(), POLICY, STAGE, LATER), ERROR_RATE)

    assert "since" not in row.to_json()
    assert evidence_from_json(row.to_json()) == row
    later = row._replace(since=120.0)
    assert evidence_from_json(orjson.loads(orjson.dumps(later.to_json()))) == later


def test_a_decision_is_json_infinity_included():
    failing = evaluate(traffic(error_rate=0.0005, error_factor=1e6), POLICY, STAGE, LATER)
    nothing = evaluate([], POLICY, STAGE, LATER)

    document = orjson.loads(orjson.dumps(failing.to_json()))

    assert document["verdict"] == "ROLL_BACK"
    assert document["evidence"][0]["check"] == "error_rate"
    assert row_of(failing, ERROR_RATE)._replace(change=inf).to_json()["change"] is None
    assert orjson.loads(orjson.dumps(nothing.to_json()))["verdict"] == "HOLD"


ONE_BURST = [traffic(error_rate=0.005), traffic(error_rate=0.005, error_factor=60.0)]
"""The same windows, healthy and with a challenger that fails often."""


def with_a_burst(count: int) -> list[Window]:
    """Return healthy windows of which the last but four to ``count`` before them are the failing ones."""
    fine, failing = ONE_BURST
    burst = range(COUNT - 4 - count, COUNT - 4)
    return [bad if bad.key.start // WINDOW_SECONDS in burst else ok for ok, bad in zip(fine, failing, strict=True)]


def with_the_same_score(windows: Sequence[Window], score: float) -> list[Window]:
    micro = round(score * MICRO)
    return [
        replace(w, score_calls=w.answered, score=micro * w.answered, score_squares=round(score**2 * MICRO) * w.answered)
        for w in windows
    ]


@pytest.mark.parametrize("score", [0.0003, 0.0007, 0.1, 1 / 3])
def test_scores_that_are_all_the_same_and_small_keep_no_check_from_its_verdict(score):
    windows = with_the_same_score(traffic(error_factor=10.0), score)

    decision = evaluate(windows, replace(POLICY, score_shift_limit=0.2), STAGE, LATER)

    assert decision.verdict is Verdict.ROLL_BACK
    assert row_of(decision, SCORE_SHIFT).state in (CheckState.OK, CheckState.TOO_EARLY)


def test_a_check_whose_whole_interval_is_beyond_its_limit_never_passes():
    decision = evaluate(traffic(error_factor=1.6), POLICY, STAGE, LATER)

    errors = row_of(decision, ERROR_RATE)
    assert (errors.evidence or 0) < (errors.evidence_needed or 0)
    assert (errors.change_low or 0) > (errors.limit or 0)
    assert errors.state is CheckState.UNPROVEN
    assert decision.verdict is Verdict.HOLD, "it takes nothing back, and adds no traffic either"
    assert decision.reason.startswith("not proven yet, evidence ")


def test_a_burst_of_errors_that_is_over_holds_a_step_by_the_rules_before_alone():
    now, before = (
        evaluate(with_a_burst(2), POLICY, replace(STAGE, rules=rules), LATER)
        for rules in (Rules.INTERVALS, Rules.SHARED_ERRORS)
    )

    assert row_of(before, ERROR_RATE).state is CheckState.UNPROVEN
    assert before.verdict is Verdict.HOLD
    assert row_of(now, ERROR_RATE).state is CheckState.OK
    assert now.verdict is Verdict.ADVANCE
    assert row_of(now, ERROR_RATE).evidence == row_of(before, ERROR_RATE).evidence


def test_what_looks_worse_for_one_entity_alone_is_said_and_holds_nothing_up():
    decision = evaluate([of_one_entity(w) for w in traffic(error_factor=1.6)], POLICY, STAGE, LATER)

    errors = row_of(decision, ERROR_RATE)
    assert errors.state is CheckState.UNPROVEN
    assert decision.verdict is Verdict.ADVANCE
    assert "nothing found in slow answers, typical latency, sample ratio" in decision.reason
    assert f"; worse, not proven yet: error rate {100 * (errors.challenger or 0):.3g} %" in decision.reason


@pytest.mark.parametrize(
    ("check", "low", "high", "is_beyond_limit"),
    [
        (ERROR_RATE, 1.6, inf, True),
        (ERROR_RATE, 1.5, inf, False),
        (ERROR_RATE, None, None, False),
        (SCORE_SHIFT, -2.0, -1.6, True),
        (TYPICAL_LATENCY, -2.0, -1.6, False),
    ],
)
def test_an_interval_is_beyond_its_limit_as_a_whole_or_not_at_all(check, low, high, is_beyond_limit):
    row = evaluate([], POLICY, STAGE, LATER).evidence[0]

    changed = row._replace(check=check, change_low=low, change_high=high, limit=1.5)

    assert changed.is_beyond_limit is is_beyond_limit


def test_a_row_is_read_back_with_its_missing_bound_and_an_unknown_one_stays_unknown():
    endless = row_of(evaluate(traffic(error_rate=0.0005), POLICY, STAGE, LATER), ERROR_RATE)
    against_none = endless._replace(champion=0.0, challenger=0.2, change=inf, change_low=3.0, change_high=inf)
    unknown = row_of(evaluate([], POLICY, STAGE, LATER), TYPICAL_LATENCY)

    for row in (endless, against_none, unknown):
        stored = orjson.loads(orjson.dumps(row.to_json()))
        assert evidence_from_json(stored) == row
    assert against_none.to_json()["change_high"] is None


def test_a_reason_is_what_was_found_and_the_place_stands_apart():
    worse = evaluate(traffic(error_factor=4.0), POLICY, STAGE, LATER)
    invalid = evaluate(traffic(lost_ratio=0.4), POLICY, STAGE, LATER)
    equal = evaluate(traffic(), POLICY, STAGE, LATER)
    early = evaluate(traffic(), POLICY, STAGE, 300.0)

    found = [decision.reason for decision in (worse, invalid, equal, early)]

    starts = ["error rate ", "the challenger met ", "nothing found in error rate, ", "5 m of 10 m"]
    assert [text[: len(start)] for text, start in zip(found, starts, strict=True)] == starts
    place = "fraud v42 at 25 % (minute 12)"
    assert [decision.place for decision in (worse, invalid, equal, early)] == [place, place, place, ""]
    assert worse.sentence == f"ROLL BACK {place}: {found[0]}"
    assert early.sentence == f"HOLD: {found[3]}"


def test_a_policy_is_read_back_from_its_json_and_what_is_left_out_has_its_default():
    policy = CanaryPolicy(alpha=0.02, score_shift_limit=0.2)

    assert CanaryPolicy.from_json(orjson.loads(orjson.dumps(policy.to_json()))) == policy
    assert CanaryPolicy.from_json({}) == CanaryPolicy()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"alfa": 0.01}, "unknown field 'alfa'; known are across_entities_alpha, alpha"),
        ({"alpha": 0.0}, "alpha: expected a number from 1e-09 to 0.5, got 0.0"),
        ({"alpha": "small"}, "alpha: expected a number from 1e-09 to 0.5, got 'small'"),
        ({"alpha": True}, "alpha: expected a number"),
        ({"alpha": float("nan")}, "alpha: expected a number"),
        ({"min_requests": 1.5}, "min_requests: expected a whole number from 1"),
        ({"dwell_seconds": None}, "dwell_seconds: expected a number"),
        ([], "expected an object, got []"),
    ],
)
def test_a_policy_that_cannot_be_used_names_the_field_and_what_it_may_be(document, message):
    with pytest.raises(ValueError) as refused:
        CanaryPolicy.from_json(document)

    assert message in str(refused.value)


def test_the_error_budget_is_shared_among_the_checks_in_use():
    plain = needed_of(CanaryPolicy())
    with_scores = needed_of(CanaryPolicy(score_shift_limit=0.2))

    assert {check: round(float(np.exp(needed))) for check, needed in plain.items()} == {
        "error_rate": 222,
        "slow_tail": 1_000,
        "slow_p99": 2_000,
        "slow_p999": 667,
        "typical_latency": 500,
        "latency_change": 2_000,
    }
    assert sum(np.exp(-needed) for needed in with_scores.values()) == pytest.approx(0.01)


def test_at_a_small_weight_a_larger_regression_may_stay_unseen_but_never_more_harm_to_all():
    policy = CanaryPolicy(detectable_ratio=2.0, detectable_weight_percent=25.0)

    asked = {weight: policy.detectable_ratio_at(weight) for weight in (2, 5, 10, 25, 50)}

    assert asked == {2: 13.5, 5: 6.0, 10: 3.5, 25: 2.0, 50: 2.0}
    assert all(weight / 100 * (ratio - 1) == pytest.approx(0.25) for weight, ratio in asked.items() if weight <= 25)


def test_a_stage_needs_a_beginning_and_rules_that_are_known():
    with pytest.raises(ValueError, match="starts"):
        replace(STAGE, starts=())
    with pytest.raises(ValueError, match=f"rules: expected 0 to {NEWEST_RULES}, got 99; a newer release"):
        replace(STAGE, rules=99)  # type: ignore[arg-type]


def test_an_entity_that_the_challenger_fails_holds_a_step_that_would_be_over():
    count = EntityCount(((7, 17),), 27, 27, (*(0,) * 20, 9), 120, 0)
    counts = EntityCounts(300, 2_000, 12.0, (count,))
    strata = stratify(traffic(), 1)

    held = judge(strata, POLICY, STAGE, LATER, entities=counts)
    known = judge(strata, POLICY, STAGE, LATER, entities=counts.without({7}))

    assert held.verdict is Verdict.HOLD
    assert [found.counted for found in held.entities] == [count]
    assert held.reason.startswith("1 entity fails 100 % of its calls (27 of 27; champion ")
    assert held.evidence == known.evidence
    assert known.verdict is Verdict.ADVANCE


def test_a_challenger_that_fails_beyond_doubt_is_rolled_back_whomever_it_fails_besides():
    counts = EntityCounts(300, 2_000, 12.0, (EntityCount(((7, 17),), 27, 27, (*(0,) * 20, 9), 120, 0),))

    decision = judge(stratify(traffic(error_factor=10.0), 1), POLICY, STAGE, LATER, entities=counts)

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.entities == ()


WORSE = SliceCount(
    "category",
    "gold",
    SliceCheck.ERRORS,
    60.0,
    0.1,
    (900.0, 4.0),
    (54.0, 54.0),
    9,
    9,
    (3.0,) * 8 + (4.0,) * 8,
    (40.0,) * 24,
)


@pytest.mark.parametrize(
    ("mode", "verdict", "end"),
    [
        ("hold", Verdict.HOLD, "an operator decides"),
        ("rollback", Verdict.ROLL_BACK, "UTC"),
        ("off", Verdict.ADVANCE, ""),
    ],
)
def test_a_slice_for_which_the_challenger_does_worse_does_what_the_plan_says(mode, verdict, end):
    counts, strata = SliceCounts(8, (WORSE,)), stratify(traffic(), 1)

    decision = judge(strata, replace(POLICY, slices=mode), STAGE, LATER, slices=counts)
    known = judge(strata, POLICY, STAGE, LATER, slices=counts.without({"category=gold"}))

    assert decision.verdict is verdict
    assert decision.reason.startswith("category=gold: errors 100 % (54 of 54 calls) vs ") is (mode != "off")
    assert decision.reason.endswith(end)
    assert known.verdict is Verdict.ADVANCE


def test_a_plan_may_say_three_things_of_slices():
    with pytest.raises(ValueError, match="slices: expected hold, rollback, off, got 'maybe'"):
        replace(POLICY, slices="maybe")


BAD_CALLS = list(range(0, 64, 3))


def test_calls_that_the_champion_failed_as_well_take_nothing_back_and_a_person_is_asked():
    strata = stratify(with_failures(traffic(), BAD_CALLS), 1)

    decision = judge(strata, POLICY, STAGE, LATER)

    assert decision.verdict is Verdict.HOLD
    assert decision.has_shared_errors
    assert row_of(decision, ERROR_RATE).state is CheckState.SHARED
    assert re.search(
        r"evidence .* is enough\), but 1,056 of 1,1\d\d failed calls also failed on the champion that stood in, and "
        "the others are not enough; no check takes the version back: an operator decides$",
        decision.reason,
    )


def test_once_an_operator_knows_of_them_the_rollout_goes_on():
    strata = stratify(with_failures(traffic(), BAD_CALLS), 1)

    decision = judge(strata, POLICY, STAGE, LATER, are_shared_errors_told=True)

    assert decision.verdict is Verdict.ADVANCE
    assert not decision.has_shared_errors


@pytest.mark.parametrize("knows", [True, False])
def test_what_the_champion_answered_takes_the_version_back_whatever_it_failed_besides(knows):
    strata = stratify(with_failures(traffic(error_factor=10.0), BAD_CALLS), 1)

    decision = judge(strata, POLICY, STAGE, LATER, are_shared_errors_told=knows)

    assert decision.verdict is Verdict.ROLL_BACK


def test_windows_that_do_not_tell_such_calls_and_verdicts_of_rules_before_are_judged_by_all_errors():
    windows, told = with_failures(traffic(), BAD_CALLS, both=False), with_failures(traffic(), BAD_CALLS)
    untold = evaluate(windows, POLICY, replace(STAGE, rules=Rules.SHARED_ERRORS), LATER)
    before = evaluate(told, POLICY, replace(STAGE, rules=Rules.COLD), LATER)

    assert untold.verdict is before.verdict is Verdict.ROLL_BACK
    assert untold.reason == before.reason


def test_one_entity_that_both_versions_fail_holds_no_step():
    told = judge(stratify(with_failures(traffic(), [5, 5, 5]), 1), POLICY, STAGE, LATER)
    untold = judge(stratify(with_failures(traffic(), [5, 5, 5], both=False), 1), POLICY, STAGE, LATER)

    assert untold.verdict is Verdict.HOLD
    assert "proven for too few entities" in untold.reason
    assert told.verdict is Verdict.ADVANCE


def test_entities_of_one_bucket_that_it_fails_alone_are_not_made_many_by_those_that_both_fail():
    tenant = [of_one_entity(window) for window in traffic(error_factor=4.0)]

    decision = judge(stratify(with_failures(tenant, BAD_CALLS), 1), POLICY, STAGE, LATER)

    assert decision.verdict is Verdict.HOLD
    assert decision.has_shared_errors


def test_in_its_first_seconds_calls_that_both_versions_fail_take_nothing_back():
    quiet = first_seconds(replace(WORLD, error_rate=0.0))

    assert of_second(with_failures(quiet, BAD_CALLS * 9, both=False), 12.0).verdict is Verdict.ROLL_BACK
    assert of_second(with_failures(quiet, BAD_CALLS * 9), 12.0).verdict is not Verdict.ROLL_BACK
