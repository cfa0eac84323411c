"""Rows and answers of one group: which rows are written when, and what each call is answered."""

import asyncio
from collections.abc import Sequence
from typing import Any

from builders import KeptRows
from spooled_rows import a_prediction_id, a_row

from understudy.core.prediction_log.row import PredictionRow
from understudy.serving.prediction_log.group_commit import GroupCommit


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

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def append_all(self, rows: Sequence[PredictionRow]) -> range:
        return range(self.first, len(rows), 2)


def refuse(outcome: Any) -> str:
    return f"no {outcome}"


async def a_turn() -> None:
    """Let the event loop end its turn."""
    await asyncio.sleep(0)


async def test_a_row_of_a_call_that_is_not_answered_by_callback_is_written_at_once():
    events: list[Any] = []
    GroupCommit(Watched(events)).append(a_row(1))
    assert events == [["row", 1]]


async def test_the_rows_of_a_turn_are_one_write_before_all_its_answers_in_their_order():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    for number in (1, 2, 3):
        log.commit(a_row(number), events.append, number)
    log.commit(None, events.append, "an answer without a row")
    log.append(a_row(4))
    assert events == [["row", 4]]
    await a_turn()
    log.commit(a_row(5), events.append, 5)
    await a_turn()

    assert events == [["row", 4], ["rows", 1, 2, 3], 1, 2, 3, "an answer without a row", ["rows", 5], 5]


async def test_a_turn_without_rows_writes_nothing():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    log.commit(None, events.append, "one")
    await a_turn()

    assert events == ["one"]


async def test_what_is_pending_when_the_process_ends_is_written_and_answered_once():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    log.commit(a_row(1), events.append, 1)
    log.flush()
    assert events == [["rows", 1], 1]
    await a_turn()

    assert events == [["rows", 1], 1]


async def test_a_row_that_cannot_be_encoded_costs_only_its_own_caller_the_answer():
    events: list[Any] = []
    answered: list[Any] = []
    log = GroupCommit(Watched(events, unencodable=2))

    for number in (1, 2, 3):
        log.commit(a_row(number), answered.append, number)
    await a_turn()

    assert events == [["row", 1], ["row", 3]]
    assert (answered[0], type(answered[1]), answered[2]) == (1, ValueError, 3)


async def test_calls_whose_rows_are_dropped_are_answered_unless_they_are_to_be_refused():
    answered: list[Any] = []
    refused: list[Any] = []

    for log, answers in ((GroupCommit(Full(0)), answered), (GroupCommit(Full(0), refuse), refused)):
        for number in range(4):
            log.commit(a_row(number), answers.append, number)
        log.commit(None, answers.append, "an answer without a row")
        await a_turn()

    assert answered == [0, 1, 2, 3, "an answer without a row"]
    assert refused == ["no 0", 1, "no 2", 3, "an answer without a row"]


async def test_a_call_that_is_not_answered_by_callback_waits_for_its_row_where_that_decides():
    log = GroupCommit(Full(0), refuse)

    outcomes = await asyncio.gather(*(log.logged(a_row(number), number) for number in range(4)))

    assert log.decides
    assert outcomes == ["no 0", 1, "no 2", 3]


async def test_a_defect_of_the_write_is_raised_to_a_call_that_waits_for_its_row():
    log = GroupCommit(Watched([], unencodable=2), refuse)

    found = await asyncio.gather(*(log.logged(a_row(number), number) for number in (1, 2)), return_exceptions=True)

    assert (found[0], type(found[1])) == (1, ValueError)


async def test_a_call_that_is_cancelled_while_its_row_is_pending_leaves_the_row():
    spool = KeptRows()
    log = GroupCommit(spool, refuse)

    waiting = asyncio.create_task(log.logged(a_row(1), 1))
    await a_turn()
    waiting.cancel()
    await asyncio.wait([waiting])
    await a_turn()

    assert [row.prediction_id for row in spool.rows] == [a_prediction_id(1)]


async def test_a_callback_that_fails_costs_no_other_call_its_answer():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    def refuse(_outcome: Any) -> None:
        raise RuntimeError("a defect")

    for number, on_result in ((1, events.append), (2, refuse), (3, events.append)):
        log.commit(a_row(number), on_result, number)
    await a_turn()

    assert events == [["rows", 1, 2, 3], 1, 3]


async def test_a_call_that_a_callback_ends_is_held_for_the_next_turn():
    events: list[Any] = []
    log = GroupCommit(Watched(events))

    def end_another(outcome: Any) -> None:
        events.append(outcome)
        log.commit(a_row(2), events.append, 2)

    log.commit(a_row(1), end_another, 1)
    await a_turn()
    assert events == [["rows", 1], 1]
    await a_turn()

    assert events == [["rows", 1], 1, ["rows", 2], 2]
