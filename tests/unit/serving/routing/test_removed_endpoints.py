from builders import a_policy, a_version

from understudy.core.routing.policy import PolicySnapshot
from understudy.serving.routing.removed_endpoints import TOLD_SECONDS, RemovedEndpoints


def noted(removed: RemovedEndpoints, before: PolicySnapshot, after: PolicySnapshot) -> None:
    for _ in removed.note(before, after, ["visits"]):
        pass


def a_snapshot(*endpoints: str) -> PolicySnapshot:
    return PolicySnapshot({"visits": a_policy(champion=a_version("1", endpoints=list(endpoints)))})


def test_a_call_that_holds_a_version_as_it_was_before_it_lost_an_endpoint_counts_until_it_lets_go():
    removed = RemovedEndpoints(lambda: 0.0)
    before = a_snapshot("10.0.0.1:9000", "10.0.0.2:9000")
    held = before.policies["visits"].champion
    noted(removed, before, a_snapshot("10.0.0.1:9000"))
    version_id = held.id
    del before

    assert removed.calls() == {version_id: 1}
    del held

    assert removed.calls() == {version_id: 0}


def test_a_version_that_has_left_the_policies_has_lost_all_its_endpoints():
    removed = RemovedEndpoints(lambda: 0.0)
    before = a_snapshot("10.0.0.1:9000")
    version_id = before.policies["visits"].champion.id

    noted(removed, before, PolicySnapshot())
    del before

    assert removed.calls() == {version_id: 0}


def test_nothing_is_told_of_a_version_that_was_given_an_endpoint_or_is_as_it_was():
    removed = RemovedEndpoints(lambda: 0.0)
    one, two = a_snapshot("10.0.0.1:9000"), a_snapshot("10.0.0.1:9000", "10.0.0.2:9000")

    noted(removed, one, two)
    noted(removed, two, two)

    assert removed.calls() == {}


def test_a_call_to_an_endpoint_that_was_removed_twice_counts_though_none_of_after_the_first_time_is_left():
    removed = RemovedEndpoints(lambda: 0.0)
    first = a_snapshot("10.0.0.1:9000")
    held = first.policies["visits"].champion

    noted(removed, first, a_snapshot())
    noted(removed, a_snapshot("10.0.0.1:9000"), a_snapshot())
    del first

    assert removed.calls() == {held.id: 1}


def test_a_removal_is_told_of_for_a_minute_beyond_the_time_out_of_its_calls():
    clock = [0.0]
    removed = RemovedEndpoints(lambda: clock[0])
    noted(removed, a_snapshot("10.0.0.1:9000"), a_snapshot("10.0.0.2:9000"))

    clock[0] = TOLD_SECONDS + 0.4  # a call may take half a second
    assert list(removed.calls().values()) == [0]
    clock[0] = TOLD_SECONDS + 0.6

    assert removed.calls() == {}
