import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.replicas import Replicas
from understudy.core.loading.wanted import RANK, GroupMember, ManagedVersion, Why, missing_servers, wanted_placements

groups = st.sampled_from(["a", "b"])
versions = st.lists(
    st.builds(ManagedVersion, st.integers(1, 9), groups, st.frozensets(st.sampled_from(Why))),
    unique_by=lambda version: version.version_id,
)
servers = st.lists(
    st.builds(GroupMember, st.sampled_from(["s1", "s2", "s3"]), groups), unique_by=lambda server: server.name
)


@given(versions, servers)
def test_every_server_of_a_group_is_to_have_every_wanted_version_of_it_and_nothing_else(versions, servers):
    expected = {
        (version.version_id, server.name)
        for version in versions
        for server in servers
        if version.reasons and version.group_name == server.group_name
    }

    assert wanted_placements(versions, servers, (), ()).keys() == expected


@given(st.frozensets(st.sampled_from(Why), min_size=1))
def test_of_several_reasons_the_most_urgent_one_is_told(reasons):
    why = ManagedVersion(1, "a", reasons).why

    assert why is not None
    assert why in reasons
    assert all(RANK[why] <= RANK[other] for other in reasons)


def test_who_answers_now_is_loaded_before_what_a_person_asked_for():
    assert next(why for why in Why if RANK[why] < RANK[Why.PREVIOUS_CHAMPION]) is Why.CHAMPION
    assert RANK[Why.ASKED] == max(RANK.values())


OLD, NEW = GroupMember("old", "a"), GroupMember("new", "b")


def moved(*reasons: Why) -> ManagedVersion:
    return ManagedVersion(1, "b", frozenset(reasons))


def test_a_version_that_was_moved_stays_where_it_was_until_a_server_of_the_new_group_has_it():
    placed = {(1, "old"): Why.CHAMPION}

    before = wanted_placements([moved(Why.CHAMPION)], [OLD, NEW], placed, {(1, "old")})
    after = wanted_placements([moved(Why.CHAMPION)], [OLD, NEW], placed, {(1, "old"), (1, "new")})

    assert before == {(1, "old"): Why.CHAMPION, (1, "new"): Why.CHAMPION}
    assert after == {(1, "new"): Why.CHAMPION}


def test_a_version_that_was_moved_to_a_group_without_servers_stays_where_it_was_for_as_long_as_it_is_wanted():
    placed = {(1, "old"): Why.CHAMPION}

    assert wanted_placements([moved(Why.SHADOW)], [OLD], placed, {(1, "old")}) == {(1, "old"): Why.SHADOW}
    assert wanted_placements([moved()], [OLD], placed, {(1, "old")}) == {}


@pytest.mark.parametrize(
    ("servers", "available", "missing"),
    [
        ([], [], {1: 1}),
        ([GroupMember("s1", "b")], [(1, "s1")], {1: 1}),
        ([GroupMember("s1", "a", is_live=False)], [], {1: 1}),
        ([GroupMember("s1", "a"), GroupMember("s2", "a", is_live=False)], [(1, "s1")], {}),
        ([GroupMember("s1", "a"), GroupMember("s2", "a")], [(1, "s1")], {1: 1}),
        ([GroupMember("s1", "a"), GroupMember("s2", "a")], [(1, "s1"), (1, "s2")], {}),
    ],
    ids=["no server", "of another group", "silent", "one silent", "one without it", "all have it"],
)
def test_a_wanted_version_misses_each_live_server_of_its_group_that_does_not_have_it(servers, available, missing):
    versions = [ManagedVersion(1, "a", frozenset({Why.CHAMPION})), ManagedVersion(2, "a", frozenset())]

    assert missing_servers(versions, servers, available) == missing


def test_a_server_without_room_for_a_champion_before_is_not_missed_and_one_without_room_for_another_version_is():
    servers = [GroupMember("s1", "a"), GroupMember("s2", "a")]
    before = ManagedVersion(1, "a", frozenset({Why.PREVIOUS_CHAMPION}))
    champion = ManagedVersion(2, "a", frozenset({Why.CHAMPION}))
    full = {(1, "s1"), (2, "s1")}

    assert missing_servers([before, champion], servers, [(2, "s2")], full) == {1: 1, 2: 1}
    assert missing_servers([before, champion], servers, [(1, "s2"), (2, "s1"), (2, "s2")], full) == {}


def test_a_word_of_a_later_release_is_the_least_reason():
    assert Why("of a later release") is Why.ASKED


@pytest.mark.parametrize(
    ("available", "placed", "missing"),
    [
        ([], [], {1: 2}),
        ([(1, "s1")], [(1, "s1"), (1, "s2")], {1: 1}),
        ([(1, "s1"), (1, "s2")], [(1, "s1"), (1, "s2")], {}),
        ([(1, "s1"), (1, "s2")], [(1, "s1"), (1, "s2"), (1, "s3")], {1: 1}),
        ([(1, "s1"), (1, "s2"), (1, "s3")], [(1, f"s{number}") for number in range(1, 6)], {}),
    ],
    ids=["nowhere", "on one", "on the fewest", "on fewer than its calls need", "in a move"],
)
def test_a_version_for_some_servers_misses_those_that_it_is_placed_on_and_at_the_least_its_fewest(
    available, placed, missing
):
    servers = [GroupMember(f"s{number}", "a") for number in range(1, 6)]
    version = ManagedVersion(1, "a", frozenset({Why.CHAMPION}), replicas=Replicas(2, 3))

    assert missing_servers([version], servers, available, (), placed) == missing
    assert missing_servers([version], [GroupMember("s1", "b")], available, (), placed) == {1: 1}
