"""The checker of histories: a right product passes whatever it does, and each planted fault is found."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds.history import ENTITIES, World, a_history, replaced

from rigs.histories.check import check
from rigs.histories.finding import Finding
from rigs.histories.policy import Policy
from rigs.histories.record import Ended, History, Kind, read_history


def promises(history: History) -> set[str]:
    return {finding.promise for finding in check(history)}


def said(history: History) -> str:
    return "; ".join(map(str, check(history)))


@given(st.integers(0, 10_000))
def test_a_right_product_passes_whatever_its_clients_do(seed):
    assert check(a_history(seed)) == []


def test_histories_of_a_right_product_have_changes_rollbacks_rollouts_and_moved_entities():
    kinds: dict[str, int] = {}
    for seed in range(20):
        history = a_history(seed)
        for record in history.records:
            kinds[record.operation.kind] = kinds.get(record.operation.kind, 0) + (record.ended is Ended.DONE)
        kinds["succeeded"] = kinds.get("succeeded", 0) + sum(event.phase == "SUCCEEDED" for event in history.events)
        kinds["back"] = kinds.get("back", 0) + sum(
            "champion back" in record.answer.get("did", "") for record in history.records
        )

    assert min(kinds.values()) >= 3
    assert {Kind.SET, Kind.ROLL_BACK, Kind.START, Kind.ABORT, Kind.PREDICT, "succeeded", "back"} <= kinds.keys()


def test_a_history_that_was_written_and_read_again_is_checked_the_same(tmp_path):
    history = a_history(7)
    lost = replace(history.records[0], ended=Ended.UNKNOWN, returned=inf, answer={})
    history = replace(history, records=[lost, *history.records[1:]])

    history.write(tmp_path / "7.json")

    assert check(read_history(tmp_path / "7.json")) == check(history)


# -- updates and reads -------------------------------------------------------------------------------------------------


def two_additions() -> World:
    world = World()
    for _ in range(2):
        world.now += 1
        world.do(0, Kind.ADD, add=10)
    return world


def test_a_lost_update_is_found():
    world = two_additions()
    last = world.audit[-1]

    # The second one read what was there before the first one.
    lost = replaced(world.history(), 3, after={**last.after, "shadow_percent": 9})
    lost = replace(lost, policy=lost.audit[-1].after)

    assert "the model says" in said(lost)


def test_an_update_that_was_acknowledged_and_is_in_no_row_is_found():
    world = two_additions()
    history = world.history()

    lost = replace(history.with_audit(history.audit[:-1]), policy=history.audit[-2].after, proxies={"proxy:1": 2})

    assert "has no row in the audit" in said(lost)


def test_a_change_that_its_own_later_answer_does_not_know_is_found():
    world = two_additions()
    second = world.records[1]
    world.records[1] = replace(second, answer={**second.answer, "generation": 2})

    assert "says 2" in said(world.history())


def test_a_stale_read_is_found_and_one_that_overlaps_the_change_is_not():
    world = two_additions()
    world.now += 1
    world.do(1, Kind.READ_POLICY)
    old = {"generation": 2, "policy": vars(world.states[1])}
    stale = replace(world.records[2], answer=old)
    overlapping = replace(stale, invoked=world.records[1].returned - 0.01)

    assert "older than generation 3" in said(replace(world.history(), records=[*world.records[:2], stale]))
    assert check(replace(world.history(), records=[*world.records[:2], overlapping])) == []


def test_a_read_of_what_never_was_is_found():
    world = two_additions()
    world.do(1, Kind.READ_POLICY)
    answer = world.records[2].answer
    world.records[2] = replace(world.records[2], answer={**answer, "policy": vars(Policy("4", generation=3))})

    assert promises(world.history()) == {"answer"}


def test_a_change_that_stands_before_one_that_had_returned_is_found():
    world = two_additions()
    first, second = world.records
    world.records[:] = [
        replace(first, invoked=5.0, returned=5.1),
        replace(second, invoked=1.0, returned=1.1),
    ]

    assert "changed the policy before generation 3" in said(world.history())


def test_a_change_whose_answer_got_lost_may_be_made_late_once_or_never():
    world = two_additions()
    unknown = replace(world.records[1], ended=Ended.UNKNOWN, returned=inf, answer={}, invoked=0.1)
    history = replace(world.history(), records=[world.records[0], unknown])

    assert check(history) == []
    assert check(replace(history.with_audit(history.audit[:2]), policy=history.audit[1].after, proxies={})) == []


def test_an_operation_that_was_carried_out_twice_is_found():
    world = two_additions()
    world.audit[2] = replace(world.audit[2], reason=world.audit[1].reason)

    assert "carried out 2 times" in said(world.history())


def test_what_was_refused_or_abandoned_and_carried_out_is_found():
    world = two_additions()
    refused = replace(world.records[1], ended=Ended.REFUSED, answer={"why": "refused"})

    assert "changed by what must not have" in said(replace(world.history(), records=[world.records[0], refused]))


def test_a_refusal_that_no_moment_explains_is_found():
    world = two_additions()
    world.now += 1
    right = world.do(1, Kind.SET, changes={"challenger_weight": 10})
    wrong = replace(right, operation=replace(right.operation, asked={"changes": {"shadow_percent": 1}}))

    assert check(world.history()) == []
    assert "explains" in said(replace(world.history(), records=[*world.records[:2], wrong]))


def test_a_generation_that_is_said_to_have_moved_and_had_not_is_found():
    world = two_additions()
    world.now += 1
    right = world.do(1, Kind.SET, changes={"shadow_percent": 1}, expected=2)
    wrong = replace(right, operation=replace(right.operation, asked={**right.operation.asked, "expected": 3}))

    assert check(world.history()) == []
    assert "explains" in said(replace(world.history(), records=[*world.records[:2], wrong]))


# -- the audit ---------------------------------------------------------------------------------------------------------


def test_a_missing_row_of_the_audit_is_found():
    history = a_history(3)

    assert [finding.promise for finding in check(history.with_audit([*history.audit[:4], *history.audit[5:]]))] == [
        "audit"
    ]
    assert "missing" in said(history.with_audit([*history.audit[:4], *history.audit[5:]]))


def test_a_missing_last_row_of_the_audit_is_found():
    history = a_history(3)

    assert "the policy is not what" in said(history.with_audit(history.audit[:-1]))


def test_a_doubled_row_of_the_audit_is_found():
    history = a_history(3)

    assert "doubled" in said(history.with_audit([*history.audit[:5], history.audit[4], *history.audit[5:]]))


def test_a_row_that_does_not_follow_from_the_one_before_is_found():
    history = a_history(3)
    before = {**(history.audit[4].before or {}), "shadow_percent": 77}

    assert "does not start from" in said(replaced(history, 5, before=before))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"actor": "mallory"}, "signed mallory via sql, not dana via sql"),
        ({"reason": "op-9-9"}, "was never asked for"),
        ({"reason": ""}, "it is no one's"),
        ({"at": 99.0}, "dated 99.000, outside of its operation"),
    ],
)
def test_a_row_with_another_actor_reason_or_time_is_found(wrong: dict[str, Any], text: str):
    history = two_additions().history()

    assert text in said(replaced(history, 3, **wrong))


def test_a_page_of_the_audit_without_a_row_is_found():
    world = two_additions()
    world.now += 1
    page = world.do(1, Kind.READ_AUDIT)
    entries = page.answer["entries"]
    world.records[2] = replace(page, answer={**page.answer, "entries": [entries[0], entries[2]]})

    assert "was not the newest 2 rows" in said(world.history())


# -- rollbacks ---------------------------------------------------------------------------------------------------------


def after_two_champions() -> World:
    """1 → 2 → 3, each set by hand, then a rollback."""
    world = World()
    for version in ("2", "3"):
        world.now += 1
        world.do(0, Kind.SET, changes={"champion": version})
    world.now += 1
    world.do(1, Kind.ROLL_BACK)
    return world


def undone_by(world: World, **columns: Any) -> History:
    history = world.history()
    after = {**history.audit[-1].after, **columns}
    return replace(replaced(history, len(history.audit), after=after), policy=after)


def test_a_rollback_that_undoes_the_move_before_the_newest_is_found():
    world = after_two_champions()

    assert check(world.history()) == []
    assert world.policy.champion == "2"
    assert "the model says" in said(undone_by(world, champion_version=11))


def test_a_second_rollback_that_brings_the_bad_version_back_is_found():
    world = after_two_champions()
    world.now += 1
    world.do(1, Kind.ADD, add=1)
    again = replace(world.records[-1], operation=replace(world.records[-1].operation, kind=Kind.ROLL_BACK, asked={}))
    world.records[-1] = replace(again, answer={**again.answer, "did": "previous champion back"})
    history = undone_by(world, champion_version=13, shadow_percent=100)

    assert "the model says" in said(history)


def test_a_rollback_that_leaves_the_share_is_found():
    world = World()
    world.now += 1
    world.do(0, Kind.SET, changes={"challenger": "2", "challenger_weight": 30})
    world.now += 1
    world.do(1, Kind.ROLL_BACK)

    assert "the model says" in said(undone_by(world, challenger_weight=30, shadow_percent=99))


def test_a_rollback_that_says_nothing_was_to_be_done_and_was_is_found():
    world = after_two_champions()
    silent = world.records.pop()
    history = world.history()
    short = replace(history.with_audit(history.audit[:-1]), policy=history.audit[-2].after, proxies={})
    nothing = replace(silent, answer={"generation": 3, "changed": False, "did": "nothing"})

    assert "was to be rolled back, and was not" in said(replace(short, records=[*short.records, nothing]))


# -- rollouts ----------------------------------------------------------------------------------------------------------


def under_way(ticks: int = 2) -> World:
    world = World()
    world.now += 1
    world.do(0, Kind.START, version="2")
    for _ in range(ticks):
        world.now += 1
        world.tick()
    return world


def found_in_rollout(world: World) -> list[Finding]:
    return [finding for finding in check(world.history()) if finding.promise == "rollout"]


def test_a_rollout_that_goes_its_way_passes():
    world = under_way(3)
    world.now += 1
    world.finish()

    assert check(world.history()) == []
    assert world.policy.champion == "2"


def test_a_rollout_goes_on_with_the_salt_that_an_operator_set_before_resuming_it():
    world = under_way(1)
    world.now += 1
    world.do(1, Kind.PAUSE)
    world.now += 1
    world.do(1, Kind.SET, changes={"salt": "autumn"})
    world.now += 1
    world.do(1, Kind.RESUME)
    world.now += 1
    world.tick()

    assert check(world.history()) == []


def test_a_step_under_a_salt_that_no_operator_has_accepted_is_found():
    world = under_way(1)
    world.now += 1
    world.do(1, Kind.SET, changes={"salt": "autumn"})
    world.now += 1
    world.tick()

    assert "made" in str(found_in_rollout(world)[0])


def test_a_champion_set_by_hand_is_no_promotion_that_an_abort_takes_back():
    world = under_way(1)
    world.now += 1
    world.do(1, Kind.SET, changes={"champion": "2", "challenger": None, "challenger_weight": 0})
    world.now += 1
    world.do(1, Kind.ABORT)

    assert check(world.history()) == []
    assert world.policy.champion == "2"


def test_a_step_that_is_in_no_policy_is_found():
    world = under_way(1)
    world.audit.pop()
    world.states.pop()

    assert "took a step that the policy has not" in str(found_in_rollout(world)[0])


def test_an_operator_who_makes_a_steps_very_change_has_made_the_step():
    world = under_way(1)
    by_monitor = world.audit.pop()
    world.states.pop()
    world.do(1, Kind.SET, changes={"challenger_weight": 10})
    world.now += 1
    world.tick()

    assert by_monitor.after == world.audit[2].after
    assert check(world.history()) == []


def test_a_step_that_is_skipped_is_found():
    world = under_way(0)
    world.now += 1
    world.rollouts[0] = replace(world.rollouts[0], weights=(50, 100))
    world.tick()
    world.rollouts[0] = replace(world.rollouts[0], weights=(10, 50, 100))

    assert "made" in str(found_in_rollout(world)[0])


def test_a_step_that_is_taken_while_the_rollout_is_paused_is_found():
    world = under_way(1)
    world.now += 1
    world.do(1, Kind.PAUSE)
    world.now += 1
    world.tick()

    assert "went on without an operator" in str(found_in_rollout(world)[0])


def test_a_step_over_an_operators_change_is_found():
    world = under_way(1)
    world.now += 1
    world.do(1, Kind.SET, changes={"challenger_weight": 3})
    world.now += 1
    world.tick()

    assert "made" in str(found_in_rollout(world)[0])


def test_a_step_after_the_end_is_found():
    world = under_way(1)
    world.now += 1
    world.do(1, Kind.ABORT)
    world.now += 1
    world.tick()

    assert any("from FAILED to PROGRESSING" in finding.text for finding in found_in_rollout(world))


def test_a_command_that_was_acknowledged_and_not_obeyed_is_found():
    world = under_way(1)
    world.now += 1
    world.do(1, Kind.PAUSE)
    world.events.pop()

    assert "said to be obeyed" in str(found_in_rollout(world)[0])


def test_an_abort_that_leaves_the_share_is_found():
    world = under_way(2)
    world.now += 1
    world.do(1, Kind.ABORT)
    last = world.audit[-1].after
    world.audit.pop()
    world.audit[-1] = replace(world.audit[-1], after={**last, "challenger_weight": 50, "generation": 5})
    world.states[:] = world.states[:5]

    assert "ended with" in str(found_in_rollout(world)[0])


# -- exposure ----------------------------------------------------------------------------------------------------------


def exposed() -> World:
    """The same entities at 100 %, at 0 % and at 60 %; those at 60 % stay at the challenger."""
    world = World()
    for weight in (60, 80):
        world.now += 1
        world.do(0, Kind.SET, changes={"challenger": "2", "challenger_weight": weight})
        world.now += 1
        world.do(1, Kind.PREDICT, entities=list(ENTITIES))
    return world


def with_calls(world: World, place: int, **values: Any) -> History:
    """Change the calls of an operation that a challenger answered."""
    record = world.records[place]
    calls = [{**call, **values} if call["role"] == "challenger" else call for call in record.answer["calls"]]
    records = list(world.records)
    records[place] = replace(record, answer={"calls": calls})
    return replace(world.history(), records=records)


def test_an_entity_that_moves_back_while_the_share_grows_is_found():
    world = exposed()

    found = check(with_calls(world, 3, version="1", role="champion"))

    assert check(world.history()) == []
    assert any("moved back" in finding.text for finding in found)


def test_an_answer_that_its_policy_does_not_give_is_found():
    assert "the policy says" in said(with_calls(exposed(), 1, version="3"))


def test_an_answer_of_a_policy_that_never_was_or_came_later_is_found():
    world = exposed()

    assert "there never was that generation" in said(with_calls(world, 1, generation=9))
    assert "made afterwards" in said(with_calls(world, 1, generation=3))


def test_a_proxy_that_goes_back_is_found():
    world = exposed()

    assert "the proxy went back" in said(with_calls(world, 3, generation=1))


def test_a_proxy_that_does_not_hear_of_a_change_is_found_unless_something_was_broken():
    world = exposed()
    world.now += 20
    world.do(1, Kind.SET, changes={"challenger_weight": 0})
    world.now += 6
    world.do(2, Kind.PREDICT, entities=["person-1"])
    late = {**world.records[-1].answer["calls"][0], "generation": 3}
    late |= {"version": "2", "role": "challenger"} if late["version"] == "2" else {}
    world.records[-1] = replace(world.records[-1], answer={"calls": [late]})
    was_late = any("s old or more" in finding.text for finding in check(world.history()))
    world.now -= 3
    world.do(3, Kind.FAULT, seconds=2.0)
    is_excused = not any("s old or more" in finding.text for finding in check(world.history()))

    assert was_late
    assert is_excused


def test_a_prediction_that_is_not_once_in_the_log_is_found():
    world = exposed()
    (first, *_) = world.logged
    lost = {key: rows for key, rows in world.logged.items() if key != first}
    doubled = {**world.logged, first: world.logged[first] * 2}

    assert "0 rows are in the prediction log" in said(replace(world.history(), logged=lost))
    assert "2 rows are in the prediction log" in said(replace(world.history(), logged=doubled))


def test_a_proxy_that_does_not_come_to_the_last_policy_is_found():
    assert promises(replace(exposed().history(), proxies={"proxy:1": 2})) == {"end"}
