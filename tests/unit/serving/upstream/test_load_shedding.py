"""More rows than a version can take: how long they wait, how they are shed, and which other calls that disturbs."""

import asyncio
import os
import struct
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest
from builders import KeptRows, a_policy, a_version
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import VirtualTimeLoop, run_in_virtual_time

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.prediction_log.row import Status
from understudy.core.requests.predict import PredictRequest
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, Overloaded
from understudy.serving.call import Call
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.turn import Clocks, Limits, Predictor
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.cached_inference import CachedInference
from understudy.serving.upstream.row_deadlines import ROWS_ENDED_PER_TURN, WaitingRow

SPOILT = -1.0
WAIT_SECONDS = 0.2
A_MOMENT = 0.001


def row_of(value: float) -> Row:
    return (struct.pack("<2f", value, 0.0),)


def value_of(row: Row) -> float:
    return float(struct.unpack("<2f", row[0])[0])


def echo(rows: Sequence[Row]) -> Tensor:
    """Answer each row with its first value; one spoilt row spoils the whole call, as with a real server."""
    values = [value_of(row) for row in rows]
    if SPOILT in values:
        raise BadAnswer("INVALID_ARGUMENT")
    return Tensor(Datatype.FP32, (len(rows), 1), np.array(values, "<f4"))


def now() -> float:
    return asyncio.get_running_loop().time()


def a_waiting_row(number: int, seconds: float, on_result: Callable[[object], None]) -> WaitingRow:
    """Return a row that has so many seconds from now on."""
    return WaitingRow(
        row=row_of(float(number)),
        deadline=now() + seconds,
        since=now(),
        take=lambda over: on_result(over[0].found),
    )


def a_caller(backend: MemoryBackend, version: ModelVersion | None = None, **changed: Any) -> BatchingCaller:
    sizes: dict[str, Any] = {
        "concurrency": 1,
        "gap_seconds": 0.002,
        "batch_rows": 1,
        "queue_rows": 1_000,
        "max_calls": 2,
        "wait_seconds": WAIT_SECONDS,
        **changed,
    }
    return BatchingCaller(version or a_version(), backend, now=now, **sizes)


class Ended:
    """How one caller's call ended, and how long that took."""

    def __init__(self, result: object, seconds: float) -> None:
        self.result, self.seconds = result, seconds


async def ended(call: Coroutine[Any, Any, Any]) -> Ended:
    started = now()
    try:
        result: object = (await call).score
    except (BadAnswer, DeadlineExceeded, Overloaded, asyncio.CancelledError) as problem:
        result = problem
    return Ended(result, now() - started)


def all_ended(backend: MemoryBackend, rows: int, deadline_seconds: float = 5.0, **changed: Any) -> list[Ended]:
    """Send ``rows`` rows at the same moment."""

    async def scenario() -> list[Ended]:
        caller = a_caller(backend, **changed)
        return await asyncio.gather(
            *(ended(caller.call(row_of(float(n)), now() + deadline_seconds)) for n in range(rows))
        )

    return run_in_virtual_time(scenario())


def test_a_row_for_which_no_call_is_free_waits_for_its_bound_and_is_then_shed():
    calls = all_ended(MemoryBackend(echo, delay_seconds=0.15), rows=10)

    served = [call for call in calls if not isinstance(call.result, Overloaded)]
    refused = [call for call in calls if isinstance(call.result, Overloaded)]
    # Two at once, the two newest after 0.15 s, none after 0.2 s.
    assert [call.result for call in served] == [0.0, 1.0, 8.0, 9.0]
    assert len(refused) == 6
    assert all(abs(call.seconds - WAIT_SECONDS) < A_MOMENT for call in refused)


def test_rows_that_come_one_after_the_other_each_wait_for_their_own_bound():
    backend = MemoryBackend(echo, delay_seconds=3.0)

    async def scenario() -> list[Ended]:
        caller = a_caller(backend)
        calls = []
        for number in range(50):
            calls.append(asyncio.create_task(ended(caller.call(row_of(float(number)), now() + 5))))
            await asyncio.sleep(0.013)
        return await asyncio.gather(*calls)

    refused = run_in_virtual_time(scenario())[2:]

    assert all(isinstance(call.result, Overloaded) for call in refused)
    assert all(abs(call.seconds - WAIT_SECONDS) < A_MOMENT for call in refused)


@pytest.mark.deep
def test_under_overload_the_newest_row_is_served_first_and_soon():
    backend = MemoryBackend(echo, delay_seconds=0.02)  # two calls at once: 100 a second

    async def scenario() -> list[Ended]:
        caller = a_caller(backend)
        calls = []
        for number in range(2_000):  # twice as many
            calls.append(asyncio.create_task(ended(caller.call(row_of(float(number)), now() + 5))))
            await asyncio.sleep(0.005)
        return await asyncio.gather(*calls)

    calls = run_in_virtual_time(scenario())[400:]  # those before found the queue not yet full

    waited = sorted(call.seconds for call in calls if not isinstance(call.result, Overloaded))
    assert 0.45 * len(calls) <= len(waited) <= 0.55 * len(calls)
    assert waited[int(0.95 * len(waited))] <= WAIT_SECONDS / 2


def test_a_row_that_finds_the_queue_full_is_shed_after_the_same_wait_and_takes_no_place():
    calls = all_ended(MemoryBackend(echo, delay_seconds=0.05), rows=10, queue_rows=3)

    refused = [call for call in calls if isinstance(call.result, Overloaded)]
    assert [call.result for call in calls[:5]] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [call.seconds for call in refused] == [WAIT_SECONDS] * 5


def test_a_deadline_that_comes_first_ends_the_wait():
    calls = all_ended(MemoryBackend(echo, delay_seconds=3.0), rows=6, deadline_seconds=0.05, queue_rows=2)

    assert {type(call.result) for call in calls} == {DeadlineExceeded, Overloaded}
    assert all(abs(call.seconds - 0.05) < A_MOMENT for call in calls)


def test_rows_that_only_wait_for_company_are_sent_and_not_shed():
    backend = MemoryBackend(echo, delay_seconds=1.0)

    async def scenario() -> list[Ended]:
        caller = a_caller(backend, concurrency=1, gap_seconds=30.0, batch_rows=8, max_calls=3)
        calls = []
        for number in range(4):
            calls.append(asyncio.create_task(ended(caller.call(row_of(float(number)), now() + 5))))
            await asyncio.sleep(0.001)
        return await asyncio.gather(*calls)

    calls = run_in_virtual_time(scenario())

    assert [call.result for call in calls] == [0.0, 1.0, 2.0, 3.0]
    assert [len(rows) for rows in backend.calls] == [1, 3]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(A_MOMENT)


class Turns:
    """Numbers the event loop's turns in which something is noted, and counts what is noted in each."""

    def __init__(self) -> None:
        self.number = 0
        self.noted: Counter[int] = Counter()

    def note(self, _result: object = None) -> None:
        if not self.noted[self.number]:
            asyncio.get_running_loop().call_soon(self._next)
        self.noted[self.number] += 1

    def _next(self) -> None:
        self.number += 1


@pytest.mark.parametrize(
    ("queue_rows", "deadline_seconds"),
    [
        (1_000, 5.0),  # refused
        (1, 5.0),  # refused, having found the queue full
        (1_000, 0.1),  # too late
    ],
)
def test_a_wave_of_hundreds_is_ended_a_few_at_a_time_so_that_others_have_their_turns(queue_rows, deadline_seconds):
    backend = MemoryBackend(echo, delay_seconds=3.0)

    async def scenario() -> tuple[Turns, float]:
        caller = a_caller(backend, queue_rows=queue_rows, max_calls=1)
        turns = Turns()
        caller.submit([a_waiting_row(0, deadline_seconds, lambda _result: None)])
        await asyncio.sleep(A_MOMENT)
        began = now()
        caller.submit([a_waiting_row(number, deadline_seconds, turns.note) for number in range(400)])
        await until(lambda: turns.noted.total() == 400)
        return turns, now() - began

    turns, seconds = run_in_virtual_time(scenario())

    # The queue's row and those that found it full are two waves, of which each has its share.
    assert max(turns.noted.values()) <= 2 * ROWS_ENDED_PER_TURN
    assert seconds <= min(WAIT_SECONDS, deadline_seconds) + 2 * A_MOMENT


def test_the_later_a_wave_is_the_more_of_it_is_ended_at_once():
    backend = MemoryBackend(echo, delay_seconds=3.0)

    async def scenario() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        caller = a_caller(backend, max_calls=1)
        ended: list[float] = []

        def take_a_moment(_result: object) -> None:
            loop.freeze(0.0005)  # what refusing one costs a slow machine
            ended.append(now())

        caller.submit([a_waiting_row(0, 9, lambda _result: None)])
        await asyncio.sleep(A_MOMENT)
        caller.submit([a_waiting_row(number, 5, take_a_moment) for number in range(400)])
        await until(lambda: len(ended) == 400)
        return ended

    # 400 of half a millisecond are 0.2 s; nothing but their own work made the last one later.
    assert run_in_virtual_time(scenario())[-1] <= 2 * WAIT_SECONDS + 0.05


class Watched(MemoryBackend):
    """Notes in which turn each call came and went."""

    def __init__(self, turns: Turns, **how: Any) -> None:
        super().__init__(echo, **how)
        self.turns = turns
        self.came: list[int] = []
        self.went: list[int] = []

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        self.came.append(self.turns.number)
        try:
            return await super().infer(rows, timeout_seconds)
        finally:
            self.went.append(self.turns.number)
            self.turns.note()


def test_a_call_that_is_free_is_used_in_the_same_turn():
    backend = Watched(Turns(), delay_seconds=0.01)

    async def scenario() -> None:
        caller = a_caller(backend, max_calls=1)
        await asyncio.gather(*(caller.call(row_of(float(number)), now() + 5) for number in range(10)))

    run_in_virtual_time(scenario())

    assert len(backend.came) == 10
    assert backend.came[1:] == backend.went[:-1]


def test_calls_that_fail_at_once_leave_turns_to_others():
    class Down(MemoryBackend):
        async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
            raise BackendUnavailable("no model server of the version takes the call")

    async def scenario() -> Turns:
        turns, caller = Turns(), a_caller(Down(echo), max_calls=2)
        caller.submit([a_waiting_row(number, 5, turns.note) for number in range(100)])
        await until(lambda: turns.noted.total() == 100)
        return turns

    assert max(run_in_virtual_time(scenario()).noted.values()) <= 2


def test_what_can_be_served_is_served_while_ten_times_as_much_is_asked_for():
    backend = MemoryBackend(echo, delay_seconds=0.05)  # two calls at once: 40 a second

    async def scenario() -> list[Ended]:
        caller = a_caller(backend)
        calls: list[Ended] = []

        async def connection() -> None:
            while now() < 10:
                calls.append(await ended(caller.call(row_of(1.0), now() + 0.5)))

        await asyncio.gather(*(connection() for _ in range(20)))
        return calls

    calls = run_in_virtual_time(scenario())

    served = [call for call in calls if call.result == 1.0]
    assert len(served) >= 0.95 * 10 * 40
    assert max(call.seconds for call in calls) <= WAIT_SECONDS + 0.05 + A_MOMENT
    assert len(served) + sum(isinstance(call.result, Overloaded) for call in calls) == len(calls)


# -- each caller its own row -------------------------------------------------------------------------------------------

callers = st.lists(
    st.tuples(
        st.booleans(),  # spoilt
        st.sampled_from([None, None, 0.0, 0.004, 0.004, 0.25]),  # goes away after so many seconds
        st.sampled_from([5.0, 5.0, 0.02, 0.3]),  # deadline
        st.sampled_from([0.0, 0.0, 0.0, 0.05]),  # pause before the next one
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(
    callers,
    st.integers(2, 9),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.01, 0.01, 0.15]),
    st.sampled_from([3, 1_000]),
)
def test_each_caller_gets_its_own_row_whichever_others_go_away_are_late_or_spoil_a_call(
    asked, batch_rows, max_calls, delay_seconds, queue_rows
):
    backend = MemoryBackend(echo, delay_seconds=delay_seconds)

    async def scenario() -> tuple[list[Ended], list[bool], int]:
        caller = a_caller(backend, batch_rows=batch_rows, max_calls=max_calls, queue_rows=queue_rows)
        calls, went = [], []
        for number, (spoilt, goes_after, deadline_seconds, pause) in enumerate(asked):
            row = row_of(SPOILT if spoilt else float(number))
            calls.append(asyncio.create_task(ended(caller.call(row, now() + deadline_seconds))))
            went.append(goes_after is not None)
            if goes_after is not None:
                asyncio.get_running_loop().call_later(goes_after, calls[-1].cancel)
            await asyncio.sleep(pause)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await caller.idle(60)
        # A call that is cancelled before it began has nothing that could note how it ended.
        noted = [one if isinstance(one, Ended) else Ended(one, 0.0) for one in answers]
        return noted, went, caller.rows_under_way

    calls, went, left = run_in_virtual_time(scenario())

    assert left == 0
    assert len(calls) == len(asked)
    for number, (call, has_gone, (spoilt, _, deadline_seconds, _)) in enumerate(zip(calls, went, asked, strict=True)):
        permitted: tuple[type, ...] = (Overloaded, *([asyncio.CancelledError] if has_gone else []))
        if delay_seconds or deadline_seconds < 1:
            permitted += (DeadlineExceeded,)
        if not isinstance(call.result, permitted):
            assert isinstance(call.result, BadAnswer) if spoilt else call.result == float(number)
        if isinstance(call.result, Overloaded):
            assert abs(call.seconds - min(WAIT_SECONDS, deadline_seconds)) < A_MOMENT


@pytest.mark.deep
@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 3))
def test_rows_leave_in_the_order_in_which_they_came_and_once_and_those_of_callers_who_have_gone_not_at_all(
    gone, batch_rows, max_calls
):
    backend = MemoryBackend(echo, delay_seconds=0.01)

    async def scenario() -> set[float]:
        caller = a_caller(backend, batch_rows=batch_rows, max_calls=max_calls, wait_seconds=10)
        calls = [asyncio.create_task(caller.call(row_of(float(n)), now() + 5)) for n in range(len(gone))]
        await asyncio.sleep(0.001)
        left_before = {value_of(row) for rows in backend.calls for row in rows}
        for call, is_gone in zip(calls, gone, strict=True):
            if is_gone:
                call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return left_before

    left_before = run_in_virtual_time(scenario())

    sent = [value_of(row) for rows in backend.calls for row in rows]
    stayed = [float(number) for number, is_gone in enumerate(gone) if not is_gone]
    assert sent == sorted(set(sent))
    assert set(sent) >= set(stayed)
    assert set(sent) <= set(stayed) | left_before


# -- by role -----------------------------------------------------------------------------------------------------------


class Stage:
    """A predictor whose version ``busy`` has one call, which another row has taken."""

    def __init__(self, policy: ServingPolicy, busy: str) -> None:
        self.rows = KeptRows()
        self.telemetry = MemoryTelemetry()
        self.shadows = ShadowPool(64, lambda model: self.telemetry.count("shadow_dropped_total", model))
        self._busy = busy
        self.backends = BackendPool(self._make)
        self._predictor = Predictor(
            snapshot=lambda: PolicySnapshot({policy.model_name: policy}),
            inference=CachedInference(
                self.backends, memory_cache=None, shared_cache=None, telemetry=self.telemetry, now=now
            ),
            features=None,
            log=GroupCommit(self.rows),
            shadows=self.shadows,
            telemetry=self.telemetry,
            limits=Limits(feature_timeout_seconds=0.05, challenger_budget_ratio=0.6, shadow_timeout_seconds=0.5),
            clocks=Clocks(monotonic=now, unix=now, random_bytes=os.urandom),
        )
        self._policy = policy

    def _make(self, version: ModelVersion) -> BatchingCaller:
        delay_seconds = 30.0 if version.version == self._busy else 0.01
        return a_caller(MemoryBackend(echo, delay_seconds=delay_seconds), version, max_calls=1)

    async def ask(self) -> Call:
        """Call while the busy version's only call is taken, and wait for the shadow's."""
        taken = asyncio.create_task(self.backends.of(self._policy.versions[self._busy]).call(row_of(0.0), now() + 60))
        await asyncio.sleep(0.001)
        outcome = await self._predictor.predict("visits", PredictRequest("entity", {"age": 7.0, "income": 0.0}, None))
        await self.shadows.drain(1)
        taken.cancel()
        return outcome


def run_stage(policy: ServingPolicy, busy: str) -> tuple[Stage, Call]:
    async def scenario() -> tuple[Stage, Call]:
        stage = Stage(policy, busy)
        return stage, await stage.ask()

    return run_in_virtual_time(scenario())


def test_the_champion_answers_for_a_challenger_that_is_overloaded():
    stage, outcome = run_stage(a_policy(challenger_weight=100), "2")

    assert outcome.prediction is not None
    assert (outcome.role, type(outcome.fallback_from)) == (Role.CHAMPION, Overloaded)
    assert stage.telemetry.counts["fallbacks_total", "visits", "E507"] == 1


def test_an_overloaded_champion_is_the_callers_503():
    stage, outcome = run_stage(a_policy(), "1")

    assert isinstance(outcome.error, Overloaded)
    assert outcome.error.retry_after_seconds == 1
    assert stage.telemetry.counts["predict_requests_total", "visits", "1", "champion", "unavailable"] == 1


def test_an_overloaded_shadow_is_counted_and_costs_its_caller_nothing():
    stage, outcome = run_stage(a_policy(shadow=a_version("4")), "4")

    assert outcome.prediction is not None
    assert outcome.ended - outcome.started < WAIT_SECONDS
    assert stage.telemetry.counts["predict_requests_total", "visits", "4", "shadow", "unavailable"] == 1
    assert [(row.role, row.status, row.error_code) for row in stage.rows.rows[1:]] == [
        (Role.SHADOW, Status.UNAVAILABLE, "E507")
    ]
