"""Real time against a total order, and statuses that are known only to an interval of time."""

from math import inf

from rigs.histories.record import Ended, Kind, Operation, Record
from rigs.histories.statuses import StatusChange, Statuses
from rigs.histories.timeline import Placed, Timeline


def a_record(number: int, invoked: float, returned: float) -> Record:
    return Record(Operation(0, number, Kind.SET), invoked, returned, Ended.DONE)


def written(number: int, place: int, invoked: float, returned: float) -> Placed:
    return Placed(a_record(number, invoked, returned), place, place, writes=True)


def read(number: int, place: int, invoked: float, returned: float) -> Placed:
    return Placed(a_record(number, invoked, returned), place, place, writes=False)


def test_operations_that_overlap_may_stand_in_either_order():
    assert list(Timeline([written(1, 3, 0.0, 2.0), written(2, 2, 1.0, 3.0)]).misplaced()) == []


def test_one_that_was_sent_after_another_had_returned_stands_behind_it():
    timeline = Timeline([written(1, 3, 0.0, 1.0), read(2, 2, 2.0, 3.0)])

    assert [found.placed.record.operation.number for found in timeline.misplaced()] == [2]


def test_what_never_returned_is_never_before_anything():
    assert list(Timeline([written(1, 3, 0.0, inf), read(2, 2, 9.0, 9.5)]).misplaced()) == []


def test_an_operation_without_a_place_stands_between_what_returned_before_it_and_what_was_sent_after_it():
    placed = [written(1, 2, 0.0, 1.0), written(2, 5, 4.0, 5.0), read(3, 7, 6.0, 7.0)]

    assert Timeline(placed).interval(a_record(9, 2.0, 3.0), last=8) == (2, 4)
    assert Timeline(placed).interval(a_record(9, 2.0, 4.5), last=8) == (2, 7)
    assert Timeline(placed).interval(a_record(9, 2.0, inf), last=8) == (2, 8)


def test_a_transaction_that_began_after_an_operation_had_returned_is_not_seen_by_it():
    timeline = Timeline([written(1, 2, 0.0, 1.0)], [(3.5, 4)])

    assert timeline.interval(a_record(9, 2.0, 3.0), last=8) == (2, 3)


def test_two_that_have_to_stand_in_one_order_cannot_stand_in_the_other():
    early, late = a_record(1, 1.0, 2.0), a_record(2, 3.0, 4.0)

    def fits(record: Record, place: int) -> bool:
        return place == (4 if record is early else 3)

    found = [record for record, _, _ in Timeline([]).unplaceable([late, early], 5, fits)]

    assert found == [late]


def test_a_version_may_be_either_while_it_is_being_retired_and_is_retired_afterwards():
    statuses = Statuses([StatusChange("3", True, 1.0, 2.0)])

    assert statuses.possible(a_record(1, 0.0, 0.5)) == [frozenset()]
    assert statuses.possible(a_record(1, 1.5, 3.0)) == [frozenset(), frozenset({"3"})]
    assert statuses.possible(a_record(1, 2.5, 3.0)) == [frozenset({"3"})]


def test_two_changes_of_a_status_that_overlap_leave_both_possible():
    statuses = Statuses([StatusChange("3", True, 1.0, 3.0), StatusChange("3", False, 2.0, 4.0)])

    assert statuses.possible(a_record(1, 5.0, 6.0)) == [frozenset(), frozenset({"3"})]
