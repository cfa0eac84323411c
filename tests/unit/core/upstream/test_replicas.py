"""Choosing, ejecting and probing replicas, and the retry budget: laws over any sequence of results."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.upstream.replicas import (
    ANSWERS_TO_BLAME,
    FAILURES_TO_EJECT,
    FIRST_EJECTION_SECONDS,
    HEALTHY,
    LATE_TO_SUSPECT,
    MAX_EJECTION_SECONDS,
    REFUSALS_TO_EJECT,
    RETRY_BURST,
    RETRY_RATIO,
    CallResult,
    Health,
    ReplicaState,
    RetryBudget,
    choose_hedge,
    choose_replica,
    choose_unsuspected,
    had_time,
    health_after_probe,
    healths_after,
)

draws = st.floats(0, 1, exclude_max=True)
loads = st.lists(st.integers(0, 50), min_size=1, max_size=6)
failures = st.sampled_from([result for result in CallResult if result.is_failure])
steps = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(CallResult)), max_size=60)
A_REFUSAL, AN_ANSWER = CallResult.REFUSED, CallResult.ANSWERED
EJECTED = Health(failures=FAILURES_TO_EJECT, ejections=1, ejected_until=1.0)
SUSPECT = Health(failures=LATE_TO_SUSPECT, late=LATE_TO_SUSPECT)
healths = st.lists(
    st.sampled_from([HEALTHY, HEALTHY, Health(failures=1), Health(failures=2), Health(ejections=1, ejected_until=1.0)]),
    max_size=6,
)


def replicas_of(healths: Sequence[Health], in_flight: Sequence[int] = ()) -> list[ReplicaState]:
    calls = in_flight or [0] * len(healths)
    return [ReplicaState(health, count) for health, count in zip(healths, calls, strict=True)]


def after(healths: Sequence[Health], history: Sequence[tuple[int, CallResult]], now: float = 0.0) -> list[Health]:
    """Apply results one after the other; an index beyond the replicas is taken around."""
    known = list(healths)
    for place, result in history:
        known = healths_after(known, place % len(known), result, now)
    return known


@given(loads, draws)
def test_with_replicas_in_rotation_one_of_them_is_chosen_and_never_the_busiest_of_several(in_flight, draw):
    replicas = replicas_of([HEALTHY] * len(in_flight), in_flight)

    chosen = choose_replica(replicas, draw)

    assert chosen is not None
    if len(in_flight) > 1:
        assert chosen.in_flight <= sorted(in_flight)[-2]


@given(st.integers(2, 6), draws)
def test_an_ejected_replica_and_the_one_that_just_failed_get_no_call(count, draw):
    replicas = replicas_of([EJECTED] + [HEALTHY] * (count - 1))

    chosen = choose_replica(replicas, draw, avoid=replicas[1])

    assert chosen not in replicas[:2]
    assert (chosen is None) == (count == 2)


def test_without_replicas_nothing_is_chosen():
    assert choose_replica(replicas_of([]), 0.5) is None


@pytest.mark.parametrize("count", [2, 3, 5])
def test_equally_busy_replicas_are_chosen_equally_often(count):
    replicas, pairs = replicas_of([HEALTHY] * count), count * (count - 1)

    chosen = [choose_replica(replicas, (pair + 0.5) / pairs) for pair in range(pairs)]

    assert {chosen.count(replica) for replica in replicas} == {count - 1}


@given(st.integers(1, 6), steps)
def test_at_most_half_of_the_replicas_are_ejected_and_the_only_one_never_is(count, history):
    healths = after([HEALTHY] * count, history)

    ejected = sum(health.ejected for health in healths)

    assert ejected <= count // 2
    assert choose_replica(replicas_of(healths), 0.0) is not None


@given(failures)
def test_three_failures_in_a_row_eject_and_two_do_not(result):
    twice = after([HEALTHY, HEALTHY], [(0, result)] * (FAILURES_TO_EJECT - 1), now=5.0)

    thrice = after(twice, [(0, result)], now=5.0)

    assert not twice[0].ejected
    assert thrice[0].ejected_until == 5.0 + FIRST_EJECTION_SECONDS


@given(st.lists(failures, max_size=FAILURES_TO_EJECT - 1))
def test_an_answer_forgets_everything(bad):
    healths = after([HEALTHY, HEALTHY], [(0, A_REFUSAL), *((0, failed) for failed in bad)])

    healths = after(healths, [(0, AN_ANSWER)])

    assert healths == [HEALTHY, HEALTHY]


def test_a_refusal_shows_that_the_replica_lives_and_forgets_its_failures():
    healths = after([HEALTHY, HEALTHY], [(0, CallResult.LATE), (0, CallResult.LATE), (0, A_REFUSAL)])

    assert healths[0].failures == 0


@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=40))
def test_calls_that_every_replica_refuses_never_eject(count, places):
    healths = after([HEALTHY] * count, [(place, A_REFUSAL) for place in places])

    assert not any(health.ejected for health in healths)


@given(st.lists(st.sampled_from([(0, A_REFUSAL), (1, AN_ANSWER)]), max_size=40))
def test_a_replica_that_refuses_everything_is_ejected_once_the_other_answered_often_enough(history):
    healths = after([HEALTHY, HEALTHY], history)

    answers_at = [place for place, (index, _) in enumerate(history) if index == 1]
    refusals_at = [place for place, (index, _) in enumerate(history) if index == 0]
    blamed = any(
        number >= REFUSALS_TO_EJECT
        and sum(refusals_at[0] < answer < refusal for answer in answers_at) >= ANSWERS_TO_BLAME
        for number, refusal in enumerate(refusals_at, start=1)
    )
    assert healths[0].ejected == blamed
    assert healths[1] == HEALTHY


def test_answers_of_the_others_from_before_the_first_refusal_eject_no_replica():
    healths = after([HEALTHY, HEALTHY], [(1, AN_ANSWER)] * 50 + [(0, A_REFUSAL)] * 50)

    assert not healths[0].ejected


def test_one_refusal_of_another_replica_takes_the_blame_back():
    refused = [(0, A_REFUSAL)] * REFUSALS_TO_EJECT
    answered = [(1, AN_ANSWER)] * ANSWERS_TO_BLAME

    healths = after([HEALTHY, HEALTHY], [*refused, *answered, (1, A_REFUSAL), (0, A_REFUSAL)])

    assert not healths[0].ejected


def test_the_only_replica_is_not_ejected_whatever_it_refuses():
    healths = after([HEALTHY], [(0, A_REFUSAL)] * 50 + [(0, CallResult.UNABLE)] * 50)

    assert not healths[0].ejected


def test_a_replica_that_still_refuses_after_a_good_probe_is_ejected_by_one_more_refusal_for_longer():
    start = [(0, A_REFUSAL), *[(1, AN_ANSWER)] * ANSWERS_TO_BLAME]
    healths = after([HEALTHY, HEALTHY], start + [(0, A_REFUSAL)] * (REFUSALS_TO_EJECT - 1))
    healths[0] = health_after_probe(healths[0], ready=True, now=1.0)

    again = after(healths, [(0, A_REFUSAL)], now=1.0)

    assert not healths[0].ejected
    assert again[0].ejected_until == 1.0 + 2 * FIRST_EJECTION_SECONDS


@given(failures)
def test_failures_of_calls_that_left_before_the_ejection_do_not_make_it_longer(result):
    healths = after([EJECTED, HEALTHY], [(0, result)] * 10, now=0.9)

    assert healths[0] == EJECTED


def test_each_failed_probe_doubles_the_ejection_up_to_the_bound():
    health = EJECTED
    seconds = []

    for _ in range(6):
        now = health.ejected_until or 0.0
        health = health_after_probe(health, ready=False, now=now)
        seconds.append((health.ejected_until or 0.0) - now)

    assert seconds == [2.0, 4.0, 8.0, *[MAX_EJECTION_SECONDS] * 3]


def test_a_probe_is_due_when_the_ejection_is_over_and_not_before():
    assert not HEALTHY.probe_due(100.0)
    assert not EJECTED.probe_due(0.999)
    assert EJECTED.probe_due(1.0)


@given(failures)
def test_after_a_good_probe_one_failure_ejects_again_for_twice_as_long(result):
    half_open = health_after_probe(EJECTED, ready=True, now=1.0)

    again = after([half_open, HEALTHY], [(0, result)], now=1.0)

    assert not half_open.ejected
    assert again[0].ejected_until == 1.0 + 2 * FIRST_EJECTION_SECONDS


@given(draws, st.integers(1, 50))
def test_a_half_open_replica_gets_one_call_at_a_time_however_busy_the_others_are(draw, in_flight):
    half_open = health_after_probe(EJECTED, ready=True, now=1.0)
    idle, busy = (replicas_of([half_open, HEALTHY], [calls, in_flight + 1]) for calls in (0, in_flight))

    assert choose_replica(idle, draw) is idle[0]
    assert choose_replica(busy, draw) is busy[1]
    assert choose_replica(busy, draw, avoid=busy[1]) is busy[0]


def test_after_a_good_probe_one_answer_forgets_everything():
    half_open = health_after_probe(EJECTED, ready=True, now=1.0)

    assert after([half_open, HEALTHY], [(0, CallResult.ANSWERED)])[0] == HEALTHY


def test_a_probe_that_ends_after_the_replica_answered_changes_nothing():
    assert health_after_probe(HEALTHY, ready=False, now=1.0) == HEALTHY


@given(st.lists(st.booleans(), max_size=2_000))
def test_retries_never_exceed_a_fifth_of_the_answers_and_the_burst(answered):
    budget = RetryBudget()
    retries = 0

    for is_answered in answered:
        if is_answered:
            budget = budget.after_answer()
        elif budget.allows:
            budget = budget.after_retry()
            retries += 1

    assert 0 <= budget.tokens <= RETRY_BURST
    assert retries <= RETRY_BURST + RETRY_RATIO * sum(answered) + 1e-6


@given(st.sampled_from([result for result in CallResult if result not in (CallResult.LATE, CallResult.OVERTAKEN)]))
def test_a_replica_that_lets_ten_calls_in_a_row_run_out_is_suspect_until_it_says_anything(result):
    late = [(0, CallResult.LATE)]

    almost, suspect = (after([HEALTHY], late * count) for count in (LATE_TO_SUSPECT - 1, LATE_TO_SUSPECT))
    heard = after(suspect, [(0, result)])

    assert not almost[0].is_suspect
    assert suspect[0].is_suspect
    assert not suspect[0].ejected
    assert not heard[0].is_suspect


kinds = st.lists(st.tuples(st.sampled_from([HEALTHY, EJECTED, SUSPECT]), st.integers(0, 50)), min_size=1, max_size=6)


@given(kinds, st.none() | st.integers(0, 5))
def test_the_least_busy_replica_that_is_not_suspect_takes_a_call_in_place_of_a_suspect_one(known, avoid):
    replicas = [ReplicaState(health, calls) for health, calls in known]
    failed = replicas[avoid] if avoid is not None and avoid < len(replicas) else None

    chosen = choose_unsuspected(replicas, failed)

    calls_of_sure = [replica.in_flight for replica in replicas if replica.health == HEALTHY and replica is not failed]
    assert (chosen is None) == (not calls_of_sure)
    if chosen is not None:
        assert (chosen.health, chosen.in_flight, chosen is failed) == (HEALTHY, min(calls_of_sure), False)


def test_a_suspect_replica_is_half_open_after_a_good_probe_until_one_call_is_late_again():
    heard = health_after_probe(SUSPECT, ready=True, now=1.0)

    late_again = after([heard], [(0, CallResult.LATE)])
    late_with_others = after([heard, HEALTHY], [(0, CallResult.LATE)])

    assert not heard.is_suspect
    assert late_again[0].is_suspect
    assert late_with_others[0].ejected
    assert health_after_probe(SUSPECT, ready=False, now=1.0) == SUSPECT


@pytest.mark.parametrize(
    ("given_seconds", "p95_seconds", "counts"),
    [
        (0.0249, None, False),
        (0.025, None, True),  # a twentieth of the version's own limit
        (0.025, 0.1, False),
        (0.1, 0.1, True),
        (0.002, 0.001, True),  # shorter than a twentieth, and yet twice what it takes
    ],
)
def test_a_call_that_ran_out_counts_if_it_had_the_time_that_its_replica_takes(given_seconds, p95_seconds, counts):
    assert had_time(given_seconds, 0.5, p95_seconds) == counts


@given(healths, st.data())
def test_a_hedge_goes_to_the_least_busy_of_the_others_that_are_well(known, data):
    in_flight = data.draw(st.lists(st.integers(0, 50), min_size=len(known), max_size=len(known)))
    replicas = [ReplicaState(health, calls) for health, calls in zip(known, in_flight, strict=True)]
    first = data.draw(st.sampled_from(replicas)) if replicas else ReplicaState()

    chosen = choose_hedge(replicas, first)

    well = [replica for replica in replicas if replica.health == HEALTHY and replica is not first]
    assert (chosen is None) == (not well)
    if chosen is not None:
        assert chosen in well
        assert chosen.in_flight == min(replica.in_flight for replica in well)


def test_a_replica_that_is_half_open_gets_no_hedge():
    ejected = Health(failures=3, ejections=1, ejected_until=1.0)

    first, half_open = ReplicaState(), ReplicaState(health_after_probe(ejected, ready=True, now=1.0))

    assert choose_hedge([first, half_open], first) is None
