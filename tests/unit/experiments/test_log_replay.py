"""Logged inputs go to the version as the proxy would send them, and no longer than the time that was given."""

import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from builders import a_version, an_input_schema

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.experiments.replay_comparison import ReplayState
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer
from understudy.experiments.log_replay import ReplayFinding, ReplayQuestion, ReplayWanted, replay_calls
from understudy.ports.prediction_log.prediction_history import LoggedCall

SECRETIVE = an_input_schema(
    features=[{"name": "age", "dtype": "float32"}, {"name": "income", "dtype": "float32", "private": True}]
)
WANTED = ReplayWanted("visits", "2", None, 0.0, 10.0, 200, 4, None, 5.0)


class KeptHistory:
    """A history of these calls."""

    def __init__(self, calls: Sequence[LoggedCall]) -> None:
        self._calls = calls
        self.asked: tuple[Any, ...] = ()

    async def calls(self, *asked: Any) -> Sequence[LoggedCall]:
        self.asked = asked
        return self._calls


def mean(rows: Sequence[Row]) -> Tensor:
    values = [sum(struct.unpack("<2f", row[0])) / 2 for row in rows]
    return Tensor(Datatype.FP32, (len(rows), 1), np.array(values, "<f4"))


def a_call(number: int, score: float | None = 1.0, answer: str | None = "{}", **inputs: Any) -> LoggedCall:
    text = orjson.dumps(inputs or {"age": 1.0, "income": 1.0}).decode()
    return LoggedCall(f"p{number}", 1_000.0, f"user-{number}", 1, text, answer, score, 9_000)


def a_question(version: ModelVersion | None = None, before: Any = None, **changes: Any) -> ReplayQuestion:
    return ReplayQuestion(
        WANTED._replace(**changes),
        version or a_version("2"),
        {1: "1", 2: "2"},
        {1: an_input_schema() if before is None else before},
        5,
    )


async def replayed(
    calls: Sequence[LoggedCall], question: ReplayQuestion | None = None, backend: MemoryBackend | None = None
) -> ReplayFinding:
    backend = backend or MemoryBackend(mean)
    return await replay_calls(
        question or a_question(), KeptHistory(calls), lambda _: backend, time.monotonic, lambda _calls, _of: None
    )


async def test_the_version_gets_the_logged_inputs_as_one_row_each_and_its_servers_are_closed():
    backend = MemoryBackend(mean)
    history = KeptHistory([a_call(1, 1.5, age=1, income=2), a_call(2, 5.0, age=3, income=4)])
    told: list[tuple[int, int]] = []

    found = await replay_calls(
        a_question(concurrency=1), history, lambda _: backend, time.monotonic, lambda *calls: told.append(calls)
    )

    assert history.asked == ([1], 0.0, 10.0, 200)
    assert backend.calls == [((struct.pack("<2f", 1, 2),),), ((struct.pack("<2f", 3, 4),),)]
    assert not await backend.ready(1)
    assert (found.report.agreed, found.report.differed, found.answered_by) == (1, 1, {1: 2})
    assert found.report.examples[0].difference == pytest.approx(-1.5)
    assert found.report.latency is not None
    assert found.report.latency.then_p50_seconds == pytest.approx(0.009)
    assert told == [(0, 2), (1, 2), (2, 2)]


async def test_no_more_calls_than_wanted_are_in_flight():
    backend = MemoryBackend(mean, delay_seconds=0.02)
    seen: list[int] = []

    def function(rows: Sequence[Row]) -> Tensor:
        seen.append(backend.in_flight)
        return mean(rows)

    backend.function = function

    await replayed([a_call(number) for number in range(12)], a_question(concurrency=3, timeout_seconds=5.0), backend)

    assert len(seen) == 12
    assert max(seen) <= 3


@pytest.mark.deep
async def test_when_the_time_is_over_the_others_are_not_sent_and_not_called_failed():
    backend = MemoryBackend(mean, delay_seconds=0.2)

    began = time.monotonic()
    found = await replayed(
        [a_call(number) for number in range(400)],
        a_question(concurrency=2, timeout_seconds=30.0, within_seconds=0.5),
        backend,
    )

    assert time.monotonic() - began < 10
    assert 0 < found.report.agreed < 20
    assert found.report.unsent == 400 - found.report.agreed
    assert found.report.failed == ()
    assert not found.report.is_whole


async def test_a_log_that_took_all_the_time_leaves_nothing_to_send():
    backend = MemoryBackend(mean)

    found = await replayed([a_call(1)], a_question(within_seconds=0.0), backend)

    assert (found.report.state, found.report.unsent) == (ReplayState.NOTHING_COMPARED, 1)
    assert backend.calls == []


@pytest.mark.parametrize(
    ("backend", "code"),
    [
        (MemoryBackend(mean, error=BadAnswer("the model server refused the call with INTERNAL")), "E502"),
        (MemoryBackend(mean, error=BackendUnavailable("nothing listens there")), "E503"),
        (MemoryBackend(mean, delay_seconds=0.3), "E504"),
        (MemoryBackend(lambda rows: Tensor(Datatype.FP32, (1, 1), np.array([np.nan], "<f4"))), "E502"),
        (MemoryBackend(lambda rows: Tensor(Datatype.FP32, (2, 1), np.zeros(2, "<f4"))), "E502"),
    ],
)
async def test_what_the_version_fails_is_counted_by_its_code(backend, code):
    found = await replayed([a_call(1), a_call(2)], a_question(timeout_seconds=0.1), backend)

    (failed,) = found.report.failed
    assert (failed.code, failed.calls, found.report.replayed) == (code, 2, 2)
    assert failed.detail
    assert found.report.state is ReplayState.NOTHING_COMPARED


async def test_inputs_that_the_version_refuses_are_a_failure_that_names_the_place():
    strict = a_version(
        "2",
        input_schema=an_input_schema(
            features=[{"name": "age", "dtype": "float32", "max": 90}, {"name": "income", "dtype": "float32"}]
        ),
    )
    backend = MemoryBackend(mean)

    found = await replayed([a_call(1, age=91, income=1)], a_question(strict), backend)

    (failed,) = found.report.failed
    assert (failed.code, failed.calls) == ("E101", 1)
    assert failed.detail == "/inputs/age: is above the greatest permitted value 90"
    assert backend.calls == []


async def test_what_the_log_does_not_have_is_not_made_up_and_nothing_is_sent():
    optional = a_version(
        "2",
        input_schema=an_input_schema(
            features=[{"name": "age", "dtype": "float32"}, {"name": "income", "dtype": "float32", "default": 0}]
        ),
    )
    backend = MemoryBackend(mean)
    calls = [a_call(1, age=41), a_call(2, None, '{"best": [], "treatments": 2}'), a_call(3, answer=None)]

    found = await replayed(calls, a_question(optional, SECRETIVE), backend)

    assert {one.reason: one.calls for one in found.report.incomparable} == {
        "not in the log: income": 1,
        "what was answered then is neither a score nor a class, or is too long": 2,
    }
    assert backend.calls == []
    assert not found.report.is_whole


async def test_inputs_that_only_one_of_both_versions_takes_are_named():
    other = a_version(
        "2",
        input_schema=an_input_schema(
            features=[{"name": "age", "dtype": "float32"}, {"name": "basket", "dtype": "float32", "default": 3}],
            tensors=[{"name": "input", "dtype": "float32", "features": ["age", "basket"]}],
        ),
    )

    found = await replayed([a_call(1, 2.0, age=1, income=7)], a_question(other))

    assert (found.left_out, found.defaulted) == (("income",), ("basket",))
    assert found.report.agreed == 1  # (1 + 3) / 2


async def test_a_version_of_which_no_server_is_ready_is_sent_nothing_and_closed():
    backend = MemoryBackend(mean)
    backend.is_ready = False

    with pytest.raises(BackendUnavailable) as refused:
        await replayed([a_call(1)], backend=backend)

    assert "nothing was sent" in refused.value.detail
    assert refused.value.next_step.startswith("understudy version show visits 2")
    assert backend.calls == []


async def test_without_calls_no_server_is_asked():
    def connect(version: ModelVersion) -> MemoryBackend:
        raise AssertionError(version.version)

    found = await replay_calls(a_question(), KeptHistory([]), connect, time.monotonic, lambda _calls, _of: None)

    assert found.report.state is ReplayState.NO_INPUTS
