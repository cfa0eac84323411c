"""Which wanted version leaves for another one of its model, on one server and in a group of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.giving_way import Transition, with_those_that_leave
from understudy.core.loading.next_action import Action, VersionSeen, next_actions
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import RANK, Why

CHAMPION, BEFORE, ASKED = RANK[Why.CHAMPION], RANK[Why.PREVIOUS_CHAMPION], RANK[Why.ASKED]
SERVING = VersionSeen(
    1, "visits", CHAMPION, LoadingState.AVAILABLE, is_served=True, has_endpoint=True, memory_bytes=10, is_elsewhere=True
)
NEXT = VersionSeen(2, "visits", ASKED, LoadingState.ERROR, is_served=False, has_endpoint=False)
SHORT = {2: 10}


def leaves(
    *seen: VersionSeen, transition: Transition = Transition.RESOURCE, missing: Mapping[int, int] = SHORT
) -> bool:
    """Whether the first one, which is wanted, is treated as if it were not."""
    return with_those_that_leave(seen, missing, transition, tried=missing)[0].rank is None


def test_a_version_leaves_for_the_next_one_of_its_model_where_the_server_says_so_and_another_server_has_it():
    assert leaves(SERVING, NEXT)
    assert not leaves(SERVING, NEXT, transition=Transition.AVAILABILITY)
    assert not leaves(replace(SERVING, is_elsewhere=False), NEXT)
    assert not leaves(SERVING, replace(NEXT, model_name="churn"))


def test_nothing_leaves_that_would_not_make_enough_room_or_while_an_idle_one_can():
    idle = replace(SERVING, version_id=3, model_name="churn", rank=None, idle_seconds=5.0)

    assert not leaves(SERVING, NEXT, missing={2: 11})
    assert not leaves(SERVING, NEXT, missing={})
    assert not leaves(SERVING, NEXT, idle)


def test_one_server_is_enough_for_a_version_that_is_less_important():
    assert not leaves(SERVING, replace(NEXT, is_elsewhere=True))
    assert leaves(replace(SERVING, rank=BEFORE), replace(NEXT, rank=CHAMPION, is_elsewhere=True))


@pytest.mark.parametrize("transition", Transition)
def test_a_champion_before_leaves_once_its_time_is_over_and_nothing_leaves_for_one(transition):
    before = replace(SERVING, rank=BEFORE, is_elsewhere=False, has_had_its_time=True)

    assert leaves(before, NEXT, transition=transition)
    assert not leaves(replace(before, has_had_its_time=False), NEXT, transition=transition)
    assert not leaves(SERVING, replace(NEXT, rank=BEFORE), transition=transition)


@pytest.mark.parametrize("state", [LoadingState.QUIESCING, LoadingState.END, LoadingState.ERROR])
def test_what_has_begun_to_leave_stays_away_until_the_next_load_was_tried(state):
    gone = replace(SERVING, state=state, has_endpoint=False)

    going = with_those_that_leave([gone, NEXT], SHORT, Transition.RESOURCE, tried=())
    tried = with_those_that_leave([gone, NEXT], SHORT, Transition.RESOURCE, tried=SHORT)

    assert [one.rank for one in going] == [None, ASKED]
    assert [one.rank for one in tried] == [CHAMPION, ASKED]


def test_what_leaves_for_one_version_does_not_come_back_since_one_of_another_model_found_no_room():
    gone = replace(SERVING, state=LoadingState.END, is_served=False, has_endpoint=False)
    other = replace(NEXT, version_id=5, model_name="churn")

    left = with_those_that_leave([gone, NEXT, other], {2: 10, 5: 10}, Transition.RESOURCE, tried={5})

    assert [one.rank for one in left] == [None, ASKED, ASKED]


def test_of_several_the_least_important_one_leaves():
    before = replace(SERVING, version_id=3, rank=BEFORE)

    left = with_those_that_leave([SERVING, before, NEXT], SHORT, Transition.RESOURCE, tried=SHORT)

    assert [one.version_id for one in left if one.rank is None] == [3]


@dataclass
class Server:
    """One of a group, with what its agent knows."""

    room: int
    states: dict[int, LoadingState | None] = field(default_factory=dict)
    missing: dict[int, int] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)

    def loaded(self) -> set[int]:
        """Return what takes room."""
        taking = (LoadingState.AVAILABLE, LoadingState.QUIESCING, LoadingState.UNLOADING)
        return {number for number, state in self.states.items() if state in taking}

    def has(self, number: int) -> bool:
        """Whether callers may call a version there."""
        return self.states.get(number) is LoadingState.AVAILABLE


class Group:
    """Servers of one group, whose agents make rounds in turn; each version of the one model takes 1 of the room."""

    def __init__(self, servers: int, room: int, transition: Transition) -> None:
        self.servers = [Server(room) for _ in range(servers)]
        self.transition = transition
        self.ranks: dict[int, int] = {1: CHAMPION}
        self.has_had_its_time = False
        self.is_started = False

    def run(self, rounds: int = 30) -> None:
        """Let every agent make so many rounds."""
        for _ in range(rounds):
            for server in self.servers:
                self.round(server)
        self.is_started = True

    def round(self, server: Server) -> None:
        """Make one round of one agent, and check what must hold after it."""
        tried = server.tried.intersection(server.missing)
        seen = with_those_that_leave(self.seen(server), server.missing, self.transition, tried)
        served = {one.version_id: one.rank is not None for one in self.seen(server)}
        due = next_actions(seen, {}, needs_room=bool(tried))
        if Action.WITHDRAW in due.values():
            server.tried.clear()
        for number, action in due.items():
            self.carry_out(server, number, action, is_wanted=served[number])
        if self.is_started:
            champion = next(number for number, rank in self.ranks.items() if rank == CHAMPION)
            assert any(one.has(champion) for one in self.servers)
            assert sum(not any(map(one.has, one.states)) for one in self.servers) <= 1

    def seen(self, server: Server) -> list[VersionSeen]:
        return [
            VersionSeen(
                number,
                "visits",
                self.ranks.get(number),
                server.states.get(number),
                is_served=number in server.loaded(),
                has_endpoint=server.has(number),
                may_retry=True,
                is_quiet=True,
                memory_bytes=1,
                is_elsewhere=any(other.has(number) for other in self.servers if other is not server),
                has_had_its_time=self.ranks.get(number) == BEFORE and self.has_had_its_time,
            )
            for number in {*self.ranks, *server.states}
        ]

    def carry_out(self, server: Server, number: int, action: Action, *, is_wanted: bool) -> None:
        others = [one for one in self.servers if one is not server]
        match action:
            case Action.FETCH:
                server.states[number] = LoadingState.LOADING
            case Action.LOAD if len(server.loaded()) >= server.room:
                server.states[number] = LoadingState.ERROR
                if not any(server.states[one] is not LoadingState.AVAILABLE for one in server.loaded()):
                    server.missing[number] = 1
                    server.tried.add(number)
            case Action.LOAD:
                server.states[number] = LoadingState.AVAILABLE
                server.missing.pop(number, None)
                server.tried.clear()
            case Action.WITHDRAW:
                is_last = self.ranks.get(number) == CHAMPION and not any(one.has(number) for one in others)
                has_its_turn = not is_wanted or all(any(map(one.has, self.ranks)) for one in others)
                if not is_last and (has_its_turn or self.transition is Transition.AVAILABILITY):
                    server.states[number] = LoadingState.QUIESCING
            case Action.UNLOAD:
                server.states[number] = LoadingState.UNLOADING
                server.states[number] = LoadingState.END
            case _:
                server.states[number] = LoadingState.END

    def places(self, number: int) -> int:
        """Return how many servers have a version."""
        return sum(server.has(number) for server in self.servers)


@given(servers=st.integers(2, 5))
def test_in_a_group_with_room_for_one_the_next_version_gets_one_server_and_then_all_but_the_way_back(servers):
    group = Group(servers, 1, Transition.RESOURCE)
    group.run()
    assert group.places(1) == servers

    group.ranks[2] = ASKED
    group.run()
    assert (group.places(1), group.places(2)) == (servers - 1, 1)

    group.ranks = {1: BEFORE, 2: CHAMPION}
    group.run()
    assert (group.places(1), group.places(2)) == (1, servers - 1)

    group.has_had_its_time = True
    group.run()
    assert (group.places(1), group.places(2)) == (0, servers)


@given(servers=st.integers(1, 4))
def test_a_group_with_room_for_two_changes_its_champion_again_and_again(servers):
    group = Group(servers, 2, Transition.AVAILABILITY)
    for number in range(1, 8):
        group.ranks[number] = ASKED if number > 1 else CHAMPION
        group.has_had_its_time = True
        group.run()
        assert group.places(number) == servers
        group.ranks = {number - 1: BEFORE, number: CHAMPION} if number > 1 else {1: CHAMPION}
        group.has_had_its_time = False
        group.run()
        assert group.places(number) == servers
        assert number == 1 or group.places(number - 1) == servers


def test_a_champion_whose_last_server_died_takes_the_place_that_it_gave_up():
    group = Group(2, 1, Transition.RESOURCE)
    group.run()
    group.ranks[2] = ASKED
    group.run()
    left, died = sorted(group.servers, key=lambda server: server.has(1))

    group.servers.remove(died)
    group.is_started = False  # until it is loaded again no server has it
    group.run()

    assert left.has(1)
    assert not left.has(2)
