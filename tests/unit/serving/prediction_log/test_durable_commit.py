"""Answers that wait for the sync of their rows: one sync for many, late ones, failed ones."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from builders import KeptRows
from traffic.ended_calls import an_ended, number_of

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.routing.policy import Role
from understudy.errors import NotLogged
from understudy.serving.call import Call, refuse_unlogged
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


class Answers:
    """What was answered: the numbers of the calls, those that were refused as negative ones."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.all_given = asyncio.Event()

    def settle(self, ended: Sequence[Call]) -> None:
        self.given += [-number_of(one) if isinstance(one.error, NotLogged) else number_of(one) for one in ended]
        self.all_given.set()


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_no_call_is_answered_before_its_row_is_synced_and_a_group_has_one_sync():
    spool, answers = Synced(), Answers()
    log = DurableCommit(spool, wait_seconds=LONG)

    log.commit([an_ended(1), an_ended(2), an_ended(3), an_ended(4, has_row=False)], answers.settle)
    before = answers.given.copy()
    syncs = len(spool.waiting)
    spool.end_sync()
    await turns()

    assert before == [4]
    assert syncs == 1
    assert answers.given == [4, 1, 2, 3]


async def test_rows_of_the_next_groups_do_not_wait_for_each_other():
    spool, answers = Synced(), Answers()
    log = DurableCommit(spool, wait_seconds=LONG)

    for number in (1, 2):
        log.commit([an_ended(number)], answers.settle)
    spool.end_sync()
    await turns()
    first = answers.given.copy()
    spool.end_sync()
    await turns()

    assert first == [1]
    assert answers.given == [1, 2]


@pytest.mark.parametrize(("refused", "expected"), [(None, [1]), (refuse_unlogged, [-1])])
async def test_a_call_whose_sync_fails_is_answered_or_refused(refused, expected):
    spool, answers = Synced(), Answers()
    log = DurableCommit(spool, refused, wait_seconds=LONG)

    log.commit([an_ended(1)], answers.settle)
    spool.end_sync(is_synced=False)
    await turns()

    assert answers.given == expected


@pytest.mark.parametrize(("refused", "expected"), [(None, [1]), (refuse_unlogged, [-1])])
async def test_a_disk_that_hangs_holds_an_answer_no_longer_than_it_may_and_is_counted(refused, expected):
    spool, answers, late = Synced(), Answers(), list[Any]()
    log = DurableCommit(spool, refused, wait_seconds=0.02, on_late=lambda: late.append(1))

    log.commit([an_ended(1)], answers.settle)
    answers.all_given.clear()
    async with asyncio.timeout(10):
        await answers.all_given.wait()
    spool.end_sync()
    await turns()

    assert answers.given == expected
    assert late == [1]


async def test_a_row_that_is_dropped_waits_for_no_sync():
    spool, answers = Synced(), Answers()
    log = DurableCommit(spool, refuse_unlogged, wait_seconds=LONG)
    spool.is_full = True

    log.commit([an_ended(1)], answers.settle)

    assert answers.given == [-1]
    assert not spool.waiting


async def test_a_shadow_waits_for_no_sync():
    spool, answers = Synced(), Answers()

    DurableCommit(spool, refuse_unlogged, wait_seconds=LONG).commit([an_ended(1, role=Role.SHADOW)], answers.settle)

    assert answers.given == [1]
    assert not spool.waiting
    assert len(spool.rows) == 1
