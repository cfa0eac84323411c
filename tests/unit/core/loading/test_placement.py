from collections.abc import Collection, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.placement import MAX_MOVES, Packing, PlacementFacts, pack
from understudy.core.loading.replicas import Replicas
from understudy.core.loading.wanted import GroupMember, ManagedVersion, Place, Why

GIB = 2**30
ROOM = 9 * GIB
NAMES = ["s1", "s2", "s3", "s4"]

members = st.lists(
    st.builds(
        GroupMember,
        st.sampled_from(NAMES),
        st.sampled_from(["a", "b"]),
        is_live=st.booleans(),
        answers=st.booleans(),
        room_bytes=st.none() | st.integers(1, 12).map(lambda gib: gib * GIB),
    ),
    unique_by=lambda member: member.name,
)
versions = st.lists(
    st.builds(
        ManagedVersion,
        st.integers(1, 12),
        st.sampled_from(["a", "b"]),
        st.frozensets(st.sampled_from([Why.CHAMPION, Why.ASKED])),
        model_name=st.sampled_from(["m1", "m2", "m3"]),
        replicas=st.none() | st.integers(1, 3).map(lambda count: Replicas(count, count)),
    ),
    unique_by=lambda version: version.version_id,
)
places = st.frozensets(st.tuples(st.integers(1, 12), st.sampled_from(NAMES)))
facts = st.builds(
    PlacementFacts,
    places,
    places,
    places,
    st.dictionaries(st.tuples(st.integers(1, 12), st.sampled_from(NAMES)), st.integers(1, 6 * GIB)),
    st.frozensets(st.sampled_from(NAMES)),
)


def a_version(number: int, count: int = 1, why: Why = Why.CHAMPION, group: str = "cpu") -> ManagedVersion:
    replicas = Replicas(count, count)
    return ManagedVersion(number, group, frozenset({why}), model_name=f"model-{number}", replicas=replicas)


def a_member(name: str, group: str = "cpu", *, is_live: bool = True, room: int | None = ROOM) -> GroupMember:
    return GroupMember(name, group, is_live=is_live, room_bytes=room)


def sized(gibibytes: Mapping[int, float], *names: str) -> dict[Place, int]:
    """Return what versions take, as it was measured at servers, or at one that has gone."""
    return {(number, name): int(size * GIB) for number, size in gibibytes.items() for name in names or ("gone",)}


def settled(
    versions: Collection[ManagedVersion],
    servers: Collection[GroupMember],
    sizes: Mapping[Place, int] = {},
    placed: Collection[Place] = (),
) -> Packing:
    """Tick until nothing changes, with agents that load at once."""
    found = pack(versions, servers, PlacementFacts(placed, placed, (), sizes))
    for _ in range(100):
        after = pack(versions, servers, PlacementFacts(found.placed, found.placed, (), sizes))
        if after.placed == found.placed:
            return after
        found = after
    raise AssertionError("it does not come to rest")


@given(versions, members, facts)
def test_new_replicas_are_of_the_versions_group_one_at_a_server_and_where_its_agent_and_the_server_answer(
    versions, members, facts
):
    known, servers = {one.version_id: one for one in versions}, {one.name: one for one in members}

    found = pack(versions, members, facts)

    assert all(known[version_id].replicas and known[version_id].why for version_id, _ in found.placed)
    for version_id, name in found.placed - facts.placed:
        server = servers[name]
        assert server.is_live
        assert server.answers
        assert name not in facts.lost
        assert server.group_name == known[version_id].group_name


@given(versions, members, facts)
def test_a_version_of_known_size_is_placed_anew_only_where_the_room_is_enough_for_all_known_ones(
    versions, members, facts
):
    known = {one.version_id: one for one in versions}
    most = {n: max(size for (one, _), size in facts.sizes.items() if one == n) for n, _ in facts.sizes}

    found = pack(versions, members, facts).placed

    for member in members:
        new = {n for n, name in found - facts.placed if name == member.name and n in most}
        stays = {n for n, name in found & facts.placed - facts.refused if name == member.name}
        everywhere = {
            n for n, one in known.items() if one.why and not one.replicas and one.group_name == member.group_name
        }
        has = sum(facts.sizes.get((n, member.name), most.get(n, 0)) for n in stays | everywhere) + sum(
            most[n] for n in new
        )
        if new and member.room_bytes is not None:
            assert has <= member.room_bytes


@given(versions, members, facts, st.randoms(use_true_random=False))
def test_the_order_of_rows_decides_nothing(versions, members, facts, chance: Random):
    shuffled, others = list(versions), list(members)
    chance.shuffle(shuffled)
    chance.shuffle(others)
    sizes = list(facts.sizes.items())
    chance.shuffle(sizes)

    again = pack(shuffled, others, facts._replace(sizes=dict(sizes), placed=list(facts.placed)))

    assert again == pack(versions, members, facts)


@given(versions, members, facts)
def test_a_version_keeps_as_many_available_replicas_as_it_should_have_while_it_moves(versions, members, facts):
    servers = {one.name for one in members}

    found = pack(versions, members, facts).placed

    for version in versions:
        places = {(version.version_id, name) for name in servers}
        had = places & facts.placed & facts.available - facts.refused
        if version.replicas and version.why:
            assert len(found & had) >= min(len(had), version.replicas.least)


@given(versions, members, st.dictionaries(st.tuples(st.integers(1, 12), st.just("s1")), st.integers(1, 6 * GIB)))
def test_what_has_come_to_rest_does_not_move(versions, members, sizes):
    found = settled(versions, members, sizes)

    again = pack(versions, members, PlacementFacts(found.placed, found.placed, (), sizes))

    assert (again.placed, again.moves) == (found.placed, 0)


@given(versions, members, facts)
def test_a_tick_begins_two_moves_at_most_and_one_of_a_model(versions, members, facts):
    assert pack(versions, members, facts).moves <= min(MAX_MOVES, len({one.model_name for one in versions}))


def test_large_versions_come_first_and_each_goes_to_the_fullest_server_that_has_room():
    found = settled(
        [a_version(number) for number in range(1, 5)],
        [a_member("a"), a_member("b")],
        sized({1: 2, 2: 7, 3: 6, 4: 3}),
    )

    assert found.placed == {(2, "a"), (1, "a"), (3, "b"), (4, "b")}


def test_a_version_for_which_nothing_has_room_is_named_and_the_more_important_ones_have_theirs():
    found = settled(
        [a_version(1, why=Why.ASKED), a_version(2), a_version(3)], [a_member("a")], sized({1: 8, 2: 5, 3: 4})
    )

    assert found.placed == {(2, "a"), (3, "a")}
    assert found.unplaced == {1: 1}


def test_of_more_replicas_than_servers_each_server_has_one_and_the_rest_is_named():
    found = settled([a_version(1, count=3)], [a_member("a"), a_member("b")])

    assert found.placed == {(1, "a"), (1, "b")}
    assert found.unplaced == {1: 1}


def test_versions_of_unknown_size_go_where_most_room_is():
    found = settled([a_version(number) for number in range(6)], [a_member("a"), a_member("b"), a_member("c")])

    assert sorted(name for _, name in found.placed) == ["a", "a", "b", "b", "c", "c"]


def test_servers_of_unknown_memory_get_one_version_after_the_other_and_what_all_have_counts_for_each():
    counted = [a_member(name, room=None) for name in ("a", "b", "c")]
    everywhere = replace(a_version(9), replicas=None)

    found = settled([everywhere, *(a_version(number) for number in range(5))], counted)

    assert sorted(sum(name == server for _, name in found.placed) for server in ("a", "b", "c")) == [1, 2, 2]


def test_what_every_server_has_takes_of_the_room_of_each():
    everywhere = replace(a_version(9), replicas=None)

    found = settled([everywhere, a_version(1)], [a_member("a"), a_member("b")], sized({9: 5, 1: 5}))

    assert found.placed == frozenset()
    assert found.unplaced == {1: 1}


def test_the_versions_of_a_lost_server_are_placed_at_once_and_it_keeps_them_until_others_have_them():
    versions = [a_version(number) for number in range(15)]
    sizes = sized(dict.fromkeys(range(15), 1.0))
    three = [a_member("a"), a_member("b"), a_member("c")]
    before = settled(versions, three, sizes).placed
    its = {place for place in before if place[1] == "a"}
    there = PlacementFacts(before, before - its, (), sizes, {"a"})

    after = pack(versions, [a_member("a", is_live=False), *three[1:]], there)
    later = pack(
        versions,
        [a_member("a", is_live=False), *three[1:]],
        there._replace(placed=after.placed, available=after.placed - its),
    )

    assert after.unplaced == {}
    assert after.placed >= before
    assert len(after.placed - before) == len(its)
    assert later.placed == after.placed - its


@pytest.mark.parametrize("size", [{1: 1.0, 2: 1.0}, {}], ids=["of known sizes", "of unknown sizes"])
def test_the_versions_of_a_server_that_drains_are_placed_on_others_at_once_and_nothing_new_on_it(size):
    versions = [a_version(1), a_version(2)]
    sizes = sized(size)
    before = frozenset({(1, "a"), (2, "a")})
    there = PlacementFacts(before, {(1, "a")}, (), sizes)
    servers = [replace(a_member("a"), is_draining=True), a_member("b"), a_member("c")]

    after = pack(versions, servers, there)
    later = pack(versions, servers, there._replace(placed=after.placed, available=after.placed - before))

    assert after.placed >= before
    assert {number for number, name in after.placed if name != "a"} == {1, 2}
    assert {name for _, name in later.placed}.isdisjoint({"a"})


def test_a_server_that_is_silent_for_a_moment_keeps_its_versions_and_gets_no_others():
    two = [a_member("a"), a_member("b")]
    before = settled([a_version(1)], two).placed
    ((_, name),) = before
    silent = [replace(server, is_live=server.name != name) for server in two]

    after = pack([a_version(1), a_version(2)], silent, PlacementFacts(before))

    assert after.placed > before
    assert {server for number, server in after.placed if number == 2} == {"a", "b"} - {name}


def test_a_version_that_a_server_had_no_room_for_goes_to_another_one_and_waits_there_where_none_has():
    sizes = sized({1: 4})
    here, there = frozenset({(1, "a")}), PlacementFacts({(1, "a")}, (), {(1, "a")}, sizes)

    assert pack([a_version(1)], [a_member("a"), a_member("b")], there).placed == {(1, "b")}
    assert pack([a_version(1)], [a_member("a"), a_member("b", room=3 * GIB)], there).placed == here
    assert pack([a_version(1)], [a_member("a")], there).unplaced == {1: 1}


def test_versions_that_have_grown_out_of_their_server_move_two_at_a_time_and_are_available_elsewhere_first():
    versions = [a_version(number) for number in range(4)]
    placed = frozenset((number, "a") for number in range(4))
    sizes = sized(dict.fromkeys(range(4), 2.0), "a")
    two = [a_member("a", room=GIB), a_member("b")]

    first = pack(versions, two, PlacementFacts(placed, placed, (), sizes))
    on_its_way = pack(versions, two, PlacementFacts(first.placed, placed, (), sizes), max_moves=0)

    assert (first.moves, placed < first.placed) == (2, True)
    assert placed < on_its_way.placed  # what is not available yet replaces nothing
    assert settled(versions, two, sizes, placed).placed == {(number, "b") for number in range(4)}


def test_versions_that_turn_out_a_little_larger_stay():
    placed, sizes = frozenset({(1, "a"), (2, "a")}), sized({1: 4.9, 2: 5}, "a")
    versions = [a_version(1), a_version(2)]

    assert pack(versions, [a_member("a"), a_member("b")], PlacementFacts(placed, placed, (), sizes)).placed == placed


def test_fewer_replicas_leave_the_emptiest_server_and_one_that_does_not_have_it_first():
    two, sizes = [a_member("a"), a_member("b")], sized({1: 1, 2: 5})
    before = settled([a_version(1, count=2), a_version(2)], two, sizes).placed
    (full,) = {name for number, name in before if number == 2}
    (other,) = {"a", "b"} - {full}

    fewer = settled([a_version(1), a_version(2)], two, sizes, before).placed
    loading = pack([a_version(1), a_version(2)], two, PlacementFacts(before, {(1, other), (2, full)}, (), sizes)).placed

    assert fewer == {(1, full), (2, full)}
    assert loading == {(1, other), (2, full)}


def test_a_version_that_was_moved_to_another_group_leaves_once_that_has_it():
    moved, servers = a_version(1, group="gpu"), [a_member("a"), a_member("g", "gpu")]
    before = frozenset({(1, "a")})

    first = pack([moved], servers, PlacementFacts(before, before)).placed

    assert first == {(1, "a"), (1, "g")}
    assert pack([moved], servers, PlacementFacts(first, before)).placed == first
    assert pack([moved], servers, PlacementFacts(first, first)).placed == {(1, "g")}


def test_replicas_by_calls_are_as_many_as_are_counted():
    ranged = replace(a_version(1), replicas=Replicas(1, 4))
    servers = [a_member(name) for name in "abcd"]

    assert len(pack([ranged], servers, PlacementFacts()).placed) == 1
    assert len(pack([ranged], servers, PlacementFacts(), {1: 3}).placed) == 3


@pytest.mark.parametrize("seed", range(3))
def test_a_fleet_is_packed_into_few_servers_does_not_move_and_loses_one_server_in_one_tick(seed):
    chance = Random(seed)
    versions = [a_version(number) for number in range(500)]
    weights = [chance.lognormvariate(0.0, 1.0) for _ in versions]
    scale = 0.8 * 20 * ROOM / sum(weights)
    sizes = {(number, "gone"): int(weight * scale) for number, weight in enumerate(weights)}
    servers = [a_member(f"s{number:02d}") for number in range(20)]

    first = pack(versions, servers, PlacementFacts(sizes=sizes))
    again = pack(versions, servers, PlacementFacts(first.placed, first.placed, (), sizes))
    lost = min(name for _, name in first.placed)
    its = {place for place in first.placed if place[1] == lost}
    without = pack(versions, servers, PlacementFacts(first.placed, first.placed - its, (), sizes, {lost}))

    assert len({name for _, name in first.placed}) <= 1.25 * 16
    assert (len(first.placed), first.unplaced, again.placed) == (500, {}, first.placed)
    assert (len(without.placed - first.placed), without.unplaced) == (len(its), {})


@pytest.mark.parametrize(("lost", "placed"), [((), {(1, "a")}), ({"a"}, {(1, "a"), (1, "b")})])
def test_a_server_that_had_no_room_lately_is_asked_again_only_where_no_other_place_is_left_to_wait_at(lost, placed):
    here, lately = frozenset({(1, "a")}), {(1, "a"), (1, "b")}
    facts = PlacementFacts(here, (), here, {(1, "a"): GIB}, lost, lately)

    assert pack([a_version(1)], [a_member("a"), a_member("b")], facts).placed == placed
