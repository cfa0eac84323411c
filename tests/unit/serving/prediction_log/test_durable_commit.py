"""Answers that wait for the sync of their rows: one sync for many, late ones, failed ones."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from builders import KeptRows
from spooled_rows import a_row

from understudy.core.prediction_log.row import PredictionRow
from understudy.serving.prediction_log.durable_commit import DurableCommit

LONG = 60.0


class Synced(KeptRows):
    """A spool whose syncs end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[Callable[[bool], None]] = deque()
        self.is_full = False

    def append(self, row: PredictionRow) -> bool:
        return not self.is_full and super().append(row)

    def sync(self, on_synced: Callable[[bool], None]) -> None:
        self.waiting.append(on_synced)

    def end_sync(self, *, is_synced: bool = True) -> None:
        """End the oldest sync, from another thread as a real one does."""
        thread = threading.Thread(target=self.waiting.popleft(), args=(is_synced,))
        thread.start()
        thread.join(10)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def refuse(outcome: Any) -> str:
    return f"no {outcome}"


async def test_no_call_is_answered_before_its_row_is_synced_and_a_turn_has_one_sync():
    spool, answered = Synced(), list[Any]()
    log = DurableCommit(spool, wait_seconds=LONG)

    for number in (1, 2, 3):
        log.commit(a_row(number), answered.append, number)
    log.commit(None, answered.append, "an answer without a row")
    await turns()
    before = answered.copy()
    syncs = len(spool.waiting)
    spool.end_sync()
    await turns()

    assert before == ["an answer without a row"]
    assert syncs == 1
    assert answered == ["an answer without a row", 1, 2, 3]


async def test_rows_of_the_next_turns_do_not_wait_for_each_other():
    spool, answered = Synced(), list[Any]()
    log = DurableCommit(spool, wait_seconds=LONG)

    for number in (1, 2):
        log.commit(a_row(number), answered.append, number)
        await turns()
    spool.end_sync()
    await turns()
    first = answered.copy()
    spool.end_sync()
    await turns()

    assert first == [1]
    assert answered == [1, 2]


@pytest.mark.parametrize(("refused", "expected"), [(None, [1]), (refuse, ["no 1"])])
async def test_a_call_whose_sync_fails_is_answered_or_refused(refused, expected):
    spool, answered = Synced(), list[Any]()
    log = DurableCommit(spool, refused, wait_seconds=LONG)

    log.commit(a_row(1), answered.append, 1)
    await turns()
    spool.end_sync(is_synced=False)
    await turns()

    assert answered == expected


@pytest.mark.parametrize(("refused", "expected"), [(None, 1), (refuse, "no 1")])
async def test_a_disk_that_hangs_holds_an_answer_no_longer_than_it_may_and_is_counted(refused, expected):
    spool, late = Synced(), []
    log = DurableCommit(spool, refused, wait_seconds=0.02, on_late=lambda: late.append(1))

    async with asyncio.timeout(10):
        outcome = await log.logged(a_row(1), 1)
    spool.end_sync()
    await turns()

    assert outcome == expected
    assert late == [1]


async def test_a_row_that_is_dropped_waits_for_no_sync():
    spool, answered = Synced(), list[Any]()
    log = DurableCommit(spool, refuse, wait_seconds=LONG)
    spool.is_full = True

    log.commit(a_row(1), answered.append, 1)
    await turns()

    assert answered == ["no 1"]
    assert not spool.waiting
