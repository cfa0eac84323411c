"""The health of replicas after calls and probes, and its shortcut while all are healthy."""

from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.adapters.model_servers.replicas.upstream_health import UpstreamHealth
from understudy.core.upstream.replicas import (
    FAILURES_TO_EJECT,
    FIRST_EJECTION_SECONDS,
    HEALTHY,
    CallResult,
    Health,
    health_after_probe,
    healths_after,
)

steps = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([*CallResult, True, False])), max_size=60)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def a_health(count: int, clock: Clock) -> UpstreamHealth:
    return UpstreamHealth([Replica(f"127.0.0.1:{port}", PLAIN_WIRE, clock) for port in range(1, count + 1)], clock)


@given(st.integers(1, 4), steps)
def test_it_is_what_the_rules_make_of_each_call_and_probe(count, history):
    health, expected = a_health(count, Clock()), [HEALTHY] * count

    for place, step in history:
        index = place % count
        replica = health.replicas[index]
        if isinstance(step, CallResult):
            health.record(replica, step)
            expected = healths_after(expected, index, step, 0.0)
        else:
            health.record_probe(replica, ready=step)
            expected[index] = health_after_probe(expected[index], step, 0.0)

    assert [replica.health for replica in health.replicas] == expected
    assert health.ejected == sum(known.ejected for known in expected)


def test_an_ejected_replica_is_due_for_a_probe_when_its_ejection_is_over():
    clock = Clock()
    health = a_health(2, clock)
    for _ in range(FAILURES_TO_EJECT):
        health.record(health.replicas[0], CallResult.UNAVAILABLE)

    before = health.due()
    clock.seconds = FIRST_EJECTION_SECONDS

    assert list(before) == []
    assert health.due() == [health.replicas[0]]


def test_a_newcomer_is_due_for_a_probe_before_it_gets_a_call_and_who_stays_keeps_its_record():
    clock = Clock()
    health = a_health(2, clock)
    stays, leaves = health.replicas
    health.record(stays, CallResult.UNAVAILABLE)
    newcomer = Replica("127.0.0.1:9", PLAIN_WIRE, clock)

    health.change_replicas((stays, newcomer))

    assert stays.health == Health(failures=1)
    assert list(health.due()) == [newcomer]
    assert health.ejected == 1
    health.record_probe(newcomer, ready=True)
    assert health.ejected == 0
    health.record(newcomer, CallResult.ANSWERED)
    health.record(stays, CallResult.ANSWERED)
    assert [replica.health for replica in health.replicas] == [HEALTHY, HEALTHY]
    health.record(leaves, CallResult.UNAVAILABLE)  # a call that was under way there as it left
    assert [replica.health for replica in health.replicas] == [HEALTHY, HEALTHY]


@given(st.integers(1, 4), st.integers(0, 4), steps)
def test_after_any_change_one_replica_at_least_gets_calls(stay, join, history):
    clock = Clock()
    health = a_health(4, clock)
    for place, step in history:
        if isinstance(step, CallResult):
            health.record(health.replicas[place], step)
        else:
            health.record_probe(health.replicas[place], ready=step)
    newcomers = [Replica(f"127.0.0.2:{port}", PLAIN_WIRE, clock) for port in range(1, join + 1)]

    health.change_replicas((*health.replicas[4 - stay :], *newcomers))

    assert health.ejected < len(health.replicas)
