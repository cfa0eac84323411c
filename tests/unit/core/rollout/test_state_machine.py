"""The rollout's state machine: examples of a whole life, and laws over any sequence of ticks."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.alerts.alerts import AlertAction, AlertKind
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.entities.worst_entities import EntityCount, FailingEntity
from understudy.core.canary.slices.failing_slices import FailingSlice, SliceCheck, SliceCount
from understudy.core.rollout.actions import (
    Alert,
    AskGate,
    PolicyAction,
    PolicySeen,
    Promote,
    RetireOld,
    RollBack,
    SetWeight,
    WarmUp,
)
from understudy.core.rollout.freeze import read_freeze
from understudy.core.rollout.plan import LADDER, NAMED_PLANS, Approver, Gate, GatePlace, RolloutPlan, Step, Strategy
from understudy.core.rollout.state import (
    Command,
    CommandKind,
    GateAnswer,
    GateRecord,
    Observation,
    Phase,
    Transition,
    WaitingFor,
    WarmUpResult,
    new_rollout_state,
    state_from_json,
    state_to_json,
)
from understudy.core.rollout.state_machine import WARM_UP_SECONDS, next_step

START = 1_000_000.0
ID = 7
PLAN = RolloutPlan(
    (Step(2, 100, 50), Step(10, 200, 100), Step(50, 300, 200), Step(100, 0, 0)),
    maximum_seconds=1_000,
    keep_warm_seconds=600,
)
GATED = replace(PLAN, gates=dict.fromkeys(GatePlace, Gate(Approver.ANYONE)))
SERVED = replace(PLAN, gates=dict.fromkeys(GatePlace, Gate(http="quality")))
POLICY_ACTIONS = (SetWeight, Promote, RollBack)
PASSED = WarmUpResult(passed=True)
FINE = Decision(Verdict.ADVANCE, "nothing got worse")
BAD = Decision(Verdict.ROLL_BACK, "error rate 3.1x")
EARLY = Decision(Verdict.HOLD, "could so far have seen only 2.3x")


@dataclass
class World:
    """A policy, a rollout, and an executor that carries transitions out and may die in between."""

    plan: RolloutPlan = PLAN
    now: float = START

    def __post_init__(self) -> None:
        self.policy = PolicySeen("1", "2", 0, generation=40, rollout_id=ID)
        self.state = new_rollout_state(ID, "visits", self.plan, self.policy, self.now)
        self.applied: list[PolicyAction] = []
        self.alerts: list[Alert] = []
        self.retired: list[str] = []

    def look(self, after_seconds: float = 0.0, **seen: Any) -> Observation:
        self.now += after_seconds
        usual: dict[str, Any] = {"warm_up": PASSED, "proxies": 6, "proxies_on_generation": 6, "requests": 10**6}
        return Observation(now=self.now, policy=self.policy, **{**usual, **seen})

    def tick(self, after_seconds: float = 0.0, *, dies: str = "", **seen: Any) -> Transition:
        transition = next_step(self.state, self.look(after_seconds, **seen))
        if dies == "before storing":
            self.carry_out(transition)
            return transition
        self.state = transition.state
        if dies != "after storing":
            self.carry_out(transition)
        return transition

    def by_hand(self, **changes: Any) -> None:
        self.policy = self.policy._replace(**changes)._replace(generation=self.policy.generation + 1)

    def carry_out(self, transition: Transition) -> None:
        for action in transition.actions:
            if isinstance(action, POLICY_ACTIONS):
                self._change(action)
            elif isinstance(action, RetireOld):
                self.retired.append(action.version)
            elif isinstance(action, Alert):
                self.alerts.append(action)

    def _change(self, action: PolicyAction) -> None:
        if action.applies_to(self.policy):
            self.policy = action.result(self.policy)
            self.applied.append(action)


def on_the_way(weight_percent: int = 10, plan: RolloutPlan = PLAN) -> World:
    """Return a world in which the rollout has just entered this step."""
    world = World(plan)
    world.tick()
    while world.policy.weight_percent < weight_percent:
        world.tick(1_000 if plan is not PLAN else 400, decision=FINE)
    return world


def promoted() -> World:
    world = on_the_way(50)
    world.tick(400, decision=FINE)
    assert world.state.phase is Phase.PROMOTING
    return world


def kinds_of(transition: Transition, action: AlertAction) -> list[AlertKind]:
    return [said.kind for said in transition.actions if isinstance(said, Alert) and said.action is action]


def policy_actions(transition: Transition) -> list[PolicyAction]:
    return [action for action in transition.actions if isinstance(action, POLICY_ACTIONS)]


# -- a whole life ------------------------------------------------------------------------------------------------------


def test_a_good_challenger_goes_up_the_ladder_becomes_champion_and_the_old_one_is_retired():
    world = World(replace(NAMED_PLANS["default"], maximum_seconds=10**6))
    weights = []

    while not world.state.phase.is_final:
        world.tick(60, decision=FINE)
        weights.append(world.policy.weight_percent)

    assert list(dict.fromkeys(weights)) == [2, 5, 10, 25, 50, 0]
    assert (world.policy.champion, world.policy.challenger) == ("2", None)
    assert world.state.phase is Phase.SUCCEEDED
    assert world.retired == ["1"]
    dwells = [
        after - before for before, after in zip(world.state.step_starts, world.state.step_starts[1:], strict=False)
    ]
    assert dwells == [step.dwell_seconds for step in LADDER[:-1]]


def test_nothing_goes_to_a_challenger_before_its_warm_up_passed():
    world = World()

    first = world.tick(warm_up=None)
    second = world.tick(30, warm_up=WarmUpResult(passed=False, detail="timeout"), decision=FINE)
    third = world.tick(30)

    assert first.actions == second.actions == (WarmUp("2"),)
    assert "timeout" in second.event
    assert policy_actions(third) == [SetWeight(2, 40)]


def test_a_challenger_that_never_warms_up_asks_for_a_person_and_resuming_tries_again():
    world = World()

    waiting = world.tick(WARM_UP_SECONDS, warm_up=WarmUpResult(passed=False, detail="connection refused"))
    resumed = world.tick(60, command=Command(CommandKind.RESUME, "dana"))
    again = world.tick(1, warm_up=None)

    assert waiting.state.waiting_for is WaitingFor.WARM_UP
    assert "connection refused" in waiting.event
    assert kinds_of(waiting, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert kinds_of(resumed, AlertAction.RESOLVE) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert again.actions == (WarmUp("2"),)


def test_scores_unlike_the_champions_ask_for_a_person_at_once_and_the_challenger_gets_no_call():
    world = World()
    differs = WarmUpResult(passed=True, scores="it gives 1 score where the champion gives 170", scores_differ=True)

    waiting = world.tick(warm_up=differs)
    stays = world.tick(60)
    resumed = world.tick(60, command=Command(CommandKind.RESUME, "dana", expects_different_scores=True))
    gone_on = world.tick(1)

    assert waiting.state.waiting_for is stays.state.waiting_for is WaitingFor.WARM_UP
    assert waiting.state.reason == "version 2 had no call yet: it gives 1 score where the champion gives 170"
    assert policy_actions(waiting) == policy_actions(stays) == []
    assert kinds_of(waiting, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert resumed.event == "goes on by dana; different scores are expected"
    assert policy_actions(gone_on) == [SetWeight(2, 40)]


def test_the_first_share_says_how_the_scores_compare():
    world = World()

    begun = world.tick(warm_up=WarmUpResult(passed=True, scores="rank correlation 0.78"))

    assert begun.event.endswith(": the warm-up passed; rank correlation 0.78")


# START is a Monday, 13:46:40 UTC
AFTERNOON = replace(PLAN, freezes=(read_freeze("14:00 - 17:00"),))
UNTIL_FIVE = "frozen until Mon 1970-01-12 17:00 UTC (14:00 - 17:00)"


def test_no_step_is_taken_in_a_freeze_window_and_the_step_ends_with_it():
    world = World(AFTERNOON)
    world.tick()

    held = [world.tick(1_000, decision=FINE), *(world.tick(600, decision=FINE) for _ in range(17))]
    advanced = world.tick(600, decision=FINE)

    assert [policy_actions(one) for one in held] == [[]] * len(held)
    assert {one.event for one in held} == {f"holds at 2 %: {UNTIL_FIVE}"}
    assert policy_actions(advanced) == [SetWeight(10, 41)]


def test_what_the_last_warm_up_failed_with_is_asked_for_before_a_person_is_and_a_minute_without_a_result_is_enough():
    world = World()

    last = world.tick(WARM_UP_SECONDS, warm_up=None)
    without = world.tick(60, warm_up=None)

    assert (last.state.phase, last.actions) == (Phase.PROGRESSING, (WarmUp("2"),))
    assert (without.state.phase, without.state.waiting_for) == (Phase.WAITING, WaitingFor.WARM_UP)


def test_the_event_of_the_first_share_says_by_how_many_proxies_the_version_was_warmed_up():
    by_two = WarmUpResult(passed=True, scores="rank correlation 0.78", proxies=("web-1:7", "web-2:7"))

    begun = World().tick(warm_up=by_two)

    assert begun.event.endswith(": the warm-up passed through each of 2 live proxies; rank correlation 0.78")


def test_a_rollout_that_begins_in_a_freeze_window_warms_up_when_it_is_over_and_has_its_full_time_for_that():
    world = World(replace(PLAN, freezes=(read_freeze("13:00 - 17:00"),)))

    frozen = world.tick(1_000, warm_up=None)
    over = world.tick(10_600, warm_up=None)
    failing = world.tick(60, warm_up=WarmUpResult(passed=False, detail="timeout"))

    assert (frozen.actions, frozen.event) == ((), f"waits with its first step: {UNTIL_FIVE.replace('14', '13')}")
    assert over.actions == failing.actions == (WarmUp("2"),)


def test_a_freeze_window_does_not_count_towards_the_longest_time_of_a_step():
    world = World(AFTERNOON)
    world.tick()

    last_in_it = world.tick(11_500, decision=EARLY)
    not_yet = world.tick(200, decision=EARLY)
    stalled = world.tick(300, decision=EARLY)

    assert [one.state.waiting_for for one in (last_in_it, not_yet, stalled)] == [None, None, WaitingFor.TIME]


def test_in_a_freeze_window_evidence_rolls_back_and_an_operator_promotes():
    worse, wanted = World(AFTERNOON), World(AFTERNOON)
    for world in (worse, wanted):
        world.tick()

    rolled_back = worse.tick(1_000, decision=BAD)
    promoted_by_hand = wanted.tick(1_000, command=Command(CommandKind.PROMOTE, "dana"))

    assert [type(action) for action in policy_actions(rolled_back)] == [RollBack]
    assert policy_actions(promoted_by_hand) == [SetWeight(10, 41)]


def test_a_new_rollout_ends_the_incidents_of_the_one_before_when_its_first_weight_is_set():
    world = World()

    first = world.tick()
    second = world.tick(400, decision=FINE)

    assert kinds_of(first, AlertAction.RESOLVE) == [AlertKind.CANARY_ROLLED_BACK, AlertKind.CHAMPION_REGRESSED]
    assert policy_actions(second) == [SetWeight(10, 41)]
    assert kinds_of(second, AlertAction.RESOLVE) == []


def test_blue_green_flips_at_once_after_the_warm_up_and_keeps_the_old_champion_for_half_an_hour():
    world = World(NAMED_PLANS["blue_green"])

    flipped = world.tick()
    kept = world.tick(1_799)
    over = world.tick(1)

    assert policy_actions(flipped) == [Promote("2", 40)]
    assert (kept.state.phase, kept.actions) == (Phase.PROMOTING, ())
    assert over.state.phase is Phase.SUCCEEDED
    assert world.retired == ["1"]


def test_the_old_champion_is_not_retired_while_a_proxy_may_still_call_it():
    world = promoted()

    held = world.tick(700, proxies_on_generation=5)
    nobody = world.tick(5, proxies=0, proxies_on_generation=0)
    over = world.tick(5)

    assert held.actions == ()
    assert "5 of 6 live proxies" in held.event
    assert (nobody.actions, "no live proxy" in nobody.event) == ((), True)
    assert over.state.phase is Phase.SUCCEEDED


# -- what a step needs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"after_seconds": 199}, "3 m 19 s of 3 m 20 s"),
        ({"requests": 99}, "99 of 100 requests"),
        ({"requests": 0}, "no traffic"),
        ({"proxies_on_generation": 5}, "5 of 6 live proxies"),
        ({"proxies": 0, "proxies_on_generation": 0}, "no live proxy"),
        ({"proxies": 0, "proxies_on_generation": 0, "proxies_hidden": True}, "keeps ProxyInstance locked"),
        ({"decision": None}, "no verdict yet"),
        ({"decision": EARLY}, "could so far have seen only 2.3x"),
    ],
)
def test_a_step_holds_and_says_what_is_missing(seen, said):
    world = on_the_way(10)

    held = world.tick(**{"after_seconds": 200, "decision": FINE, **seen})

    assert (held.state.phase, held.state.weight_percent, held.actions) == (Phase.PROGRESSING, 10, ())
    assert held.event == f"holds at 10 %: {said}" or said in held.event


def test_a_rolling_step_needs_its_time_and_no_proof_but_a_bad_verdict_ends_it():
    world = World(NAMED_PLANS["rolling"])
    world.tick()

    moved = world.tick(60, decision=EARLY, requests=0)
    ended = world.tick(5, decision=BAD)

    assert policy_actions(moved) == [SetWeight(50, 41)]
    assert ended.state.phase is Phase.FAILED


def test_a_step_that_stays_undecided_asks_for_a_person_and_goes_on_for_as_long_again():
    world = on_the_way(10)

    early = world.tick(999, decision=EARLY)
    stalled = world.tick(1, decision=EARLY)
    quiet = world.tick(5, decision=FINE)
    resumed = world.tick(5, command=Command(CommandKind.RESUME, "dana", "waiting for the weekend"))
    still = world.tick(999, decision=EARLY)
    advanced = world.tick(0, decision=FINE)

    assert early.actions == ()
    assert stalled.state.waiting_for is WaitingFor.TIME
    assert kinds_of(stalled, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_STALLED]
    assert "could so far have seen only 2.3x" in stalled.event
    assert quiet.actions == ()
    assert kinds_of(resumed, AlertAction.RESOLVE) == [AlertKind.ROLLOUT_STALLED]
    assert still.state.phase is Phase.PROGRESSING
    assert policy_actions(advanced) == [SetWeight(50, 42)]


def test_a_split_that_is_not_the_policys_asks_for_a_person():
    world = on_the_way(10)

    refused = world.tick(5, decision=Decision(Verdict.INVALID, "13 % of new entities instead of 10 %"))

    assert refused.state.waiting_for is WaitingFor.SPLIT
    assert kinds_of(refused, AlertAction.TRIGGER) == [AlertKind.SAMPLE_RATIO_MISMATCH]


def test_scores_that_are_all_the_same_ask_for_a_person_and_a_bad_version_is_rolled_back_all_the_same():
    world = on_the_way(10)

    waiting = world.tick(5, decision=FINE, refused_scores="it gave 30 calls the same score")
    resumed = world.tick(60, command=RESUME)
    both = on_the_way(10).tick(5, decision=BAD, refused_scores="it gave 30 calls the same score")

    assert waiting.state.waiting_for is WaitingFor.WARM_UP
    assert waiting.state.reason == "version 2 stops at 10 %: it gave 30 calls the same score"
    assert kinds_of(waiting, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert policy_actions(waiting) == []
    assert (resumed.state.phase, resumed.state.weight_percent) == (Phase.PROGRESSING, 10)
    assert both.state.phase is Phase.FAILED


def test_a_challenger_that_fails_single_entities_asks_for_a_person_once_and_moves_nothing():
    world = on_the_way(10)
    counted = EntityCount(((7, 17),), 27, 27, (0,) * 20 + (27,))
    decision = Decision(Verdict.HOLD, "1 entity fails", entities=(FailingEntity(counted, 0.005, 20.0),))

    stopped = world.tick(5, decision=decision)
    still = world.tick(5, decision=decision)
    resumed = world.tick(60, command=RESUME)

    assert (stopped.state.phase, stopped.state.waiting_for) == (Phase.WAITING, WaitingFor.TIME)
    assert stopped.event == "stops at 10 %: 1 entity fails"
    assert kinds_of(stopped, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_STALLED]
    assert policy_actions(stopped) == []
    assert still.actions == ()
    assert resumed.state.phase is Phase.PROGRESSING
    assert kinds_of(resumed, AlertAction.RESOLVE) == [AlertKind.ROLLOUT_STALLED]


def test_a_challenger_that_does_worse_for_a_slice_asks_for_a_person_once_and_moves_nothing():
    world = on_the_way(10)
    figures = ((2_700.0, 24_300.0), (54.0, 580.0))
    counted = SliceCount("category", "gold", SliceCheck.LATENCY, 60.0, 0.1, *figures, 9, 9, (1.0,) * 16)
    decision = Decision(Verdict.HOLD, "category=gold: slower", slices=(FailingSlice(counted, 20.0),))

    stopped = world.tick(5, decision=decision)
    still = world.tick(5, decision=decision)

    assert (stopped.state.phase, stopped.state.waiting_for) == (Phase.WAITING, WaitingFor.TIME)
    assert stopped.event == "stops at 10 %: category=gold: slower"
    assert kinds_of(stopped, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_STALLED]
    assert (policy_actions(stopped), still.actions) == ([], ())


def test_who_lets_a_rollout_go_on_despite_of_the_split_has_it_judged_from_there_on():
    world = on_the_way(10)
    world.tick(5, decision=Decision(Verdict.INVALID, "13 % of new entities instead of 10 %"))

    resumed = world.tick(60, command=RESUME)

    assert resumed.state.phase is Phase.PROGRESSING
    assert resumed.state.split_from == world.now


def test_a_verdict_is_told_once_in_the_words_of_what_was_found():
    place = "visits v2 at 10 % (minute 3)"
    worse, off = on_the_way(10), on_the_way(10)

    ended = worse.tick(1, decision=Decision(Verdict.ROLL_BACK, "error rate 3.1x", place=place))
    stopped = off.tick(1, decision=Decision(Verdict.INVALID, "the challenger met 13 of 100 entities", place=place))
    off.tick(1, command=Command(CommandKind.RESUME, "dana"))
    advanced = off.tick(400, decision=Decision(Verdict.ADVANCE, "nothing found in error rate", place=place))

    assert ended.event == "version 2 rolled back at 10 %: error rate 3.1x"
    assert stopped.event == "stops at 10 %: the challenger met 13 of 100 entities"
    assert advanced.event == "version 2 goes from 10 to 50 %: nothing found in error rate"


# -- taking it back ----------------------------------------------------------------------------------------------------


def test_a_bad_challenger_is_rolled_back_at_the_first_look_whatever_its_dwell_time():
    world = on_the_way(10)

    ended = world.tick(1, decision=BAD, requests=3)

    assert world.policy == PolicySeen("1", "2", 0, 43, ID)
    assert ended.state.phase is Phase.FAILED
    assert ended.event == "version 2 rolled back at 10 %: error rate 3.1x"
    assert kinds_of(ended, AlertAction.TRIGGER) == [AlertKind.CANARY_ROLLED_BACK]


def test_a_bad_verdict_on_a_challenger_that_gets_no_traffic_yet_is_none():
    world = World()

    warming = world.tick(warm_up=None, decision=BAD)

    assert (warming.state.phase, warming.actions) == (Phase.PROGRESSING, (WarmUp("2"),))


def test_a_bad_verdict_counts_more_than_a_step_that_is_still_to_be_entered():
    world = on_the_way(10)
    world.tick(400, decision=FINE, dies="after storing")

    ended = world.tick(5, decision=BAD)

    assert [type(action) for action in policy_actions(ended)] == [RollBack]
    assert world.policy.weight_percent == 0


def test_a_paused_rollout_is_still_guarded():
    world = on_the_way(10)
    world.tick(1, command=Command(CommandKind.PAUSE, "dana"))

    ended = world.tick(1, decision=BAD)

    assert ended.state.phase is Phase.FAILED
    assert world.policy.weight_percent == 0


def test_a_new_champion_that_gets_worse_is_replaced_by_the_old_one_while_that_is_warm():
    world = promoted()

    ended = world.tick(500, decision_after_promotion=BAD)

    assert (world.policy.champion, world.policy.challenger, world.policy.weight_percent) == ("1", "2", 0)
    assert ended.state.phase is Phase.FAILED
    assert kinds_of(ended, AlertAction.TRIGGER) == [AlertKind.CHAMPION_REGRESSED]
    assert world.retired == []


def test_a_rollback_is_told_once_and_asked_for_again_until_the_policy_shows_it():
    world = on_the_way(10)
    world.tick(1, decision=BAD, dies="after storing")

    again = world.tick(5)
    after = world.tick(5, decision=BAD)

    assert [type(action) for action in again.actions] == [RollBack]
    assert world.policy.weight_percent == 0
    assert after.actions == ()


def test_a_rollback_is_not_held_up_by_another_change_of_the_same_moment():
    world = on_the_way(10)
    decided = next_step(world.state, world.look(1, decision=BAD))
    world.by_hand(weight_percent=12)

    (roll_back,) = policy_actions(decided)

    assert roll_back.applies_to(world.policy)
    assert roll_back.result(world.policy).weight_percent == 0
    assert not roll_back.applies_to(world.policy._replace(challenger="3"))


def test_a_weight_that_was_decided_and_never_set_is_asked_for_again_and_its_step_begins_then():
    world = World()
    world.tick(dies="after storing")

    again = world.tick(70)
    early = world.tick(99, decision=FINE)
    advanced = world.tick(1, decision=FINE)

    assert again.actions == (SetWeight(2, 40),)
    assert again.state.phase is Phase.PROGRESSING
    assert early.actions == ()
    assert policy_actions(advanced) == [SetWeight(10, 41)]


def test_a_promotion_that_was_decided_and_never_made_is_asked_for_again_and_the_old_champion_is_warm_from_then_on():
    world = on_the_way(50)
    world.tick(400, decision=FINE, dies="after storing")

    again = world.tick(70)
    kept = world.tick(599)

    assert again.actions == (Promote("2", 43),)
    assert kept.state.phase is Phase.PROMOTING


# -- people ------------------------------------------------------------------------------------------------------------


def test_pausing_and_resuming_keeps_the_step_and_its_start():
    world = on_the_way(10)
    started = world.state.step_started_at

    paused = world.tick(150, command=Command(CommandKind.PAUSE, "dana", "lunch"), decision=FINE)
    held = world.tick(500, decision=FINE)
    world.tick(1, command=Command(CommandKind.RESUME, "dana"))
    advanced = world.tick(0, decision=FINE)

    assert paused.event == "paused by dana: lunch"
    assert kinds_of(paused, AlertAction.TRIGGER) == []
    assert held.actions == ()
    assert world.state.step_starts[-2] == started
    assert policy_actions(advanced) == [SetWeight(50, 42)]


def test_pausing_what_waits_already_does_not_hide_why_it_waits():
    world = on_the_way(10)
    stalled = world.tick(1_000, decision=EARLY)

    paused = world.tick(5, command=Command(CommandKind.PAUSE, "dana"))

    assert paused.state == stalled.state


def test_promoting_by_hand_is_one_step_without_its_time_and_its_proof():
    world = on_the_way(10)

    promoted_once = world.tick(
        1, command=Command(CommandKind.PROMOTE, "dana", "known good"), decision=EARLY, requests=0
    )
    at_the_end = world.tick(1, command=Command(CommandKind.PROMOTE, "dana"), decision=None)

    assert policy_actions(promoted_once) == [SetWeight(50, 42)]
    assert policy_actions(at_the_end) == [Promote("2", 43)]


def test_promoting_by_hand_does_not_save_a_challenger_that_is_worse_or_skip_the_warm_up():
    world, cold = on_the_way(10), World()

    ended = world.tick(1, command=Command(CommandKind.PROMOTE, "dana"), decision=BAD)
    warming = cold.tick(1, command=Command(CommandKind.PROMOTE, "dana"), warm_up=None)

    assert ended.state.phase is Phase.FAILED
    assert warming.actions == (WarmUp("2"),)


@pytest.mark.parametrize("make", [World, on_the_way, promoted], ids=["warming up", "at 10 %", "promoted"])
def test_aborting_puts_everything_back_and_wakes_nobody(make):
    world = make()

    ended = world.tick(1, command=Command(CommandKind.ABORT, "dana", "wrong artifact"))

    assert (world.policy.champion, world.policy.challenger, world.policy.weight_percent) == ("1", "2", 0)
    assert ended.state.phase is Phase.FAILED
    assert "aborted by dana: wrong artifact" in ended.event
    assert kinds_of(ended, AlertAction.TRIGGER) == []


# -- somebody else changes the policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"salt": "another"},
        {"weight_percent": 30},
        {"challenger": "3"},
        {"challenger": "3", "weight_percent": 0},
        {"champion": "3"},
        {"champion": "2", "challenger": None, "weight_percent": 0},
        {"rollout_id": 9},
        {"rollout_id": None},
    ],
)
def test_another_persons_change_stops_the_rollout_which_touches_nothing_and_tells_people_once(change):
    world = on_the_way(10)
    world.by_hand(**change)

    stopped = world.tick(400, decision=FINE)
    later = world.tick(400, decision=FINE)

    assert stopped.state.waiting_for is WaitingFor.CONFLICT
    assert policy_actions(stopped) == []
    assert kinds_of(stopped, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert "was changed outside the rollout" in stopped.event
    assert later.actions == ()


def test_a_change_that_moves_no_call_such_as_a_shadow_stops_nothing():
    world = on_the_way(10)
    world.by_hand()

    held = world.tick(5, decision=EARLY)
    advanced = world.tick(400, decision=FINE)

    assert (held.state.phase, held.actions) == (Phase.PROGRESSING, ())
    assert policy_actions(advanced) == [SetWeight(50, expected_generation=world.policy.generation - 1)]


def test_a_challenger_is_rolled_back_although_somebody_changed_the_shadow_meanwhile():
    world = on_the_way(10)
    world.by_hand()

    ended = world.tick(5, decision=BAD)

    assert ended.state.phase is Phase.FAILED
    assert world.policy.weight_percent == 0


def test_a_conflict_during_the_warm_up_stops_it_and_stays_one_incident():
    world = World()
    world.tick(WARM_UP_SECONDS, warm_up=None)
    world.by_hand(challenger="3")

    stopped = world.tick(5)

    assert stopped.state.waiting_for is WaitingFor.CONFLICT
    assert kinds_of(stopped, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert kinds_of(stopped, AlertAction.RESOLVE) == []


def test_a_policy_older_than_the_rollout_is_somebody_elses():
    world = World()
    world.policy = world.policy._replace(generation=39)

    assert world.tick().state.waiting_for is WaitingFor.CONFLICT


def test_a_policy_that_is_gone_stops_the_rollout_until_it_is_aborted():
    world = on_the_way(10)

    gone = next_step(world.state, replace(world.look(), policy=None))
    still = next_step(gone.state, replace(world.look(), policy=None, command=Command(CommandKind.RESUME, "dana")))
    ended = next_step(gone.state, replace(world.look(), policy=None, command=Command(CommandKind.ABORT, "dana")))

    assert gone.state.waiting_for is WaitingFor.CONFLICT
    assert (still.state, still.actions) == (gone.state, ())
    assert ended.state.phase is Phase.FAILED
    assert policy_actions(ended) == []


def test_resuming_after_another_persons_weight_goes_back_to_the_plans_and_begins_the_step_again():
    world = on_the_way(10)
    world.by_hand(weight_percent=30)
    world.tick(5)

    resumed = world.tick(5, command=Command(CommandKind.RESUME, "dana"))
    early = world.tick(199, decision=FINE)
    advanced = world.tick(1, decision=FINE)

    assert policy_actions(resumed) == [SetWeight(10, 43)]
    assert early.actions == ()
    assert policy_actions(advanced) == [SetWeight(50, 44)]


def test_a_change_that_left_the_traffic_alone_does_not_cost_the_step_its_time():
    world = on_the_way(10)
    world.by_hand()
    world.tick(100)

    resumed = world.tick(50, command=Command(CommandKind.RESUME, "dana"))
    advanced = world.tick(50, decision=FINE)

    assert policy_actions(resumed) == []
    assert policy_actions(advanced) == [SetWeight(50, 43)]


@pytest.mark.parametrize(
    "taken",
    [
        {"challenger": "3"},
        {"champion": "3"},
        {"rollout_id": 9},
        {"champion": "2", "challenger": None, "weight_percent": 0},
    ],
)
def test_a_rollout_whose_roles_were_taken_neither_resumes_nor_rolls_back_what_is_not_its_own(taken):
    world = on_the_way(10)
    world.by_hand(**taken)
    world.tick(5)

    refused = world.tick(5, command=Command(CommandKind.RESUME, "dana"))
    guarded = world.tick(5, decision=BAD, decision_after_promotion=BAD)
    aborted = world.tick(5, command=Command(CommandKind.ABORT, "dana"))

    assert refused.state.phase is Phase.WAITING
    assert "cannot go on" in refused.event
    assert guarded.actions == ()
    assert aborted.state.phase is Phase.FAILED
    assert policy_actions(aborted) == []


def test_after_a_conflict_the_challenger_is_still_guarded_while_the_roles_are_the_rollouts_own():
    world = on_the_way(10)
    world.by_hand(weight_percent=30)

    at_first = world.tick(5, decision=BAD)
    then = world.tick(5, decision=BAD)

    assert policy_actions(at_first) == []
    assert then.state.phase is Phase.FAILED
    assert world.policy.weight_percent == 0


def test_a_conflict_after_the_promotion_is_resumed_into_keeping_the_old_champion_warm():
    world = promoted()
    world.by_hand(salt="another")
    stopped = world.tick(100)

    resumed = world.tick(100, command=Command(CommandKind.RESUME, "dana"))
    over = world.tick(400)

    assert stopped.state.waiting_for is WaitingFor.CONFLICT
    assert (resumed.state.phase, policy_actions(resumed)) == (Phase.PROMOTING, [])
    assert over.state.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("change", [{"weight_percent": 0}, {"weight_percent": 0, "challenger": None}])
def test_weight_0_by_hand_is_a_rollback_by_that_person(change):
    world = on_the_way(10)
    world.by_hand(**change)

    ended = world.tick(5, decision=FINE)

    assert ended.state.phase is Phase.FAILED
    assert policy_actions(ended) == []
    assert ended.event == "rolled back by hand: champion 1, weight 0 in generation 43"
    assert kinds_of(ended, AlertAction.TRIGGER) == []


def test_the_old_champion_put_back_by_hand_ends_a_promotion():
    world = promoted()
    world.by_hand(champion="1", challenger=None)

    ended = world.tick(700)

    assert ended.state.phase is Phase.FAILED
    assert world.retired == []


# -- gates -------------------------------------------------------------------------------------------------------------

APPROVE = Command(CommandKind.APPROVE, "kim", "looked at the charts")


def at_the_gate() -> World:
    """Return a rollout at 10 % that has all that the next step needs but the approval."""
    world = on_the_way(10)
    world.state = replace(world.state, plan=GATED)
    world.tick(200, decision=FINE)
    assert world.state.waiting_for is WaitingFor.APPROVAL
    return world


def test_a_rollout_with_gates_waits_before_each_step_for_a_person_and_takes_it_at_the_tick_after():
    world = World(GATED)
    seen = []

    while not world.state.phase.is_final:
        waited = world.tick(400, decision=FINE)
        seen += kinds_of(waited, AlertAction.TRIGGER)
        if world.state.waiting_for is WaitingFor.APPROVAL:
            assert policy_actions(waited) == []
            approved = world.tick(60, command=APPROVE)
            assert policy_actions(approved) == []
            assert kinds_of(approved, AlertAction.RESOLVE) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
            world.tick(1, decision=FINE)

    assert seen == [AlertKind.ROLLOUT_NEEDS_HUMAN] * len(GATED.steps)
    assert [type(action) for action in world.applied] == [SetWeight, SetWeight, SetWeight, Promote]
    assert world.state.phase is Phase.SUCCEEDED


def test_what_waits_at_a_gate_says_for_what_and_for_whom_with_its_proof():
    world = at_the_gate()

    assert world.state.reason == "version 2 goes from 10 to 50 % once a person approves it: nothing got worse"
    assert world.tick(10**6, decision=FINE).actions == ()


def test_a_version_that_gets_worse_at_a_gate_is_rolled_back_also_once_it_was_approved():
    waits, approved = at_the_gate(), at_the_gate()
    approved.tick(60, command=APPROVE)

    for world in (waits, approved):
        assert [type(action) for action in policy_actions(world.tick(5, decision=BAD))] == [RollBack]


def test_an_approved_step_still_needs_its_proof():
    world = at_the_gate()
    world.tick(60, command=APPROVE)

    held = world.tick(5, decision=EARLY)
    taken = world.tick(5, decision=FINE)

    assert (held.state.phase, policy_actions(held)) == (Phase.PROGRESSING, [])
    assert policy_actions(taken) == [SetWeight(50, 42)]


@pytest.mark.parametrize("kind", [CommandKind.RESUME, CommandKind.PROMOTE])
def test_no_other_command_opens_a_gate(kind):
    world = at_the_gate()

    refused = world.tick(60, command=Command(kind, "dana"))

    assert (refused.state.waiting_for, refused.actions) == (WaitingFor.APPROVAL, ())
    assert refused.event.endswith(f"to {kind} is no approval")


def test_an_approval_ahead_of_the_proof_lets_two_people_promote_without_it():
    world = on_the_way(10)
    world.state = replace(world.state, plan=GATED)

    unmeant = world.tick(5, command=APPROVE, decision=EARLY)
    ahead = world.tick(5, command=APPROVE._replace(is_ahead=True), decision=EARLY)
    taken = world.tick(5, command=Command(CommandKind.PROMOTE, "dana"))
    again = world.tick(5, command=Command(CommandKind.PROMOTE, "dana"))

    assert unmeant.state.approved_step is None
    assert unmeant.event.startswith("not at a gate; ")
    assert ahead.event == "version 2 goes from 10 to 50 %: approved by kim: looked at the charts, ahead of its proof"
    assert policy_actions(taken) == [SetWeight(50, 42)]
    assert policy_actions(again) == []


def test_an_approval_that_no_gate_waits_for_changes_nothing():
    world = on_the_way(10)

    said = world.tick(5, command=APPROVE, decision=EARLY)

    assert (said.state.approved_step, said.actions) == (None, ())
    assert said.event == "no gate before the next step waits for an approval"


def test_an_approval_that_names_its_step_opens_no_other_one():
    world = at_the_gate()

    stale = world.tick(5, command=APPROVE._replace(to_percent=10))
    meant = world.tick(5, command=APPROVE._replace(to_percent=50))

    assert (stale.state.waiting_for, stale.event) == (
        WaitingFor.APPROVAL, "not approved: version 2 goes from 10 to 50 % next",
    )  # fmt: skip
    assert meant.state.approved_step == len(meant.state.step_starts)


def test_an_abort_at_a_gate_takes_the_challenger_back():
    world = at_the_gate()

    ended = world.tick(5, command=Command(CommandKind.ABORT, "dana"))

    assert [type(action) for action in policy_actions(ended)] == [RollBack]
    assert kinds_of(ended, AlertAction.RESOLVE) == [AlertKind.ROLLOUT_NEEDS_HUMAN]


# -- gates over HTTP ---------------------------------------------------------------------------------------------------

PASSES, REFUSES, SILENT = GateAnswer(passes=True), GateAnswer(passes=False, detail="recall"), GateAnswer(None, "down")


def at_the_service() -> World:
    """Return a rollout at 10 % that has all that the next step needs, and waits for the service."""
    world = on_the_way(10)
    world.state = replace(world.state, plan=SERVED)
    world.tick(200, decision=FINE)
    assert world.state.waiting_for is WaitingFor.GATE
    return world


def says(answer: GateAnswer) -> dict[str, Any]:
    return {"gate_answers": {GatePlace.BEFORE_STEP: answer}, "decision": FINE}


def test_a_service_is_asked_without_a_word_to_people_and_the_step_is_taken_at_the_tick_after_it_passes():
    world = at_the_service()

    asks = world.tick(1, decision=FINE)
    passed = world.tick(1, **says(PASSES))
    taken = world.tick(1, decision=FINE)

    assert asks.actions == (AskGate(GatePlace.BEFORE_STEP, "quality"),)
    assert kinds_of(asks, AlertAction.TRIGGER) == []
    assert (policy_actions(passed), passed.event) == ([], "version 2 goes from 10 to 50 %: quality lets it pass")
    assert policy_actions(taken) == [SetWeight(50, 42)]
    assert world.state.gate is None


def test_a_service_that_passed_does_not_replace_the_proof():
    world = at_the_service()
    world.tick(1, **says(PASSES))

    assert policy_actions(world.tick(1, decision=EARLY)) == []


def test_a_refusal_is_told_asked_no_more_and_a_persons_to_decide():
    world = at_the_service()

    refused = world.tick(1, **says(REFUSES))
    later = world.tick(10**5, **says(PASSES))

    assert kinds_of(refused, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert refused.event == "quality refuses that version 2 goes from 10 to 50 %: recall"
    assert refused.state.reason == (
        "version 2 goes from 10 to 50 % once a person approves it in the place of quality, which refused: recall"
    )
    assert (later.state.waiting_for, later.actions) == (WaitingFor.APPROVAL, ())


def test_after_a_refusal_a_person_asks_again_with_a_new_question_or_approves_in_the_services_place():
    again, instead = at_the_service(), at_the_service()
    for world in (again, instead):
        world.tick(1, **says(REFUSES))

    resumed = again.tick(1, command=Command(CommandKind.RESUME, "dana"))
    again.tick(1, decision=FINE)
    asks = again.tick(1, decision=FINE)
    instead.tick(1, command=APPROVE)
    taken = instead.tick(1, decision=FINE)

    assert resumed.state.gate == GateRecord(again.now - 2, asks=2)
    assert asks.actions == (AskGate(GatePlace.BEFORE_STEP, "quality"),)
    assert policy_actions(taken) == [SetWeight(50, 42)]


def test_a_service_that_does_not_answer_never_passes_and_a_person_is_told_once_while_it_is_asked_on():
    world = at_the_service()

    ticks = [world.tick(100, **says(SILENT)) for _ in range(50)]

    assert [kinds_of(tick, AlertAction.TRIGGER) for tick in ticks].count([AlertKind.ROLLOUT_NEEDS_HUMAN]) == 1
    assert all(AskGate(GatePlace.BEFORE_STEP, "quality") in tick.actions for tick in ticks)
    assert world.state.reason.endswith("no answer of quality for 5 m: down")
    assert (world.state.waiting_for, world.policy.weight_percent) == (WaitingFor.APPROVAL, 10)
    late = world.tick(1, **says(PASSES))
    assert kinds_of(late, AlertAction.RESOLVE) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert policy_actions(world.tick(1, decision=FINE)) == [SetWeight(50, 42)]


def test_a_version_that_gets_worse_while_a_service_is_asked_is_rolled_back_whatever_the_service_says():
    world = at_the_service()

    assert [type(action) for action in policy_actions(world.tick(5, **says(PASSES) | {"decision": BAD}))] == [RollBack]


def test_an_answer_that_comes_while_the_rollout_is_held_for_something_else_is_kept_and_moves_nothing():
    world = at_the_service()
    world.by_hand(weight_percent=30)
    world.tick(1, decision=FINE)

    kept = world.tick(1, **says(PASSES))

    assert (kept.state.waiting_for, policy_actions(kept)) == (WaitingFor.CONFLICT, [])
    assert kept.state.gate is not None
    assert kept.state.gate.passed == (GatePlace.BEFORE_STEP,)


@pytest.mark.parametrize("at", [at_the_gate, at_the_service])
def test_a_pause_at_a_gate_holds_whatever_the_gate_comes_to_and_a_resume_comes_back_to_it(at):
    world = at()

    world.tick(1, command=Command(CommandKind.PAUSE, "dana", "wait for me"))
    held = world.tick(1, **says(PASSES))
    waits_for = world.state.waiting_for
    world.tick(1, command=RESUME)
    back = world.tick(1, decision=FINE)

    assert (waits_for, held.actions) == (WaitingFor.PAUSE, ())
    came_in_the_meantime = at is at_the_service
    assert bool(policy_actions(back)) == came_in_the_meantime
    assert (back.state.waiting_for is WaitingFor.APPROVAL) == (not came_in_the_meantime)


def test_an_approval_beside_the_state_machine_as_by_sql_lets_the_rollout_go_on():
    world = at_the_gate()
    world.state = replace(world.state, approved_step=len(world.state.step_starts))

    gone_on = world.tick(1, decision=FINE)

    assert (gone_on.state.phase, policy_actions(gone_on)) == (Phase.PROGRESSING, [])
    assert policy_actions(world.tick(1, decision=FINE)) == [SetWeight(50, 42)]


def test_a_step_with_a_person_and_a_service_waits_for_both_and_asks_meanwhile():
    plan = replace(
        NAMED_PLANS["blue_green"],
        gates={GatePlace.BEFORE_START: Gate(http="quality"), GatePlace.BEFORE_PROMOTION: Gate(Approver.ANOTHER)},
    )
    world = World(plan)

    waits = world.tick()
    asks = world.tick(1)
    passed = world.tick(1, gate_answers={GatePlace.BEFORE_START: PASSES})

    assert kinds_of(waits, AlertAction.TRIGGER) == [AlertKind.ROLLOUT_NEEDS_HUMAN]
    assert asks.actions == (AskGate(GatePlace.BEFORE_START, "quality"),)
    assert (passed.state.waiting_for, policy_actions(passed)) == (WaitingFor.APPROVAL, [])


def test_what_gates_came_to_is_stored_and_read_again():
    world = at_the_service()
    state = replace(world.state, gate=GateRecord(5.0, (GatePlace.BEFORE_STEP,), is_refused=True, asks=3))

    assert state_from_json(orjson.loads(orjson.dumps(state_to_json(state))), state.plan) == state


# -- laws --------------------------------------------------------------------------------------------------------------

COMMANDS = [*(Command(kind, "dana") for kind in CommandKind), Command(CommandKind.APPROVE, "kim", is_ahead=True)]
RESUME = Command(CommandKind.RESUME, "dana")
# Mostly calm: of 1,000 random lives of 25 ticks 278 promote the challenger, 436 meet a conflict, 759 end in a rollback.
CHOICES: dict[str, list[Any]] = {
    "after_seconds": [350.0, 350.0, 250.0, 150.0, 60.0, 1.0, 0.0, 700.0],
    "decision": [*[FINE] * 20, EARLY, EARLY, None, BAD, Decision(Verdict.INVALID, "split")],
    "decision_after_promotion": [None, FINE, EARLY, FINE, BAD],
    "requests": [*[10_000] * 5, 0, 60, 150],
    "proxies_on_generation": [*[6] * 6, 5],
    "proxies": [*[6] * 12, 0],
    "warm_up": [*[PASSED] * 4, None, WarmUpResult(passed=False)],
    "command": [*[None] * 20, *[RESUME] * 10, *COMMANDS],
    "gate_answers": [*[{}] * 4, *[dict.fromkeys(GatePlace, one) for one in (PASSES, PASSES, REFUSES, SILENT)]],
    "dies": [*[""] * 30, "after storing", "after storing", "before storing"],
    "hand": [
        *[None] * 80,
        {},
        {},
        {"weight_percent": 30},
        {"weight_percent": 0},
        {"challenger": "3"},
        {"champion": "3"},
    ],
}


def a_tick(number: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what a tick sees, and what somebody did to the policy before; one number for all, which is quick."""
    tick = {}
    for name, choices in CHOICES.items():
        number, index = divmod(number, len(choices))
        tick[name] = choices[index]
    return tick, tick.pop("hand")


histories = st.lists(st.integers(0, prod(map(len, CHOICES.values())) - 1).map(a_tick), max_size=25)
worlds = st.sampled_from([PLAN, replace(PLAN, strategy=Strategy.ROLLING), NAMED_PLANS["blue_green"], GATED, SERVED])


def lived(plan: RolloutPlan, history: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> list[tuple[Any, ...]]:
    """Return ``(state, policy, observation, transition)`` of each tick, as they were before it was carried out."""
    world, trace = World(plan), []
    for tick, hand in history:
        if hand is not None:
            world.by_hand(**hand)
        state, policy = world.state, world.policy
        transition = world.tick(**tick)
        seen = {name: value for name, value in tick.items() if name not in ("after_seconds", "dies")}
        trace.append((state, policy, Observation(world.now, policy, **{"proxies": 6, **seen}), transition))
    return trace


@given(worlds, histories)
def test_no_tick_skips_a_step_or_makes_two(plan, history):
    for state, _, _, (after, actions, _) in lived(plan, history):
        entered = len(after.step_starts) - len(state.step_starts)
        changes = [action for action in actions if isinstance(action, POLICY_ACTIONS)]

        assert entered in (0, 1)
        assert len(changes) <= 1
        assert after.step_starts[:-1] == state.step_starts[: len(after.step_starts) - 1]


@given(worlds, histories)
def test_the_weight_only_moves_to_the_next_step_or_back_to_its_own_or_to_0(plan, history):
    for state, policy, _, (after, actions, _) in lived(plan, history):
        for action in actions:
            if isinstance(action, SetWeight):
                assert action.weight_percent == after.weight_percent
                assert after.weight_percent in (state.weight_percent, plan.steps[len(state.step_starts)].weight_percent)
            if isinstance(action, Promote):
                assert len(after.step_starts) == len(plan.steps)
            if isinstance(action, RollBack):
                assert action.result(policy).weight_percent == 0


@given(histories)
def test_without_a_persons_word_each_step_has_its_time_its_requests_and_its_verdict(history):
    for state, _, seen, (after, _, _) in lived(PLAN, history):
        if len(after.step_starts) == len(state.step_starts) or not state.step_starts or seen.command is not None:
            continue
        step = PLAN.steps[state.step]

        assert seen.now - state.step_started_at >= step.dwell_seconds
        assert seen.requests >= max(step.min_requests, 1)
        assert seen.decision is not None
        assert seen.decision.verdict is Verdict.ADVANCE
        assert seen.proxies_on_generation == seen.proxies > 0


@given(histories)
def test_no_gate_is_passed_without_an_approval_of_that_step(history):
    for state, _, _, (after, _, _) in lived(GATED, history):
        if len(after.step_starts) > len(state.step_starts):
            assert state.approved_step == len(state.step_starts)
            assert after.approved_step is None


@given(histories)
def test_no_gate_over_http_is_passed_without_its_answer_or_a_persons_approval(history):
    for state, _, _, (after, _, _) in lived(SERVED, history):
        if len(after.step_starts) > len(state.step_starts):
            assert state.approved_step == len(state.step_starts) or (state.gate is not None and state.gate.passed)
            assert after.gate is None


@given(worlds, histories)
def test_a_final_phase_is_never_left(plan, history):
    for state, _, _, (after, actions, _) in lived(plan, history):
        if state.phase.is_final:
            assert after == state
            assert {type(action) for action in actions} <= {RollBack}


@given(worlds, histories)
def test_a_rollback_happens_once_however_often_it_is_asked_for(plan, history):
    world = World(plan)
    for tick, hand in history:
        if hand is not None and not world.state.phase.is_final:
            world.by_hand(**hand)
        world.tick(**tick)

    assert sum(isinstance(action, RollBack) for action in world.applied) <= 1


@given(worlds, histories)
def test_what_somebody_else_changed_is_not_touched_on_seeing_it_unless_a_person_says_so(plan, history):
    for state, policy, seen, (after, actions, _) in lived(plan, history):
        is_ours = policy.is_as(state.policy) or policy.generation == state.policy.generation - 1
        was_told = state.waiting_for is WaitingFor.CONFLICT
        if is_ours or was_told or state.phase.is_final or seen.command is not None:
            continue

        assert not [action for action in actions if isinstance(action, POLICY_ACTIONS)]
        assert after.waiting_for is WaitingFor.CONFLICT or after.phase is Phase.FAILED


@given(worlds, histories)
def test_roles_that_are_not_the_rollouts_own_are_never_touched(plan, history):
    for state, policy, _, (_, actions, _) in lived(plan, history):
        foreign = "3" in (policy.champion, policy.challenger)

        assert not (foreign and [action for action in actions if isinstance(action, POLICY_ACTIONS)]), state


@given(worlds, histories)
def test_the_same_state_and_observation_give_the_same_answer(plan, history):
    for state, _, seen, transition in lived(plan, history):
        assert next_step(state, seen) == transition


@given(worlds, histories)
def test_an_executor_that_dies_after_storing_or_acts_twice_leaves_the_policy_as_decided(plan, history):
    world = World(plan)
    for tick, _ in history:
        dies = "after storing" if tick["dies"] else ""
        transition = world.tick(**{**tick, "dies": dies})
        if not dies:
            world.carry_out(transition)

            assert world.state.is_in_place(world.policy)


@given(worlds, histories)
def test_an_action_carried_out_twice_changes_the_policy_once_and_is_recognised(plan, history):
    for state, policy, _, transition in lived(plan, history):
        for action in transition.actions:
            if isinstance(action, POLICY_ACTIONS) and action.applies_to(policy) and policy != transition.state.policy:
                changed = action.result(policy)

                assert transition.state.is_in_place(changed), state
                if isinstance(action, RollBack):
                    assert action.result(changed)._replace(generation=0) == changed._replace(generation=0)
                else:
                    assert not action.applies_to(changed)


@given(worlds, histories)
def test_people_are_asked_once_and_told_when_it_is_over(plan, history):
    world = World(plan)
    opened: dict[AlertKind, tuple[WaitingFor | None, bool]] = {}
    for tick, hand in history:
        if hand is not None:
            world.by_hand(**hand)
        said = world.tick(**{**tick, "dies": ""}).actions
        # That a service refuses is news to a person who was asked because it had not answered.
        about = world.state.waiting_for, world.state.gate is not None and world.state.gate.is_refused
        for alert in said:
            if isinstance(alert, Alert) and alert.action is AlertAction.TRIGGER:
                assert opened.get(alert.kind) != about
                opened[alert.kind] = about
            if isinstance(alert, Alert) and alert.action is AlertAction.RESOLVE:
                opened.pop(alert.kind, None)
        waits = opened.keys() - {AlertKind.CANARY_ROLLED_BACK, AlertKind.CHAMPION_REGRESSED}
        assert not (waits and world.state.phase is not Phase.WAITING)


@given(worlds, histories)
def test_a_state_that_was_stored_and_read_again_is_the_same(plan, history):
    for _, _, _, transition in lived(plan, history)[-3:]:
        stored = orjson.loads(orjson.dumps(state_to_json(transition.state)))

        assert state_from_json(stored, plan) == transition.state


@pytest.mark.parametrize(
    "policy",
    [
        PolicySeen("1", None, 0, 1, ID),
        PolicySeen("1", "2", 5, 1, ID),
        PolicySeen("1", "2", 0, 1, None),
    ],
)
def test_a_rollout_does_not_begin_on_a_policy_that_is_not_prepared_for_it(policy):
    with pytest.raises(ValueError):
        new_rollout_state(ID, "visits", PLAN, policy, START)


UNVALIDATED = "onnx-0 validated it as onnx 1, and is onnx 2 now"


def test_a_challenger_that_is_not_validated_gets_no_larger_share_until_it_is():
    world = on_the_way()
    said = f"version 2 is not validated ({UNVALIDATED})"

    held = world.tick(10_000 / 100, decision=FINE, unvalidated=UNVALIDATED)
    held = world.tick(800, decision=FINE, unvalidated=UNVALIDATED)
    assert said in held.event
    assert policy_actions(held) == []
    went_on = world.tick(1, decision=FINE)

    assert [action.weight_percent for action in policy_actions(went_on) if isinstance(action, SetWeight)] == [50]


def test_a_challenger_that_is_not_validated_gets_no_first_call_and_a_person_is_asked():
    world = World()

    waits = world.tick(1, unvalidated=UNVALIDATED)
    assert f"not validated ({UNVALIDATED})" in waits.event
    assert policy_actions(waits) == []
    asks = world.tick(WARM_UP_SECONDS, unvalidated=UNVALIDATED)

    assert asks.state.waiting_for is WaitingFor.WARM_UP
    assert f"not validated ({UNVALIDATED})" in asks.state.reason
