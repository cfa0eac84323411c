"""Guards: examples of what they do, and laws over any sequence of ticks."""

from dataclasses import dataclass, replace
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.alerts.alerts import AlertAction, AlertKind
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.rollout.actions import Alert, PolicySeen, Promote, RetireOld, RollBack, SetWeight, WarmUp
from understudy.core.rollout.guard_limits import NO_LIMITS, GuardLimits
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import (
    Command,
    CommandKind,
    GuardMode,
    Kind,
    Observation,
    Phase,
    RolloutState,
    Transition,
    WaitingFor,
    state_from_json,
    state_to_json,
)
from understudy.core.rollout.state_machine import next_step

START = 1_000_000.0
PLAN = RolloutPlan((Step(10, 0, 0), Step(100, 0, 0)))
FINE = Decision(Verdict.ADVANCE, "nothing got worse")
BAD = Decision(Verdict.ROLL_BACK, "error rate 3.1x")
EARLY = Decision(Verdict.HOLD, "could so far have seen only 2.3x")
UNEVEN = Decision(Verdict.INVALID, "sample ratio")
BASKET = {"name": "basket", "source": "shop", "promql": 'avg(euros{version="$version"})'}
ALSO = GuardLimits([BASKET], {"name": "quality", "calls_per_minute": 6})
MOVES = (SetWeight, Promote, RetireOld, WarmUp)


@dataclass
class World:
    """A split, or another champion, with its guard; what the transition asks for is carried out."""

    mode: GuardMode = GuardMode.ROLLBACK
    now: float = START
    is_of_champion: bool = False

    def __post_init__(self) -> None:
        split = PolicySeen("1", "2", 10, generation=40, rollout_id=7)
        self.policy: PolicySeen | None = split
        self.state = RolloutState(7, "visits", "1", "2", PLAN, split, START, START, kind=Kind.GUARD)
        if self.is_of_champion:
            self.policy = split._replace(champion="2", challenger=None, weight_percent=0)
            self.state = replace(self.state, policy=self.policy, phase=Phase.PROMOTING, promoted_at=START)
        self.alerts: list[Alert] = []
        self.retired: list[str] = []

    def tick(self, after_seconds: float = 1.0, **seen: Any) -> Transition:
        self.now += after_seconds
        usual: dict[str, Any] = {"guard": self.mode, "guard_seconds": 86_400.0, "proxies": 2}
        transition = next_step(self.state, Observation(now=self.now, policy=self.policy, **{**usual, **seen}))
        self.state = transition.state
        for action in transition.actions:
            if isinstance(action, RollBack) and self.policy is not None and action.applies_to(self.policy):
                # The database takes the guard's id away with the share.
                self.policy = action.result(self.policy)._replace(rollout_id=None)
            elif isinstance(action, Alert):
                self.alerts.append(action)
            elif isinstance(action, RetireOld):
                self.retired.append(action.version)
        return transition

    def by_hand(self, **changes: Any) -> None:
        assert self.policy is not None
        self.policy = self.policy._replace(**changes)._replace(generation=self.policy.generation + 1)

    def told(self, action: AlertAction) -> list[AlertKind]:
        return [alert.kind for alert in self.alerts if alert.action is action]


def watching(mode: GuardMode = GuardMode.ROLLBACK) -> World:
    world = World(mode)
    world.tick()
    return world


def test_a_guard_judges_from_the_moment_in_which_the_split_was_set_and_answers_the_incidents_before_it():
    world = World()

    begun = world.tick(30)

    assert begun.state.step_starts == (START,)
    assert world.told(AlertAction.RESOLVE) == [AlertKind.CANARY_ROLLED_BACK, AlertKind.CHAMPION_REGRESSED]
    assert "version 2 at 10 %" in begun.event


def test_a_guard_is_judged_by_the_metrics_and_the_judge_that_it_began_with():
    world = World()

    begun = world.tick(guard_limits=ALSO)
    world.tick(guard_limits=NO_LIMITS)

    assert begun.event.endswith("and by the metrics basket and the judge quality")
    assert world.state.plan.canary_limits == {"metrics": [BASKET], "judge": ALSO.judge}
    stored = orjson.loads(orjson.dumps(state_to_json(world.state)))
    assert state_from_json(stored, PLAN, Kind.GUARD) == world.state


def test_a_guard_without_either_is_stored_as_releases_before_read_it():
    world = World()

    begun = world.tick(guard_limits=NO_LIMITS)

    assert begun.event.endswith("against version 1")
    assert not state_to_json(world.state).keys() & {"guard_metrics", "guard_judge"}


def test_the_guard_of_a_new_champion_has_neither_metrics_nor_a_judge():
    world = World(is_of_champion=True)

    world.tick(guard_limits=ALSO)

    assert world.state.plan == PLAN
    assert not state_to_json(world.state).keys() & {"guard_metrics", "guard_judge"}


def test_a_share_that_does_worse_goes_back_to_zero_with_an_alert():
    world = watching()

    failed = world.tick(decision=BAD)

    assert world.policy is not None
    assert world.policy.weight_percent == 0
    assert failed.state.phase is Phase.FAILED
    assert "version 2 rolled back at 10 %: error rate 3.1x" in failed.event
    assert world.told(AlertAction.TRIGGER) == [AlertKind.CANARY_ROLLED_BACK]
    assert world.tick(decision=BAD).actions == ()


def test_a_guard_that_may_only_alert_does_so_once_and_changes_nothing():
    world = watching(GuardMode.ALERT)

    transitions = [world.tick(decision=BAD) for _ in range(3)]

    assert world.policy is not None
    assert world.policy.weight_percent == 10
    assert world.told(AlertAction.TRIGGER) == [AlertKind.GUARD_FAILED]
    assert transitions[-1].state.has_failed_guard
    assert not any(isinstance(action, RollBack) for transition in transitions for action in transition.actions)


def test_a_guard_that_has_alerted_takes_the_share_back_when_it_may_and_ends_the_incident():
    world = watching(GuardMode.ALERT)
    world.tick(decision=BAD)
    world.mode = GuardMode.ROLLBACK

    world.tick(decision=BAD)

    assert world.state.phase is Phase.FAILED
    assert AlertKind.GUARD_FAILED in world.told(AlertAction.RESOLVE)


def test_another_share_set_by_hand_is_followed_and_is_no_conflict():
    world = watching()
    world.by_hand(weight_percent=25)

    followed = world.tick(decision=EARLY)
    judged = world.tick(decision=BAD)

    assert followed.state.phase is Phase.PROGRESSING
    assert "from 10 to 25 %" in followed.event
    assert followed.state.step_starts == (START,)
    assert "rolled back at 25 %" in judged.event


def test_a_guard_whose_split_is_gone_is_over_even_if_the_database_could_not_end_it():
    gone: list[dict[str, Any]] = [{"rollout_id": None, "weight_percent": 0}, {"challenger": "3"}, {"rollout_id": 8}]
    for changes in gone:
        world = watching()
        world.by_hand(**changes)

        assert world.tick(decision=BAD).state.phase is Phase.SUCCEEDED

    deleted = watching()
    deleted.policy = None
    assert deleted.tick().state.phase is Phase.SUCCEEDED


def test_a_guard_ends_after_its_time_so_that_the_next_one_begins():
    world = watching()

    over = world.tick(86_400, decision=FINE)

    assert (over.state.phase, over.actions) == (Phase.SUCCEEDED, ())
    assert "new evidence" in over.event


def test_an_uneven_split_alerts_once_is_judged_on_and_goes_on_when_an_operator_says_so():
    world = watching()
    world.tick(decision=UNEVEN)
    world.tick(decision=UNEVEN)
    waited = world.state
    world.tick(command=Command(CommandKind.RESUME, "dana"))

    assert waited.waiting_for is WaitingFor.SPLIT
    assert world.told(AlertAction.TRIGGER) == [AlertKind.SAMPLE_RATIO_MISMATCH]
    assert (world.state.phase, world.state.split_from) == (Phase.PROGRESSING, world.now)
    world.tick(decision=UNEVEN)
    world.tick(decision=BAD)
    assert world.state.phase is Phase.FAILED


def test_a_guard_says_which_command_helps_instead_of_one_that_it_cannot_follow():
    for kind in (CommandKind.PAUSE, CommandKind.PROMOTE, CommandKind.RESUME):
        world = watching()

        answer = world.tick(command=Command(kind, "dana"))

        assert (answer.actions, answer.state.phase) == ((), Phase.PROGRESSING)
        assert "understudy model set" in answer.event


def test_an_aborted_guard_takes_the_share_back():
    world = watching()

    world.tick(command=Command(CommandKind.ABORT, "dana", "enough"))

    assert world.policy is not None
    assert (world.policy.weight_percent, world.state.phase) == (0, Phase.FAILED)


def with_new_champion(mode: GuardMode = GuardMode.ROLLBACK) -> World:
    world = World(mode, is_of_champion=True)
    world.tick()
    return world


def test_another_champion_that_does_worse_is_replaced_by_the_one_before():
    world = with_new_champion()

    failed = world.tick(decision_after_promotion=BAD)

    assert world.policy is not None
    assert (world.policy.champion, world.policy.challenger, world.policy.weight_percent) == ("1", "2", 0)
    assert "version 1 is champion again" in failed.event
    assert world.told(AlertAction.TRIGGER) == [AlertKind.CHAMPION_REGRESSED]


def test_another_champion_whose_guard_only_alerts_stays_and_the_one_before_is_not_retired():
    world = with_new_champion(GuardMode.ALERT)
    world.tick(decision_after_promotion=BAD)

    over = world.tick(1_800, proxies_on_generation=2)

    assert world.policy is not None
    assert world.policy.champion == "2"
    assert world.told(AlertAction.TRIGGER) == [AlertKind.GUARD_FAILED]
    assert (over.state.phase, world.retired) == (Phase.FAILED, [])


def test_the_champion_before_is_kept_warm_for_half_an_hour_and_then_retired_once_no_proxy_calls_it():
    world = with_new_champion()

    kept = world.tick(1_700, proxies_on_generation=2)
    unconfirmed = world.tick(100, proxies_on_generation=1)
    over = world.tick(proxies_on_generation=2)

    assert (kept.actions, unconfirmed.actions) == ((), ())
    assert (over.state.phase, world.retired) == (Phase.SUCCEEDED, ["1"])


def test_a_challenger_that_is_named_beside_a_new_champion_without_a_share_changes_nothing():
    world = with_new_champion()
    world.by_hand(challenger="3")

    world.tick()

    assert world.state.phase is Phase.PROMOTING
    world.tick(decision_after_promotion=BAD)
    assert world.policy is not None
    assert world.policy.champion == "1"


seen = st.fixed_dictionaries(
    {},
    optional={
        "decision": st.sampled_from([FINE, BAD, EARLY, UNEVEN]),
        "command": st.sampled_from([Command(kind, "dana") for kind in CommandKind]),
        "guard": st.sampled_from([GuardMode.ROLLBACK, GuardMode.ALERT, GuardMode.ALERT]),
        "after_seconds": st.sampled_from([1.0, 600.0, 90_000.0]),
        "by_hand": st.sampled_from([{"weight_percent": 0, "rollout_id": None}, {"weight_percent": 50}, {}]),
    },
)


@given(st.lists(seen, max_size=12))
def test_whatever_comes_a_guard_only_ever_takes_a_share_back_and_never_leaves_its_end(ticks):
    world = World()
    ends = set()

    for tick in ticks:
        world.by_hand(**tick.pop("by_hand", {}))
        assert world.policy is not None
        before, weight = world.state, world.policy.weight_percent
        transition = world.tick(**tick)
        assert not any(isinstance(action, MOVES) for action in transition.actions)
        assert world.policy.weight_percent in (weight, 0)
        assert world.policy.champion == "1"
        if weight and not world.policy.weight_percent:
            command = tick.get("command")
            is_aborted = command is not None and command.kind is CommandKind.ABORT
            assert is_aborted or (tick.get("decision") is BAD and tick.get("guard", world.mode) is GuardMode.ROLLBACK)
        if before.phase.is_final:
            ends.add(before.phase)
            assert transition.state == replace(before, policy=transition.state.policy)
    assert len(ends) <= 1
