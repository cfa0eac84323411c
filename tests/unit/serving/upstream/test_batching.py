import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from builders import a_version
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import run_in_virtual_time

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.schema.row_output import RowOutput
from understudy.core.schema.tensors import Block, Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, InternalFault, Overloaded
from understudy.serving.upstream.batch_inference import MAX_PART_CALLS, BatchInference
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.row_deadlines import WaitingRow

SPOILT = -1.0


def row_of(value: float) -> Row:
    return (struct.pack("<2f", value, 0.0),)


def echo(rows: Sequence[Row]) -> Tensor:
    """Answer each row with its first value; one spoilt row spoils the whole call, as with a real server."""
    values = [struct.unpack("<2f", row[0])[0] for row in rows]
    if SPOILT in values:
        raise BadAnswer("INVALID_ARGUMENT")
    return Tensor(Datatype.FP32, (len(rows), 1), np.array(values, "<f4"))


def a_caller(
    backend: MemoryBackend,
    *,
    concurrency: int = 2,
    gap_seconds: float = 10.0,
    batch_rows: int = 8,
    queue_rows: int = 1000,
    max_calls: int = 128,
    now: Callable[[], float] = time.monotonic,
) -> BatchingCaller:
    return BatchingCaller(
        a_version(),
        backend,
        max_calls=max_calls,
        concurrency=concurrency,
        gap_seconds=gap_seconds,
        batch_rows=batch_rows,
        queue_rows=queue_rows,
        now=now,
    )


async def call_all(caller: BatchingCaller, values: list[float]) -> list[object]:
    deadline = time.monotonic() + 5
    answers = await asyncio.gather(*(caller.call(row_of(v), deadline) for v in values), return_exceptions=True)
    return [answer if isinstance(answer, BaseException) else answer.score for answer in answers]


async def test_rows_of_one_turn_leave_together_and_a_busy_version_is_called_in_batches():
    backend = MemoryBackend(echo, delay_seconds=0.01)

    answers = await call_all(a_caller(backend), [float(n) for n in range(18)])

    assert answers == [float(n) for n in range(18)]
    assert [len(call) for call in backend.calls] == [8, 8, 2]


async def test_only_a_row_that_keeps_its_output_has_it_whatever_shares_its_call():
    backend = MemoryBackend(echo)
    caller, deadline = a_caller(backend), time.monotonic() + 5

    plain, kept = await asyncio.gather(
        caller.call(row_of(1.0), deadline), caller.call(row_of(0.1), deadline, keeps_output=True)
    )

    assert plain.output is None
    assert kept.output == RowOutput("", Datatype.FP32, (1,), struct.pack("<f", 0.1))
    assert len(backend.calls) == 1


@pytest.mark.parametrize("failure", [BackendUnavailable, DeadlineExceeded, BadAnswer])
async def test_a_row_gets_a_failure_without_the_frames_that_know_the_row(failure):
    # Its caller may have gone in this very turn, and then only the garbage collector would end the cycle.
    def fail(rows: Sequence[Row]) -> Tensor:
        raise failure("no")

    waiting = WaitingRow(row=row_of(1.0), deadline=time.monotonic() + 5, take=lambda over: None)

    assert not await BatchInference(a_version(), MemoryBackend(fail), time.monotonic).answer([waiting])

    assert isinstance(waiting.found, failure)
    assert waiting.found.__traceback__ is None


def test_with_a_slow_model_a_row_waits_for_company_no_longer_than_the_gap():
    backend = MemoryBackend(echo, delay_seconds=0.3)

    async def scenario() -> list[float]:
        clock = asyncio.get_running_loop().time
        caller = a_caller(backend, concurrency=1, gap_seconds=0.02, now=clock)

        async def timed(value: float) -> float:
            started = clock()
            await caller.call(row_of(value), started + 5)
            return clock() - started

        calls = []
        for number in range(40):
            calls.append(asyncio.create_task(timed(float(number))))
            await asyncio.sleep(0.005)
        return await asyncio.gather(*calls)

    slowest = max(run_in_virtual_time(scenario()))

    assert slowest < 0.3 + 0.02 + 0.01
    # 40 rows in 0.2 s: a call each 0.02 s or so, never one a row.
    assert 5 <= len(backend.calls) <= 14


def test_a_version_that_hangs_is_asked_by_few_calls_of_many_rows():
    backend = MemoryBackend(echo, delay_seconds=0.6)

    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        caller = a_caller(backend, concurrency=1, gap_seconds=0.001, batch_rows=256, now=clock)
        calls = []
        for number in range(200):
            calls.append(asyncio.create_task(caller.call(row_of(float(number)), clock() + 5)))
            await asyncio.sleep(0.002)
        await asyncio.gather(*calls)

    run_in_virtual_time(scenario())

    # With the gap alone there would be a call for every row or two; its slowest call is up to 0.4 s old meanwhile.
    assert len(backend.calls) <= 100


async def test_rows_left_over_from_a_full_batch_leave_without_waiting_for_a_call_to_end():
    backend = MemoryBackend(echo, delay_seconds=0.3)
    caller = a_caller(backend, concurrency=1, gap_seconds=0.01)
    deadline = time.monotonic() + 5

    first = asyncio.create_task(caller.call(row_of(0.0), deadline))
    await asyncio.sleep(0.001)
    calls = [asyncio.create_task(caller.call(row_of(float(n)), deadline)) for n in range(11)]
    await asyncio.sleep(0.1)

    assert [len(call) for call in backend.calls] == [1, 8, 3]
    await first
    await asyncio.gather(*calls)


async def test_a_version_that_refuses_everything_is_asked_once_more_for_each_row_and_not_for_ever():
    backend = MemoryBackend(echo, error=BadAnswer("INVALID_ARGUMENT"))

    answers = await call_all(a_caller(backend, concurrency=1, batch_rows=256), [1.0] * 257)

    assert all(isinstance(answer, BadAnswer) for answer in answers)
    assert len(backend.calls) == (1 + 8 + 64 + 256) + 1


@pytest.mark.deep
def test_callers_beside_many_that_spoil_their_calls_are_answered_in_time():
    async def scenario() -> list[object]:
        clock = asyncio.get_running_loop().time
        caller = a_caller(MemoryBackend(echo, delay_seconds=0.02), batch_rows=256, gap_seconds=0.002, now=clock)
        answers: list[object] = []

        async def calls_of(value: float) -> None:
            while clock() < 5:
                (answer,) = await asyncio.gather(caller.call(row_of(value), clock() + 1), return_exceptions=True)
                if value != SPOILT:
                    answers.append(answer)

        await asyncio.gather(*(calls_of(SPOILT if n % 5 else float(n)) for n in range(80)))
        return answers

    answers = run_in_virtual_time(scenario())

    assert len(answers) > 100
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []


class CountedRow:
    """A row, and what it was answered, which has to be one thing."""

    def __init__(self, value: float, now: float, seconds: float) -> None:
        self.value = value
        self.found: list[Any] = []
        self.waiting = WaitingRow(
            row=row_of(value),
            deadline=now + seconds,
            since=now,
            take=lambda over: self.found.extend(one.found for one in over),
        )


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=256), st.sets(st.integers(0, 255), max_size=20))
def test_wherever_rows_spoil_a_call_each_other_row_has_its_answer_once_and_calls_are_bounded(spoilt, gone):
    async def scenario() -> tuple[list[CountedRow], MemoryBackend, int]:
        clock = asyncio.get_running_loop().time
        backend, most = MemoryBackend(echo, delay_seconds=0.01), 0

        def counting(rows: Sequence[Row]) -> Tensor:
            nonlocal most
            most = max(most, backend.in_flight)
            return echo(rows)

        backend.function = counting
        rows = [CountedRow(SPOILT if is_spoilt else float(n), clock(), 5.0) for n, is_spoilt in enumerate(spoilt)]
        for number, row in enumerate(rows):
            if number in gone:
                asyncio.get_running_loop().call_later(0.015, row.waiting.leave)
        await BatchInference(a_version(), backend, clock).answer([row.waiting for row in rows])
        return rows, backend, most

    rows, backend, most = run_in_virtual_time(scenario())

    for number, row in enumerate(rows):
        assert len(row.found) == 1 or (number in gone and not row.found)
        for found in row.found:
            assert isinstance(found, BadAnswer) if row.value == SPOILT else found.score == row.value
    assert len(backend.calls) == 1 or len(backend.calls) < 2 * len(rows)
    assert most <= MAX_PART_CALLS
    assert all(len(call) for call in backend.calls)


async def test_a_value_that_is_not_finite_costs_its_row_and_no_second_call():
    def sometimes_nan(rows: Sequence[Row]) -> Tensor:
        values = [struct.unpack("<2f", row[0])[0] for row in rows]
        return Tensor(Datatype.FP32, (len(rows), 1), np.array([np.nan if v == 3 else v for v in values], "<f4"))

    backend = MemoryBackend(sometimes_nan, delay_seconds=0.01)

    answers = await call_all(a_caller(backend, concurrency=1), [float(n) for n in range(9)])

    assert [n for n, answer in enumerate(answers) if isinstance(answer, BadAnswer)] == [3]
    assert [len(call) for call in backend.calls] == [8, 1]


async def test_a_defect_of_the_proxy_is_not_the_models_bad_answer():
    def defect(rows: Sequence[Row]) -> Tensor:
        raise RuntimeError

    (answer,) = await call_all(a_caller(MemoryBackend(defect)), [1.0])

    assert isinstance(answer, InternalFault)


@pytest.mark.deep
@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([SPOILT, *map(float, range(100))]), min_size=1, max_size=40), st.integers(1, 9))
def test_each_caller_gets_its_own_row_and_a_spoilt_row_fails_only_its_caller(values, batch_rows):
    async def scenario() -> list[object]:
        return await call_all(a_caller(MemoryBackend(echo), batch_rows=batch_rows), values)

    for value, answer in zip(values, asyncio.run(scenario()), strict=True):
        assert isinstance(answer, BadAnswer) if value == SPOILT else answer == value


async def test_callers_that_went_away_do_not_disturb_the_others():
    backend = MemoryBackend(echo, delay_seconds=0.02)
    caller = a_caller(backend, concurrency=1)
    deadline = time.monotonic() + 5
    calls = [asyncio.create_task(caller.call(row_of(float(n)), deadline)) for n in range(12)]
    await asyncio.sleep(0.005)

    for gone in calls[::3]:
        gone.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)

    for n, answer in enumerate(answers):
        if n % 3 == 0:
            assert isinstance(answer, asyncio.CancelledError)
        else:
            assert not isinstance(answer, BaseException)
            assert answer.score == float(n)


async def test_a_backend_that_is_down_fails_every_row_of_the_batch():
    caller = a_caller(MemoryBackend(echo, error=BackendUnavailable("down")))

    answers = await call_all(caller, [1.0, 2.0, 3.0])

    assert all(isinstance(answer, BackendUnavailable) for answer in answers)


async def test_a_row_whose_deadline_passed_while_it_waited_is_late():
    caller = a_caller(MemoryBackend(echo))

    with pytest.raises(DeadlineExceeded):
        await caller.call(row_of(1.0), time.monotonic() - 1)


def block_of(*values: float) -> Block:
    return Block((b"".join(row_of(value)[0] for value in values),), ((len(values), 2),))


class _HoldingRows(MemoryBackend):
    """Answers blocks at once, and rows when ``rows_may_end`` is set."""

    def __init__(self) -> None:
        super().__init__(echo)
        self.row_came, self.rows_may_end = asyncio.Event(), asyncio.Event()

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        self.row_came.set()
        await self.rows_may_end.wait()
        return await super().infer(rows, timeout_seconds)


async def test_a_block_of_rows_is_a_call_of_its_own_that_waits_for_none():
    backend = _HoldingRows()
    caller, deadline = a_caller(backend, concurrency=1), time.monotonic() + 30
    sent = asyncio.ensure_future(caller.call(row_of(1), deadline))
    await backend.row_came.wait()
    waiting = asyncio.ensure_future(caller.call(row_of(2), deadline))
    await asyncio.sleep(0)  # its task begins
    assert caller.rows_under_way == 2

    tensor = await caller.call_block(block_of(7, 8, 9), deadline)

    assert tensor.values.tolist() == [7, 8, 9]
    assert [len(call) for call in backend.calls] == [3]
    assert not sent.done()
    assert not waiting.done()
    backend.rows_may_end.set()
    assert [(await row).score for row in (sent, waiting)] == [1, 2]
    assert [len(call) for call in backend.calls] == [3, 1, 1]


async def test_only_so_many_blocks_are_under_way_and_all_are_counted():
    backend = MemoryBackend(echo, delay_seconds=0.1)
    caller = a_caller(backend, max_calls=3)
    deadline = time.monotonic() + 30
    blocks = [asyncio.ensure_future(caller.call_block(block_of(1), deadline)) for _ in range(3)]
    await asyncio.sleep(0)

    with pytest.raises(Overloaded, match="3 rank calls wait"):
        await caller.call_block(block_of(1), deadline)

    assert caller.rows_under_way == 3
    await asyncio.gather(*blocks)
    assert caller.rows_under_way == 0


async def test_a_caller_is_idle_when_its_blocks_are_answered():
    backend = MemoryBackend(echo, delay_seconds=0.05)
    caller = a_caller(backend)
    block = asyncio.ensure_future(caller.call_block(block_of(1), time.monotonic() + 30))
    await asyncio.sleep(0)

    await caller.idle(30)

    assert block.done()
    assert backend.in_flight == 0


async def test_a_block_without_time_left_is_not_sent():
    backend = MemoryBackend(echo)

    with pytest.raises(DeadlineExceeded):
        await a_caller(backend).call_block(block_of(1), time.monotonic() - 1)

    assert backend.calls == []


async def test_rows_that_wait_have_failed_when_closing_is_over():
    backend = MemoryBackend(echo, delay_seconds=0.05)
    caller = a_caller(backend, concurrency=1)
    answered: list[object] = []
    since = time.monotonic()
    caller.submit(
        [
            WaitingRow(
                row=row_of(float(number)),
                deadline=since + 5,
                since=since,
                take=lambda over: answered.extend(one.found for one in over),
            )
            for number in range(12)
        ]
    )
    await asyncio.sleep(0.01)

    await caller.close()

    assert len(answered) == 12


async def test_a_defect_at_sending_ends_the_rows_that_were_to_be_sent():
    class NoNumber(int):
        def __gt__(self, other: object) -> bool:
            raise ZeroDivisionError(str(other))

    backend = MemoryBackend(echo)
    caller = a_caller(backend, queue_rows=NoNumber(8))

    async with asyncio.timeout(5):
        answers = await call_all(caller, [1.0, 2.0])

    assert [type(answer) for answer in answers] == [InternalFault, InternalFault]
    assert backend.calls == []
