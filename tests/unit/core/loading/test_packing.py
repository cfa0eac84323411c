from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.packing import ADMITTED_RATIO, MAX_MOVES, Member, Packing, Place, SizedVersion, pack

GIB = 2**30
ROOM = int(10 * GIB * ADMITTED_RATIO)

members = st.lists(
    st.builds(
        Member,
        st.sampled_from(["s1", "s2", "s3", "s4"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 100),
        st.sampled_from(["x", "y"]),
        takes_new=st.booleans(),
        is_draining=st.booleans(),
    ),
    unique_by=lambda member: member.name,
)
versions = st.lists(
    st.builds(
        SizedVersion,
        st.integers(1, 12),
        st.sampled_from(["m1", "m2", "m3"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 60),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    unique_by=lambda version: version.version_id,
)
places = st.frozensets(st.tuples(st.integers(1, 12), st.sampled_from(["s1", "s2", "s3", "s4"])))


def a_version(number: int, gibibytes: float = 1, replicas: int = 1, rank: int = 0) -> SizedVersion:
    return SizedVersion(number, f"model-{number}", "cpu", int(gibibytes * GIB), replicas, rank)


def a_member(name: str, zone: str = "", *, takes_new: bool = True, is_draining: bool = False) -> Member:
    return Member(name, "cpu", 10 * GIB, zone, takes_new, is_draining)


def settled(versions: list[SizedVersion], members: list[Member], placed: frozenset[Place] = frozenset()) -> Packing:
    """Tick until nothing changes, with agents that load at once."""
    packing = pack(versions, members, placed, placed)
    for _ in range(100):
        after = pack(versions, members, packing.placed, packing.placed)
        if after.placed == packing.placed:
            return after
        packing = after
    raise AssertionError("it does not come to rest")


@given(versions, members, places)
def test_copies_are_of_the_versions_group_on_different_servers_and_no_new_one_is_where_none_may_be(
    versions, members, placed
):
    known, servers = {one.version_id: one for one in versions}, {one.name: one for one in members}

    found = pack(versions, members, placed, placed).placed

    assert all(servers[name].group_name == known[version_id].group_name for version_id, name in found)
    new = {servers[name] for _, name in found - placed}
    assert all(server.takes_new and not server.is_draining for server in new)


@given(versions, members, places)
def test_what_is_placed_anew_fits_its_server(versions, members, placed):
    known = {one.version_id: one for one in versions}

    found = pack(versions, members, placed, placed).placed

    for member in members:
        has = sum(known[version_id].memory_bytes for version_id, name in found if name == member.name)
        if any(name == member.name for _, name in found - placed):
            assert has <= int(member.memory_bytes * ADMITTED_RATIO)


@given(versions, members, places, places)
def test_a_version_keeps_as_many_available_copies_as_it_should_have_while_it_moves(
    versions, members, placed, available
):
    available &= placed
    servers = {one.name: one for one in members}

    found = pack(versions, members, placed, available).placed

    for version in versions:
        had = {
            name
            for version_id, name in available
            if version_id == version.version_id and name in servers and servers[name].group_name == version.group_name
        }
        has = {name for version_id, name in found if version_id == version.version_id} & had
        assert len(has) >= min(len(had), version.replicas)


@given(versions, members)
def test_what_has_come_to_rest_does_not_move(versions, members):
    found = settled(versions, members)

    assert pack(versions, members, found.placed, found.placed).placed == found.placed
    assert found.moves == 0


@given(versions, members, places)
def test_a_tick_begins_two_moves_at_most_and_one_of_a_model(versions, members, placed):
    assert pack(versions, members, placed, placed).moves <= min(MAX_MOVES, len({one.model_name for one in versions}))


def test_large_versions_come_first_and_each_goes_to_the_fullest_server_that_has_room():
    found = settled(
        [a_version(1, 2), a_version(2, 7), a_version(3, 6), a_version(4, 3)], [a_member("a"), a_member("b")]
    )

    assert found.placed == {(2, "a"), (1, "a"), (3, "b"), (4, "b")}


def test_a_version_for_which_nothing_has_room_is_named_and_the_urgent_ones_have_theirs():
    found = settled([a_version(1, 8, rank=1), a_version(2, 5), a_version(3, 4)], [a_member("a")])

    assert found.placed == {(2, "a"), (3, "a")}
    assert found.unplaced == (1,)


def test_copies_are_in_different_zones_while_there_are_some():
    zones = [a_member("a1", "a"), a_member("a2", "a"), a_member("b1", "b")]

    names = {name for _, name in settled([a_version(1, replicas=2)], zones).placed}

    assert "b1" in names
    assert len(names) == 2


def test_the_versions_of_a_server_that_has_gone_have_a_place_at_the_next_tick():
    versions = [a_version(number) for number in range(15)]
    three = [a_member("a"), a_member("b"), a_member("c")]
    before = settled(versions, three)

    after = pack(versions, three[1:], before.placed, before.placed)

    assert after.unplaced == ()
    assert len(after.placed) == len(versions)
    assert {place for place in before.placed if place[1] != "a"} <= after.placed


def test_a_server_that_drains_is_emptied_two_versions_at_a_time_and_each_is_available_elsewhere_first():
    versions = [a_version(number) for number in range(4)]
    placed = frozenset((number, "a") for number in range(4))
    members = [a_member("a", is_draining=True), a_member("b")]

    first = pack(versions, members, placed, placed)
    assert first.moves == 2
    assert placed < first.placed
    on_its_way = pack(versions, members, first.placed, placed, max_moves=0)
    assert placed < on_its_way.placed  # what is not available yet replaces nothing

    assert settled(versions, members, placed).placed == {(number, "b") for number in range(4)}


def test_a_version_that_has_grown_out_of_its_server_moves_and_the_smaller_one_does():
    placed = frozenset({(1, "a"), (2, "a")})
    grown = [a_version(1, 8), a_version(2, 2)]

    assert settled(grown, [a_member("a"), a_member("b")], placed).placed == {(1, "a"), (2, "b")}


def test_fewer_copies_leave_the_emptiest_server():
    versions = [a_version(1, replicas=2), a_version(2, 5)]
    members = [a_member("a"), a_member("b")]
    before = settled(versions, members)
    (full,) = {name for version_id, name in before.placed if version_id == 2}

    after = settled([replace(versions[0], replicas=1), versions[1]], members, before.placed)

    assert after.placed == {(1, full), (2, full)}
