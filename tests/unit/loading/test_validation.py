"""Cases are asked of the version as a proxy would call it, and the worst that fails is named."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import a_version

from understudy.adapters.memory.backend import MemoryBackend
from understudy.core.loading.cases import CaseRows
from understudy.core.requests.hard_inputs import CALLS
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, NotValidated
from understudy.loading.artifact_validation import ArtifactValidation
from understudy.loading.step_calls import MAX_CALL_BYTES
from understudy.loading.steps import NO_MORE_STEPS, Steps
from understudy.loading.validation import ask_version

SCHEMA = {"features": [{"name": "age", "dtype": "float32"}]}


def twice(rows: Sequence[Row]) -> Tensor:
    """A model that answers twice the age."""
    ages = np.array([np.frombuffer(row[0], np.float32)[0] for row in rows])
    return Tensor(Datatype.FP32, (len(rows),), ages * np.float32(2))


TOGETHER = "as expected in calls of 128 too"


class World:
    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]] | None,
        steps: Steps = NO_MORE_STEPS,
        *,
        is_text: bool = False,
        version: Mapping[str, Any] | None = None,
    ) -> None:
        self.version = {"input_schema": SCHEMA, **(version or {})}
        self.rows = None if rows is None else CaseRows(rows, is_text)
        self.steps = steps
        self.backend = MemoryBackend(twice)

    async def check(self, *, has_callers: bool = False, is_required: bool = False) -> str:
        async def read_rows(_: Path) -> CaseRows | None:
            return self.rows

        async def ask(model_name: str, version: str, rows: CaseRows | None, steps: Steps) -> str:
            asked = a_version(version, model_name, **self.version)
            return await ask_version(lambda _: self.backend, asked, rows, steps)

        validation = ArtifactValidation(read_rows, ask, self.steps)
        return await validation.check("visits", "1", Path(), has_callers=has_callers, is_required=is_required)


async def test_an_artifact_without_cases_is_not_asked():
    world = World(None)

    assert await world.check() == ""
    assert world.backend.calls == []


async def test_every_case_is_a_call_of_its_own_and_then_one_of_a_full_call():
    world = World([{"age": 1.5, "expected": 3}, {"age": 2, "expected": 4.00001}])

    assert await world.check() == f"2 cases answered as expected; {TOGETHER}"
    assert [len(rows) for rows in world.backend.calls] == [1, 1, 128]


async def test_a_version_that_takes_one_row_a_call_is_asked_its_cases_by_themselves():
    world = World([{"age": 1.5, "expected": 3}])
    world.backend.rows_per_call = 1

    assert await world.check() == "1 cases answered as expected"
    assert [len(rows) for rows in world.backend.calls] == [1]


async def test_a_version_that_may_answer_otherwise_is_asked_its_cases_once():
    world = World([{"age": 1.5, "expected": 3}], version={"deterministic": False})

    assert await world.check() == "1 cases answered as expected"


async def test_long_rows_are_asked_fewer_at_a_time():
    wide = {"features": [{"name": "x", "dtype": "float32", "shape": [MAX_CALL_BYTES // 12]}]}
    world = World([{"x": [1.5] * (MAX_CALL_BYTES // 12), "expected": 3}] * 4, version={"input_schema": wide})

    assert await world.check() == "4 cases answered as expected; as expected in calls of 3 too"
    assert [len(rows) for rows in world.backend.calls] == [1, 1, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("mixed", "said"),
    [
        (lambda values: values[::-1], "the answers come in the reverse order"),
        (lambda values: np.full_like(values, values[0]), "each row has the answer of the first one"),
        (lambda values: np.roll(values, -1), "each row has the answer of the next one"),
        (lambda values: np.roll(values, 1), "each row has the answer of the one before"),
        (lambda values: values + values.std(), "128 of the 128 rows differ"),
    ],
)
async def test_a_case_that_is_answered_otherwise_among_others_fails_and_the_order_is_told(mixed, said):
    world = World([{"age": age, "expected": 2 * age} for age in range(5)])
    world.backend.function = lambda rows: replace(twice(rows), values=mixed(twice(rows).values))

    with pytest.raises(NotValidated, match=rf"^case \d \(\d of 5\), among 128 cases in one call: .*by itself; {said}"):
        await world.check()


async def test_a_server_that_refuses_many_rows_passes_as_proxies_ask_it_in_parts():
    world = World([{"age": 1.5, "expected": 3}])

    def answer(rows: Sequence[Row]) -> Tensor:
        if len(rows) > 1:
            raise BadAnswer("the model server refused the call with INVALID_ARGUMENT")
        return twice(rows)

    world.backend.function = answer

    assert (await world.check()).endswith(
        "; 128 cases in one call are refused, and asked in parts: the model server "
        "refused the call with INVALID_ARGUMENT"
    )


async def test_cases_of_a_csv_file_are_asked_as_the_numbers_that_they_mean():
    world = World([{"age": "1.5", "expected": "3"}], is_text=True)

    assert await world.check() == f"1 cases answered as expected; {TOGETHER}"


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


async def test_a_server_that_is_away_is_no_failure_of_a_case_which_is_named_all_the_same():
    world = World([{"age": 1, "expected": 2}])
    world.backend.error = BackendUnavailable("no replica answers")

    with pytest.raises(BackendUnavailable, match=r"^case 1 \(1 of 1\): no replica answers"):
        await world.check()


async def test_a_case_without_an_answer_in_time_fails_unless_the_server_is_not_ready():
    wedged, away = (World([{"age": 1, "expected": 2}]) for _ in range(2))
    wedged.backend.error = away.backend.error = DeadlineExceeded("upstream", 5.0)
    away.backend.is_ready = False

    with pytest.raises(
        NotValidated, match=r"case 1 \(1 of 1\): no answer within 5 s of a model server that says it is"
    ):
        await wedged.check()
    with pytest.raises(
        BackendUnavailable, match=r"case 1 \(1 of 1\): no answer within 5 s, and the model server is not"
    ):
        await away.check()


async def test_a_case_has_as_long_as_the_version_itself_allows():
    world, allowed = World([{"age": 1, "expected": 2}], version={"timeout_ms": 20_000}), []
    infer = world.backend.infer

    async def timed(rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        allowed.append(timeout_seconds)
        return await infer(rows, timeout_seconds)

    world.backend.infer = timed  # type: ignore[method-assign]  # what a call is allowed is seen nowhere else
    await world.check()

    assert set(allowed) == {20.0}


async def test_the_worst_case_is_named_and_how_many_differ():
    world = World([{"age": age, "expected": 2 * age + (age == 3) + 5 * (age == 4)} for age in range(1, 9)])

    with pytest.raises(NotValidated, match=r"^case 4 \(4 of 8\): 8 is not 13 ± 0.0013; 2 of 8 cases differ$"):
        await world.check()


async def test_after_a_hundred_cases_that_differ_no_more_are_asked():
    world = World([{"age": age, "expected": 5} for age in range(500)])

    with pytest.raises(NotValidated, match=r"\(\d+ of 500\): .*; 100 of 10[01] cases differ"):
        await world.check()


async def test_what_may_be_the_cause_is_told():
    factor = World([{"age": age, "expected": 6 * age} for age in range(1, 5)])
    other = World([{"age": age, "expected": (7, 3, 5, 1)[age]} for age in range(4)])
    unsteady, answers = World([{"age": 1, "expected": 2}, {"age": 2, "expected": 4}]), count(3)
    unsteady.backend.function = lambda rows: Tensor(Datatype.FP32, (1,), np.array([float(next(answers))], np.float32))

    with pytest.raises(NotValidated, match=r"4 of 4 cases differ: each answer is 0\.3333 times what is expected"):
        await factor.check()
    with pytest.raises(NotValidated, match="no order, unit or activation explains it: another model's file"):
        await other.check()
    with pytest.raises(NotValidated, match=r"asked again the same case has another answer \(3, then 5\)"):
        await unsteady.check()


async def test_two_inputs_that_the_model_has_the_wrong_way_round_are_named():
    names = ("age", "income", "ward")
    version = {"input_schema": {"features": [{"name": name, "dtype": "float32", "max": 9} for name in names]}}
    cases = [{"age": a, "income": 3.0 * a + 1, "ward": 2.0 - a, "expected": a + 10 * (3 * a + 1)} for a in (1.0, 2.0)]
    world = World(cases, version=version)

    def swapped(rows: Sequence[Row]) -> Tensor:
        age, income, _ = (np.array([np.frombuffer(row[n], np.float32)[0] for row in rows]) for n in range(3))
        return Tensor(Datatype.FP32, (len(rows),), income + 10 * age)

    world.backend.function = swapped

    with pytest.raises(NotValidated, match="with 'age' and 'income' exchanged it answers as expected"):
        await world.check()


async def test_an_answer_that_is_another_one_while_others_are_asked_fails_under_load():
    world = World([{"age": age, "expected": 2 * age} for age in range(5)], Steps(load_seconds=5.0))
    world.backend.function = lambda rows: replace(
        twice(rows), values=twice(rows).values + (world.backend.in_flight > 1)
    )
    infer = world.backend.infer

    async def slow(rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        world.backend.in_flight += 1
        await asyncio.sleep(0.001)
        world.backend.in_flight -= 1
        return await infer(rows, timeout_seconds)

    world.backend.infer = slow  # type: ignore[method-assign]  # calls have to overlap

    with pytest.raises(NotValidated, match=r"with 4 calls at a time case \d \(\d of 5\): .*; it was right by itself"):
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

    assert await world.check(has_callers=True) == f"1 cases answered as expected; {TOGETHER}"

    assert len(world.backend.calls) == 2


async def test_a_step_that_fails_is_the_last_and_its_words_are_told():
    world = World([{"age": 1, "expected": 2}], Steps(hard_calls=True, load_seconds=300.0))
    world.backend.function = lambda rows: Tensor(Datatype.FP32, (1,), np.full(1, 2.0))

    with pytest.raises(NotValidated, match=r"hard call 10 \(7 rows\): the output's shape is .1. for 7 rows"):
        await world.check()
