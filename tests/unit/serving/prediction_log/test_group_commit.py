"""Rows and answers of one group: which rows are written when, and what each call is answered."""

from collections.abc import Sequence
from typing import Any

from builders import KeptRows
from traffic.ended_calls import an_ended, number_of
from traffic.spooled_rows import a_prediction_id

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.routing.policy import Role
from understudy.errors import NotLogged
from understudy.serving.call import Call, refuse_unlogged
from understudy.serving.prediction_log.group_commit import GroupCommit, Settle


class Watched(KeptRows):
    """A spool that says in which order things happen, and cannot encode one row."""

    def __init__(self, events: list[Any], unencodable: int | None = None) -> None:
        super().__init__()
        self.events = events
        self.unencodable = unencodable

    def append(self, row: PredictionRow) -> bool:
        self.events.append(["row", *self._numbers([row])])
        return super().append(row)

    def append_all(self, rows: Sequence[PredictionRow]) -> tuple[int, ...]:
        self.events.append(["rows", *self._numbers(rows)])
        self.rows += rows
        return ()

    def _numbers(self, rows: Sequence[PredictionRow]) -> list[int]:
        numbers = [next(n for n in range(10) if a_prediction_id(n) == row.prediction_id) for row in rows]
        if self.unencodable in numbers:
            raise ValueError("this row cannot be encoded")
        return numbers


class Full(KeptRows):
    """A spool that drops every second row of a group."""

    def append_all(self, rows: Sequence[PredictionRow]) -> range:
        return range(0, len(rows), 2)


def noted(events: list[Any]) -> Settle:
    def settle(ended: Sequence[Call]) -> None:
        events.append(["answers", *map(number_of, ended)])

    return settle


def test_the_rows_of_a_group_are_one_write_before_all_its_answers_in_their_order():
    events: list[Any] = []
    group = [an_ended(1), an_ended(2, has_row=False), an_ended(3)]

    GroupCommit(Watched(events)).commit(group, noted(events))

    assert events == [["rows", 1, 3], ["answers", 1, 2, 3]]


def test_a_group_without_rows_writes_nothing():
    events: list[Any] = []

    GroupCommit(Watched(events)).commit([an_ended(1, has_row=False)], noted(events))

    assert events == [["answers", 1]]


def test_a_row_that_cannot_be_encoded_costs_only_its_own_caller_the_answer():
    events: list[Any] = []
    group = [an_ended(number) for number in (1, 2, 3)]

    GroupCommit(Watched(events, unencodable=2)).commit(group, noted(events))

    assert events == [["row", 1], ["row", 3], ["answers", 1, 2, 3]]
    assert [type(one.defect) for one in group] == [type(None), ValueError, type(None)]


def test_calls_whose_rows_are_dropped_are_answered_unless_they_are_to_be_refused():
    answered = [an_ended(number) for number in range(4)]
    refused = [*(an_ended(number) for number in range(4)), an_ended(4, has_row=False)]

    GroupCommit(Full()).commit(answered, noted([]))
    GroupCommit(Full(), refuse_unlogged).commit(refused, noted([]))

    assert [one.error for one in answered] == [None] * 4
    assert [one.log_row is None for one in answered] == [True, False, True, False]
    assert [type(one.error) is NotLogged for one in refused] == [True, False, True, False, False]


def test_a_shadow_whose_row_is_dropped_is_counted_as_it_ended():
    shadow = an_ended(0, role=Role.SHADOW)

    GroupCommit(Full(), refuse_unlogged).commit([shadow], noted([]))

    assert shadow.log_row is None
    assert shadow.error is None
