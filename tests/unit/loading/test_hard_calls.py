"""Hard calls: a refusal is an answer; a server that is dead or wedged, or says NaN, has the version fail."""

from collections.abc import Sequence

import numpy as np
import pytest
from builders import a_version

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.requests.hard_inputs import CALLS
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, NotValidated, UnderstudyError
from understudy.loading.hard_calls import ask_hard_calls
from understudy.loading.step_calls import MAX_CALL_BYTES

VERSION = a_version(input_schema={"features": [{"name": "age", "dtype": "float32", "max": 130}]})
MOST_ROWS = 128


def good(rows: Sequence[Row]) -> Tensor:
    ages = np.array([np.frombuffer(row[0], np.float32)[0] for row in rows])
    return Tensor(Datatype.FP32, (len(rows),), ages)


class OddServer(MemoryBackend):
    """Does something else from a call, or a number of rows, on."""

    def __init__(self, problem: UnderstudyError, at: int = 1, *, rows: int = 1, dies: bool = False) -> None:
        super().__init__(good)
        self._problem, self._at, self._rows, self._dies = problem, at, rows, dies

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        if len(self.calls) + 1 >= self._at and len(rows) >= self._rows:
            self.calls.append(tuple(rows))
            self.is_ready = not self._dies
            raise self._problem
        return await super().infer(rows, timeout_seconds)


async def test_a_version_that_answers_all_passes_and_every_size_was_asked():
    backend = MemoryBackend(good)

    said = await ask_hard_calls(VERSION, backend, MOST_ROWS)

    assert said == "100 hard calls, 0 of them refused"
    assert {len(rows) for rows in backend.calls} == {1, 7, 64, MOST_ROWS}


async def test_refusals_are_counted_and_the_first_is_told():
    problem = BadAnswer("the model server refused the call with INVALID_ARGUMENT")
    problem.said = "no batch of seven"

    said = await ask_hard_calls(VERSION, OddServer(problem, rows=7), MOST_ROWS)

    assert said.startswith("100 hard calls, 12 of them refused; hard call 10 (7 rows): the model server refused")
    assert said.endswith('the server says: "no batch of seven"')


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        (
            OddServer(BadAnswer("it refused")),
            f"each of its {CALLS} hard calls was refused; hard call 1 .1 row.: it ref",
        ),
        (OddServer(DeadlineExceeded("upstream", 5.0), 3), r"hard call 3 \(1 row\): no answer within 5 s"),
        (OddServer(BackendUnavailable("gone"), rows=64, dies=True), r"after hard call 25 \(64 rows\) the model server"),
        (MemoryBackend(lambda rows: Tensor(Datatype.FP32, (1,), np.ones(1))), "the output's shape is .1. for 7 rows"),
        (
            MemoryBackend(
                lambda rows: Tensor(Datatype.FP32, (len(rows),), 1 / np.where(good(rows).values == 130, 0, 1))
            ),
            r"an output is NaN or infinite, for an example",
        ),
        (
            MemoryBackend(lambda rows: Tensor(Datatype.FP32, (len(rows),), np.log(good(rows).values))),
            r"hard call \d+ \(1 row\): an output is NaN or infinite, for age=",
        ),
    ],
    ids=["refuses all", "wedged", "dies", "one answer for seven", "NaN for the example", "NaN at an end"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
async def test_what_no_version_may_do_is_named_with_its_call(backend, said):
    with pytest.raises(NotValidated, match=said):
        await ask_hard_calls(VERSION, backend, MOST_ROWS)


async def test_a_server_that_is_away_before_the_first_call_is_no_failure_of_the_version():
    backend = MemoryBackend(good)
    backend.is_ready = False

    with pytest.raises(BackendUnavailable):
        await ask_hard_calls(VERSION, backend, MOST_ROWS)


@pytest.mark.deep
async def test_a_call_has_a_bound_in_bytes_and_one_row_at_least():
    version = a_version(input_schema={"features": [{"name": "text", "dtype": "string"}]})
    backend = MemoryBackend(lambda rows: Tensor(Datatype.FP32, (len(rows),), np.ones(len(rows))))

    await ask_hard_calls(version, backend, MOST_ROWS)

    sizes = [sum(len(content) for row in rows for content in row) for rows in backend.calls]
    assert len(sizes) == CALLS
    assert max(sizes) <= MAX_CALL_BYTES
