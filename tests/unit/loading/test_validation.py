"""Cases are asked of the version as a proxy would call it, and the first that fails is named."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import a_version

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.loading.cases import CaseRows
from understudy.core.requests.hard_inputs import CALLS
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, NotValidated
from understudy.loading.steps import NO_MORE_STEPS, Steps
from understudy.loading.validation import ask_version
from understudy.loading.version_validation import VersionValidation

SCHEMA = {"features": [{"name": "age", "dtype": "float32"}]}


def twice(rows: Sequence[Row]) -> Tensor:
    """A model that answers twice the age."""
    ages = np.array([np.frombuffer(row[0], np.float32)[0] for row in rows])
    return Tensor(Datatype.FP32, (len(rows),), ages * np.float32(2))


class World:
    def __init__(
        self, rows: Sequence[Mapping[str, Any]] | None, steps: Steps = NO_MORE_STEPS, *, is_text: bool = False
    ) -> None:
        self.rows = None if rows is None else CaseRows(rows, is_text)
        self.steps = steps
        self.backend = MemoryBackend(twice)

    async def check(self, *, has_callers: bool = False, is_required: bool = False) -> str:
        async def read_rows(_: Path) -> CaseRows | None:
            return self.rows

        async def ask(model_name: str, version: str, rows: CaseRows | None, steps: Steps) -> str:
            asked = a_version(version, model_name, input_schema=SCHEMA)
            return await ask_version(lambda _: self.backend, asked, rows, steps)

        validation = VersionValidation(read_rows, ask, self.steps)
        return await validation.check("visits", "1", Path(), has_callers=has_callers, is_required=is_required)


async def test_an_artifact_without_cases_is_not_asked():
    world = World(None)

    assert await world.check() == ""
    assert world.backend.calls == []


async def test_every_case_is_a_call_of_its_own():
    world = World([{"age": 1.5, "expected": 3}, {"age": 2, "expected": 4.00001}])

    assert await world.check() == "2 cases answered as expected"
    assert [len(rows) for rows in world.backend.calls] == [1, 1]


async def test_cases_of_a_csv_file_are_asked_as_the_numbers_that_they_mean():
    world = World([{"age": "1.5", "expected": "3"}], is_text=True)

    assert await world.check() == "1 cases answered as expected"


async def test_a_version_whose_validation_is_required_is_asked_hard_calls_unless_proxies_call_it():
    world = World(None)

    assert await world.check(is_required=True) == "100 hard calls, 0 of them refused"
    assert await world.check(is_required=True, has_callers=True) == ""


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"age": 1, "expected": 2}, {"age": 1, "expected": 3}], r"^case 2 \(2 of 2\): 2 is not 3 ± 0.00031"),
        ([{"case_id": "old", "expected": 3}], r"^case old \(1 of 1\): its inputs do not fit .*input_schema: .*age"),
        ([{"age": 1}], "case 1: expected is a finite number"),
        ([], "there are 0 cases"),
    ],
    ids=["differs", "does not fit", "is no case", "none"],
)
async def test_what_is_wrong_names_the_case(rows, said):
    with pytest.raises(NotValidated, match=said):
        await World(rows).check()


async def test_a_case_that_the_server_refuses_is_told_with_the_servers_words():
    world = World([{"age": 1, "expected": 2}])
    world.backend.error = BadAnswer("the model server refused the call with INTERNAL")
    world.backend.error.said = "no kernel"

    with pytest.raises(
        NotValidated, match=r'case 1 \(1 of 1\): the model server .*INTERNAL; the server says: "no kernel"'
    ):
        await world.check()


async def test_a_server_that_is_away_is_no_failure_of_a_case():
    world = World([{"age": 1, "expected": 2}])
    world.backend.error = BackendUnavailable("no replica answers")

    with pytest.raises(BackendUnavailable):
        await world.check()


async def test_hard_calls_and_load_come_after_the_cases_and_without_any():
    with_cases = World([{"age": 1, "expected": 2}], Steps(hard_calls=True, load_seconds=0.01))
    without = World(None, Steps(hard_calls=True))

    assert (await with_cases.check()).startswith("1 cases answered as expected; 100 hard calls, 0 of them refused; ")
    assert await without.check() == "100 hard calls, 0 of them refused"
    assert len(without.backend.calls) == CALLS
    assert len(with_cases.backend.calls) > CALLS + 1


async def test_a_version_that_proxies_call_is_asked_its_cases_alone():
    world = World([{"age": 1, "expected": 2}], Steps(hard_calls=True, load_seconds=300.0))

    assert await world.check(has_callers=True) == "1 cases answered as expected"

    assert len(world.backend.calls) == 1


async def test_a_step_that_fails_is_the_last_and_its_words_are_told():
    world = World([{"age": 1, "expected": 2}], Steps(hard_calls=True, load_seconds=300.0))
    world.backend.function = lambda rows: Tensor(Datatype.FP32, (1,), np.full(1, 2.0))

    with pytest.raises(NotValidated, match=r"hard call 10 \(7 rows\): the output's shape is .1. for 7 rows"):
        await world.check()
