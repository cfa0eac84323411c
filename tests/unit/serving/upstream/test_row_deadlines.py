"""Rows and their deadlines: when each is over, and how many that are over are kept."""

import asyncio
from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest
from virtual_time import run_in_virtual_time

from understudy.core.schema.outputs import Prediction
from understudy.errors import DeadlineExceeded
from understudy.serving.upstream.row_deadlines import SWEEP_ROWS, RowDeadlines, WaitingRow, end_rows

ANSWER = Prediction(b"0.5", 0.5)


def now() -> float:
    return asyncio.get_running_loop().time()


def a_row(deadlines: RowDeadlines, seconds: float, on_result: Callable[[Any], None] = lambda _: None) -> WaitingRow:
    """Return a row that is watched and has so many seconds left."""
    waiting = WaitingRow(row=(b"",), deadline=now() + seconds, since=now(), take=lambda over: on_result(over[0].found))
    deadlines.watch([waiting], now())
    return waiting


async def until_late(deadlines: RowDeadlines, seconds: float) -> float:
    """Return how long a row waits until it ends, which must be with its deadline."""
    started, over = now(), asyncio.get_running_loop().create_future()
    a_row(deadlines, seconds, over.set_result)
    assert isinstance(await over, DeadlineExceeded)
    return now() - started


def test_each_row_is_over_at_its_own_deadline_whatever_the_order():
    async def scenario() -> list[float]:
        deadlines = RowDeadlines(now)
        return await asyncio.gather(*(until_late(deadlines, seconds) for seconds in (1.0, 3.0, 2.0, 3.0, 0.5, 4.0)))

    assert run_in_virtual_time(scenario()) == pytest.approx([1.0, 3.0, 2.0, 3.0, 0.5, 4.0], abs=0.01)


def test_a_row_is_over_at_its_deadline_although_an_answered_one_before_it_had_a_later_one():
    async def scenario() -> list[float]:
        deadlines = RowDeadlines(now)
        a_row(deadlines, 30).end(ANSWER, now())
        return await asyncio.gather(*(until_late(deadlines, seconds) for seconds in (0.2, 0.3, 2.0)))

    assert run_in_virtual_time(scenario()) == pytest.approx([0.2, 0.3, 2.0], abs=0.01)


def test_rows_that_are_over_are_not_kept_because_a_slow_one_came_first():
    async def scenario() -> list[int]:
        deadlines, kept = RowDeadlines(now), []
        a_row(deadlines, 60)
        for _ in range(20 * SWEEP_ROWS // 64):
            answered = [a_row(deadlines, 60) for _ in range(64)]
            kept.append(len(deadlines))
            for waiting in answered:
                waiting.end(ANSWER, now())
        return kept

    assert max(run_in_virtual_time(scenario())) <= SWEEP_ROWS + 2 * 64


def test_rows_that_end_together_are_taken_by_one_call_and_one_that_is_over_by_none():
    taken: list[list[Any]] = []
    alone: list[list[Any]] = []
    rows = [WaitingRow(take=taken.append), WaitingRow(take=alone.append), WaitingRow(take=taken.append), WaitingRow()]
    first, second, third, fourth = (Prediction(b"%d" % number, number) for number in range(4))

    end_rows(rows, [first, second, third, fourth], at=7.0)

    assert [[one.found for one in over] for over in taken] == [[first, third]]
    assert [[one.found for one in over] for over in alone] == [[second]]
    assert [(one.take, one.ended) for one in rows] == [(None, 7.0)] * 3 + [(None, 0.0)]


def test_a_defect_of_what_takes_rows_costs_other_rows_nothing():
    taken: list[list[Any]] = []

    def fails(_over: list[Any]) -> None:
        raise ZeroDivisionError

    end_rows([WaitingRow(take=fails), WaitingRow(take=taken.append)], repeat(ANSWER), at=7.0)

    assert [[one.found for one in over] for over in taken] == [[ANSWER]]
