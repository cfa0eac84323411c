"""A short history on real processes: it is made, keeps every promise, and can be checked again from its file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rigs.histories.__main__ import _line, _summary
from rigs.histories.check import check
from rigs.histories.record import Kind, read_history
from rigs.histories.run import Result, a_machine, make, result_of, results_of


@pytest.mark.timeout(300)
async def test_a_history_of_real_processes_with_faults_is_made_and_keeps_every_promise(tmp_path):
    async with a_machine() as machine:
        history = await make(machine, seed=3, each=16)
        result = await result_of(machine, 11, tmp_path, keep=True, each=6)

    assert list(map(str, check(history))) == []
    assert len(history.records) >= 64
    assert any(record.operation.kind is Kind.FAULT for record in history.records)
    assert (result.findings, result.counts["operations"]) == ([], 24)
    assert check(read_history(tmp_path / "11.json")) == []


class Attempts:
    """Makes histories as it is told to: a seed that is listed cannot be made, so many times."""

    def __init__(self, failures: dict[int, int], stood_still: float) -> None:
        self.failures, self.seconds, self.machines = failures, stood_still, 0

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        self.machines += 1
        yield None

    async def make(self, _machine: Any, seed: int) -> Result:
        self.failures[seed] = self.failures.get(seed, 0) - 1
        return Result(seed, 1.0, trouble="it broke" if self.failures[seed] >= 0 else "")

    async def results(self) -> list[Result]:
        found = results_of([1, 2, 3], self.make, lend=self.lend, stood_still=lambda _since: self.seconds)
        return [result async for result in found]


async def test_a_history_that_failed_while_the_machine_stood_still_is_told_counted_and_made_again():
    attempts = Attempts({2: 1}, stood_still=1.5)

    results = await attempts.results()

    assert [(result.seed, result.trouble, result.is_made_again) for result in results] == [
        (1, "", False), (2, "it broke", True), (2, "", False), (3, "", False),
    ]  # fmt: skip
    assert attempts.machines == 2
    assert _line(results[1]) == "seed 2: FAILED, the machine stood still for 1.5 s, made again: it broke"
    assert "3 of 3 histories" in _summary(results, 3, 60.0)
    assert "1 failed at first while the machine stood still: 2" in _summary(results, 3, 60.0)


async def test_a_history_that_failed_on_a_machine_that_went_on_is_not_made_again():
    results = await Attempts({2: 1}, stood_still=0.0).results()

    assert [(result.seed, result.trouble) for result in results] == [(1, ""), (2, "it broke"), (3, "")]
    assert "not made" in _line(results[1])
    assert "2 of 3 histories" in _summary(results, 3, 60.0)
    assert "1 not made" in _summary(results, 3, 60.0)


async def test_a_history_that_fails_twice_is_not_made():
    results = await Attempts({2: 2}, stood_still=1.5).results()

    assert [(result.seed, result.is_made_again) for result in results] == [
        (1, False), (2, True), (2, False), (3, False),
    ]  # fmt: skip
    assert "1 not made" in _summary(results, 3, 60.0)


async def test_why_a_history_could_not_be_made_is_kept_of_each_attempt(tmp_path):
    for _ in range(2):
        result = await result_of(None, 7, tmp_path / "new", each=1)  # type: ignore[arg-type]  # there is no machine

    assert result.trouble
    assert (tmp_path / "new" / "7.failed.txt").read_text().count(result.trouble) == 2
