"""Cases are asked of the version as a proxy would call it, and the first that fails is named."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import a_version

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, NotValidated
from understudy.loading.validation import CaseValidation

SCHEMA = {"features": [{"name": "age", "dtype": "float32"}]}


def twice(rows: Sequence[Row]) -> Tensor:
    """A model that answers twice the age."""
    ages = np.array([np.frombuffer(row[0], np.float32)[0] for row in rows])
    return Tensor(Datatype.FP32, (len(rows),), ages * np.float32(2))


class World:
    def __init__(self, rows: Sequence[Mapping[str, Any]] | None) -> None:
        self.rows = rows
        self.backend = MemoryBackend(twice)

    async def check(self) -> int:
        async def read_version(model_name: str, version: str) -> ModelVersion:
            return a_version(version, model_name, input_schema=SCHEMA)

        async def read_rows(_: Path) -> Sequence[Mapping[str, Any]] | None:
            return self.rows

        return await CaseValidation(read_version, lambda _: self.backend, read_rows).check("visits", "1", Path())


async def test_an_artifact_without_cases_is_not_asked():
    world = World(None)

    assert await world.check() == 0
    assert world.backend.calls == []


async def test_every_case_is_a_call_of_its_own():
    world = World([{"age": 1.5, "expected": 3}, {"age": 2, "expected": 4.00001}])

    assert await world.check() == 2
    assert [len(rows) for rows in world.backend.calls] == [1, 1]


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
