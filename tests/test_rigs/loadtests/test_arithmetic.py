from e2e.flips import lags_seconds
from e2e.load import Answer
from hypothesis import given
from hypothesis import strategies as st

from loadtests.connections import queue_ms
from loadtests.soak import Slice, judge, think_ms_for
from loadtests.wrk import Answered


def a_slice(*, per_second: float = 700, p99_ms: float = 10, megabytes: float = 100, tasks: int = 9) -> Slice:
    answered = Answered(int(per_second * 60), 60.0, 0, 0, 5.0, p99_ms)
    return Slice(answered, megabytes, descriptors=40, tasks=tasks)


def verdicts(slices: list[Slice]) -> dict[str, str]:
    found = judge(slices, minutes=30, capacity=1000)
    return {target.text.split()[0]: target.verdict for target in found.targets}


def test_a_soak_that_ends_as_it_began_passes():
    found = judge([a_slice()] * 30, minutes=30, capacity=1000)

    assert {target.verdict for target in found.targets} == {"pass"}
    assert all(check.holds for check in found.checks)


def test_what_happens_in_the_warm_up_is_left_out():
    assert set(verdicts([a_slice(p99_ms=500, megabytes=50, tasks=1)] * 3 + [a_slice()] * 27).values()) == {"pass"}


def test_each_kind_of_growth_is_found():
    steady = [a_slice()] * 25
    assert verdicts([*steady, *[a_slice(megabytes=106)] * 5])["memory"] == "short"
    assert verdicts([*steady, *[a_slice(tasks=30)] * 5])["asyncio"] == "short"
    assert verdicts([*steady, *[a_slice(p99_ms=12)] * 5])["p99"] == "short"


def test_memory_that_went_and_came_back_is_found():
    slices = [a_slice()] * 15 + [a_slice(megabytes=90)] + [a_slice()] * 14

    assert verdicts(slices)["memory"] == "short"


def test_a_load_far_from_seventy_percent_is_no_soak():
    found = judge([a_slice(per_second=300)] * 30, minutes=30, capacity=1000)

    assert not all(check.holds for check in found.checks)


@given(st.floats(10, 1e5), st.integers(1, 512), st.floats(0, 50))
def test_connections_that_think_so_long_send_as_many_as_wanted(per_second, connections, answer_ms):
    think_ms = think_ms_for(per_second, connections, answer_ms)

    sent = 1000 * connections / (think_ms + answer_ms)
    assert sent <= per_second * 1.0001
    assert think_ms == 1.0 or abs(sent - per_second) <= per_second * 1e-6


@given(st.integers(1, 10**6), st.floats(0.1, 60), st.integers(1, 512))
def test_a_queue_of_all_connections_takes_their_number_over_the_throughput(requests, seconds, connections):
    run = Answered(requests, seconds, 0, 0)

    assert abs(queue_ms(run, connections) * run.per_second - connections * 1000) <= connections * 1e-6


def answered(sent: float, generation: int, status: int = 200) -> Answer:
    return Answer(sent, 0.01, status, {b"x-policy-generation": b"%d" % generation}, b"")


def test_a_flips_lag_ends_with_the_last_request_that_an_older_policy_answered():
    answers = [answered(9.9, 1), answered(10.1, 1), answered(10.2, 2), answered(10.25, 1), answered(10.4, 2)]

    assert lags_seconds(answers, {2: 10.0}) == [0.25]


def test_a_flip_after_which_nobody_met_the_old_policy_has_no_lag():
    assert lags_seconds([answered(9.0, 1), answered(10.1, 2)], {2: 10.0}) == [0.0]


def test_a_request_that_failed_says_nothing_of_the_policy():
    assert lags_seconds([Answer(10.1, 2.0, 408, {}, b"")], {2: 10.0}) == [0.0]
