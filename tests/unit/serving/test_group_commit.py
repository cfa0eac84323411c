"""Rows and answers of one group: what is written when, and who is told what."""

from collections.abc import Sequence
from typing import Any

import pytest
from builders import KeptRows
from spooled_rows import a_prediction_id, a_row

from understudy.core.prediction import PredictionRow
from understudy.serving.group_commit import GroupCommit


class Watched(KeptRows):
    """A spool that says in which order things happen, and cannot encode one row."""

    def __init__(self, events: list[Any], unspeakable: int | None = None) -> None:
        super().__init__()
        self.events = events
        self.unspeakable = unspeakable

    def append(self, row: PredictionRow) -> bool:
        self.events.append(["row", *self._numbers([row])])
        return super().append(row)

    def append_all(self, rows: Sequence[PredictionRow]) -> None:
        self.events.append(["rows", *self._numbers(rows)])
        self.rows += rows

    def _numbers(self, rows: Sequence[PredictionRow]) -> list[int]:
        numbers = [next(n for n in range(10) if a_prediction_id(n) == row.prediction_id) for row in rows]
        if self.unspeakable in numbers:
            raise ValueError("this row cannot be encoded")
        return numbers


def test_outside_a_group_a_row_is_written_and_an_answer_given_at_once():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    log.append(a_row(1))
    log.answer(events.append, "one")

    assert events == [["row", 1], "one"]


def test_the_rows_of_a_group_are_one_write_before_all_its_answers_in_their_order():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    with log:
        for number in (1, 2, 3):
            log.append(a_row(number))
            log.answer(events.append, number)
        log.answer(events.append, "an answer without a row")
        assert events == []
    log.append(a_row(4))

    assert events == [["rows", 1, 2, 3], 1, 2, 3, "an answer without a row", ["row", 4]]


def test_a_group_without_rows_writes_nothing():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    with log:
        log.answer(events.append, "one")

    assert events == ["one"]


def test_a_row_that_cannot_be_encoded_costs_only_its_own_caller_the_answer():
    events: list[Any] = []
    told: list[Any] = []
    log = GroupCommit(Watched(events, unspeakable=2))

    with log:
        for number in (1, 2, 3):
            log.append(a_row(number))
            log.answer(told.append, number)

    assert events == [["row", 1], ["row", 3]]
    assert (told[0], type(told[1]), told[2]) == (1, ValueError, 3)


def test_what_was_held_is_written_and_told_although_the_group_failed():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    def fail() -> None:
        with log:
            log.append(a_row(1))
            log.answer(events.append, "one")
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError):
        fail()

    assert events == [["rows", 1], "one"]


def test_whoever_cannot_be_told_costs_nobody_else_the_answer():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    def refuse(_outcome: Any) -> None:
        raise RuntimeError("a defect")

    with log:
        for number, tell in ((1, events.append), (2, refuse), (3, events.append)):
            log.append(a_row(number))
            log.answer(tell, number)

    assert events == [["rows", 1, 2, 3], 1, 3]
