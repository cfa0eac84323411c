"""A short history on real processes: it is made, keeps every promise, and can be checked again from its file."""

import pytest

from rigs.histories.check import check
from rigs.histories.record import Kind, read_history
from rigs.histories.run import a_machine, make, result_of


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
