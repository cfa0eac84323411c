"""The rules of one round, and what holds over many of them whatever happens in between."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from understudy.core.loading.next_action import MAX_TASKS, Action, VersionSeen, next_actions
from understudy.core.loading.state import LoadingState

NEW = VersionSeen(1, "visits", 0, None, is_served=False, has_endpoint=False)
SERVING = replace(NEW, state=LoadingState.AVAILABLE, is_served=True, has_endpoint=True)
UNWANTED = replace(SERVING, rank=None)


def action(seen: VersionSeen, *others: VersionSeen) -> Action | None:
    return next_actions([seen, *others], {}).get(seen.version_id)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (NEW, Action.FETCH),
        (replace(NEW, state=LoadingState.FETCHING), Action.FETCH),
        (replace(NEW, state=LoadingState.LOADING), Action.LOAD),
        (replace(NEW, state=LoadingState.LOADING, is_served=True), Action.VALIDATE),
        (SERVING, None),
        (replace(SERVING, has_endpoint=False), Action.ANNOUNCE),
        (replace(SERVING, is_served=False), Action.RELOAD),
        (replace(NEW, state=LoadingState.QUIESCING, is_served=True), Action.ANNOUNCE),
        (replace(NEW, state=LoadingState.UNLOADING, is_served=True), Action.UNLOAD),
        (replace(NEW, state=LoadingState.UNLOADING), Action.END),
        (replace(NEW, state=LoadingState.END), Action.FETCH),
        (replace(NEW, is_served=True), Action.UNLOAD),
        (replace(NEW, is_served=True, has_endpoint=True), Action.FETCH),
        (replace(NEW, is_served=True, has_endpoint=True, may_withdraw=False), Action.FETCH),
        (replace(NEW, state=LoadingState.UNLOADING, is_served=True, has_endpoint=True), Action.FETCH),
        (replace(NEW, state=LoadingState.LOADING, is_served=True, has_endpoint=True), Action.VALIDATE),
        (replace(NEW, state=LoadingState.ERROR), None),
        (replace(NEW, state=LoadingState.ERROR, may_retry=True), Action.FETCH),
    ],
)
def test_what_a_wanted_version_needs(seen, expected):
    assert action(seen) is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (UNWANTED, Action.WITHDRAW),
        (replace(UNWANTED, state=LoadingState.QUIESCING, has_endpoint=False), None),
        (replace(UNWANTED, state=LoadingState.QUIESCING, has_endpoint=False, is_quiet=True), Action.UNLOAD),
        (replace(UNWANTED, state=LoadingState.QUIESCING, is_quiet=True), Action.WITHDRAW),
        (replace(UNWANTED, state=LoadingState.UNLOADING, has_endpoint=False), Action.UNLOAD),
        (replace(UNWANTED, state=LoadingState.UNLOADING, has_endpoint=False, is_served=False), Action.END),
        (replace(NEW, rank=None, state=LoadingState.LOADING), Action.UNLOAD),
        (replace(NEW, rank=None, state=LoadingState.FETCHING), Action.END),
        (replace(NEW, rank=None, state=LoadingState.ERROR), Action.END),
        (replace(NEW, rank=None, state=LoadingState.ERROR, is_served=True), None),
        (replace(NEW, rank=None, state=LoadingState.ERROR, is_served=True, may_retry=True), Action.UNLOAD),
        (replace(NEW, rank=None, state=LoadingState.END), None),
        (replace(NEW, rank=None, state=LoadingState.END, is_over=True), Action.FORGET),
        (replace(NEW, rank=None), None),
        (replace(NEW, rank=None, is_served=True), Action.UNLOAD),
        (replace(NEW, rank=None, has_endpoint=True), Action.WITHDRAW),
        (replace(UNWANTED, may_withdraw=False), None),
        (replace(UNWANTED, state=None, may_withdraw=False), None),
        (replace(UNWANTED, state=LoadingState.QUIESCING, is_quiet=True, may_withdraw=False), None),
        (replace(UNWANTED, has_endpoint=False, may_withdraw=False), Action.WITHDRAW),
    ],
)
def test_what_an_unwanted_version_needs(seen, expected):
    assert action(seen) is expected


def test_the_last_available_version_of_a_model_stays_until_a_wanted_one_is_available():
    newer = replace(NEW, version_id=2, state=LoadingState.LOADING)
    other_model = replace(newer, model_name="churn")

    assert action(UNWANTED, newer) is None
    assert action(UNWANTED, other_model) is Action.WITHDRAW
    assert action(UNWANTED, replace(SERVING, version_id=2)) is Action.WITHDRAW


def test_of_several_unwanted_ones_only_the_newest_waits_for_the_wanted_one():
    newer = replace(UNWANTED, version_id=2)

    assert next_actions([UNWANTED, newer, replace(NEW, version_id=3)], {}) == {1: Action.WITHDRAW, 3: Action.FETCH}


def test_the_champion_is_loaded_before_what_is_only_asked_for():
    many = [replace(NEW, version_id=number, rank=7 - number, state=LoadingState.LOADING) for number in range(1, 8)]

    assert next_actions(many, {}) == {7: Action.LOAD}


def test_a_version_with_a_task_under_way_gets_no_other_and_its_kind_has_room_for_so_many_less():
    fetches = [replace(NEW, version_id=number) for number in range(1, 6)]

    assert next_actions(fetches, {1: Action.FETCH}) == {2: Action.FETCH}
    assert next_actions(fetches, {1: Action.FETCH, 9: Action.FETCH}) == {}


IDLE = replace(UNWANTED, idle_seconds=60.0)


def test_an_idle_version_stays_while_it_is_available_and_is_never_loaded():
    assert action(IDLE) is None
    assert action(replace(IDLE, is_served=False)) is Action.WITHDRAW
    assert action(replace(IDLE, state=LoadingState.LOADING, has_endpoint=False)) is Action.UNLOAD
    assert action(replace(IDLE, state=None, is_served=False, has_endpoint=False)) is None
    assert action(replace(IDLE, state=LoadingState.QUIESCING, has_endpoint=False, is_quiet=True)) is Action.UNLOAD


def test_of_idle_versions_the_one_goes_first_that_was_not_called_for_longest_and_the_next_once_it_has_gone():
    idle = [
        replace(IDLE, version_id=number, idle_seconds=float(seconds)) for number, seconds in ((2, 5), (3, 90), (4, 7))
    ]
    leaving = replace(idle[1], state=LoadingState.QUIESCING, has_endpoint=False)

    assert next_actions([SERVING, *idle], {}) == {}
    assert next_actions([SERVING, *idle], {}, needs_room=True) == {3: Action.WITHDRAW}
    assert next_actions([SERVING, idle[0], leaving, idle[2]], {}, needs_room=True) == {}
    assert next_actions([SERVING, idle[0], idle[2]], {}, needs_room=True) == {4: Action.WITHDRAW}
    assert next_actions([SERVING], {}, needs_room=True) == {}


def test_without_idle_ones_a_version_gives_way_that_stays_for_its_model_alone():
    coming = replace(NEW, version_id=9, state=LoadingState.ERROR)
    other = replace(IDLE, version_id=2, model_name="churn")

    assert next_actions([coming, UNWANTED], {}) == {}
    assert next_actions([coming, UNWANTED, other], {}, needs_room=True) == {2: Action.WITHDRAW}
    assert next_actions([coming, UNWANTED], {}, needs_room=True) == {1: Action.WITHDRAW}


@dataclass
class Held:
    """One version in the simulated world."""

    model_name: str
    wanted: bool = False
    idle: bool = False
    state: LoadingState | None = None
    endpoint: bool = False


@dataclass
class World:
    """A server, the records of its agent, and what the leader wants."""

    versions: dict[int, Held] = field(default_factory=dict)
    served: set[int] = field(default_factory=set)

    def seen(self) -> list[VersionSeen]:
        return [
            VersionSeen(
                number,
                held.model_name,
                0 if held.wanted else None,
                held.state,
                is_served=number in self.served,
                has_endpoint=held.endpoint,
                may_retry=True,
                is_quiet=True,
                is_over=False,
                idle_seconds=float(number) if held.idle and not held.wanted else None,
            )
            for number, held in self.versions.items()
        ]


class Rounds(RuleBasedStateMachine):
    """Wishes change, tasks succeed, fail and are cut off, and the server is restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World({number: Held("visits" if number % 2 else "churn") for number in range(1, 7)})
        self.busy: dict[int, Action] = {}
        self.needs_room = False

    @rule(number=st.integers(1, 6), wanted=st.booleans())
    def wish(self, *, number: int, wanted: bool) -> None:
        self.world.versions[number].wanted = wanted

    @rule(number=st.integers(1, 6), idle=st.booleans())
    def rest(self, *, number: int, idle: bool) -> None:
        self.world.versions[number].idle = idle

    @rule(needs_room=st.booleans())
    def fill(self, *, needs_room: bool) -> None:
        self.needs_room = needs_room

    @rule()
    def restart_server(self) -> None:
        self.world.served.clear()

    @rule()
    def crash(self) -> None:
        self.busy.clear()

    @precondition(lambda self: self.busy)
    @rule(succeeds=st.booleans(), data=st.data())
    def end_a_task(self, *, succeeds: bool, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.busy)))
        self.finish(number, self.busy.pop(number), succeeds=succeeds)

    @rule()
    def begin_a_round(self) -> None:
        available = {one.model_name for one in self.world.seen() if one.is_available}
        waiting = {one.model_name for one in self.world.seen() if one.rank is not None and not one.is_available}
        for number, due in next_actions(self.world.seen(), self.busy, needs_room=self.needs_room).items():
            self.begin(number, due)
        # A model that was served and has a wanted version on its way is served still, while there is room for both.
        left = {one.model_name for one in self.world.seen() if one.is_available}
        assert self.needs_room or (available & waiting) <= left

    def begin(self, number: int, due: Action) -> None:
        held = self.world.versions[number]
        if due is Action.UNLOAD:
            assert not held.endpoint
            held.state = LoadingState.UNLOADING
        if due is Action.FETCH:
            held.state = LoadingState.FETCHING
        if due in MAX_TASKS:
            self.busy[number] = due
        else:
            self.finish(number, due, succeeds=True)

    def finish(self, number: int, done: Action, *, succeeds: bool) -> None:
        held = self.world.versions[number]
        match done:
            case Action.ANNOUNCE | Action.VALIDATE if succeeds and held.wanted:
                # A server that is restarted while it is asked is found out in the next round.
                assert number in self.world.served or done is Action.VALIDATE
                held.state, held.endpoint = LoadingState.AVAILABLE, True
            case Action.WITHDRAW:
                held.state, held.endpoint = LoadingState.QUIESCING, False
            case Action.RELOAD:
                held.state, held.endpoint = LoadingState.FETCHING, False
            case Action.END:
                held.state = LoadingState.END
            case Action.FORGET:
                held.state = None
            case _ if not succeeds:
                held.state = LoadingState.ERROR
            case Action.FETCH:
                held.state = LoadingState.LOADING
            case Action.LOAD:
                self.world.served.add(number)
            case Action.UNLOAD:
                self.world.served.discard(number)

    @invariant()
    def bounded_tasks(self) -> None:
        running = list(self.busy.values())
        assert all(running.count(kind) <= most for kind, most in MAX_TASKS.items())

    def teardown(self) -> None:
        """Left alone, it ends: what is wanted is loaded and has an endpoint, and nothing else does.

        The leader takes the marks of idle versions away after a while.
        """
        for held in self.world.versions.values():
            held.idle = False
        for _ in range(60):
            for number in list(self.busy):
                self.finish(number, self.busy.pop(number), succeeds=True)
            self.begin_a_round()
        wanted = {number for number, held in self.world.versions.items() if held.wanted}
        assert self.world.served == wanted
        assert {number for number, held in self.world.versions.items() if held.endpoint} == wanted


@pytest.mark.deep
def test_whatever_happens_no_promise_is_broken_and_left_alone_what_is_wanted_is_served():
    run_state_machine_as_test(Rounds, settings=settings(max_examples=20, stateful_step_count=25, deadline=None))
