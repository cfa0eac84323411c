"""What a seed asks for, and how the command line is asked."""

from collections import Counter

from rigs.histories.by_command import arguments_of
from rigs.histories.drawing import CLIENTS, EACH, draw
from rigs.histories.record import Kind, Operation, Way


def test_a_seed_asks_for_the_same_again_and_another_one_for_something_else():
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_four_clients_have_at_least_three_hundred_operations_each_with_a_tag_of_its_own():
    operations = [one for client in draw(1) for one in client]

    assert (CLIENTS, len(operations)) == (4, CLIENTS * EACH)
    assert len(operations) >= 300
    assert len({one.tag for one in operations}) == len(operations)


def test_histories_ask_for_everything_by_every_way_and_break_everything():
    drawn = [one for seed in range(30) for client in draw(seed) for one in client]
    faults = Counter((one.asked["fault"], one.asked["target"]) for one in drawn if one.kind is Kind.FAULT)
    ways = Counter((one.kind, one.way) for one in drawn)

    assert {kind for kind, _ in ways} == set(Kind)
    assert all((Kind.SET, way) in ways and (Kind.ROLL_BACK, way) in ways for way in (Way.SQL, Way.HTTP, Way.CLI))
    assert {("kill", "proxy-a"), ("kill", "monitor-b"), ("stop long", "monitor-a")} <= faults.keys()
    assert {("blackhole", "operators"), ("refuse", "proxy-b"), ("crash", "postgres"), ("fail", "challenger")} <= set(
        faults
    )


def test_a_change_is_a_command_line_with_its_reason_and_its_condition():
    changes = {"challenger": None, "challenger_weight": 0, "fallback": False, "salt": "spring"}
    change = Operation(2, 5, Kind.SET, Way.CLI, {"changes": changes, "expected": 12})

    assert " ".join(arguments_of(change)) == (
        "model set visits --challenger none --weight 0 --no-fallback --salt spring --expect-generation 12"
        " --reason op-2-5 --yes"
    )


def test_commands_to_rollouts_and_versions_are_command_lines():
    lines = {
        kind: " ".join(arguments_of(Operation(0, 1, kind, Way.CLI, {"version": "3"})))
        for kind in (Kind.ROLL_BACK, Kind.START, Kind.PAUSE, Kind.RETIRE, Kind.READ_ROLLOUT)
    }

    assert lines == {
        Kind.ROLL_BACK: "rollback visits --reason op-0-1 --yes",
        Kind.START: "rollout start visits 3 --reason op-0-1 --yes",
        Kind.PAUSE: "rollout pause visits --reason op-0-1 --yes",
        Kind.RETIRE: "version retire visits 3 --reason op-0-1",
        Kind.READ_ROLLOUT: "rollout list visits --limit 1",
    }
