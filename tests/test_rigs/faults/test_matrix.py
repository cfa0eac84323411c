"""The runner of the fault matrix sees a fault that costs nothing, and one that does."""

import sys

import pytest

from rigs.faults.__main__ import main, run_all
from rigs.faults.champion import refused
from rigs.faults.matrix import chosen
from rigs.faults.row import Row, Span, at_most

SHORT = Span(1.0, 2.0, 1.0)
PATIENT_MS = 1_900
"""Before callers give up, and longer than a busy machine's pauses."""


@pytest.mark.timeout(120)
async def test_a_refused_postgres_costs_no_answer_and_no_row_and_a_refused_champion_is_seen():
    (postgres,) = chosen(["PG-03"])
    bounds = tuple(bound for bound in postgres.bounds if bound.figure in ("failed", "rows_lost", "rows_dup"))
    harmless = Row(postgres.id, postgres.fault, postgres.expected, bounds, postgres.run)
    harmful = Row("CH-01", "only replica refuses connections", "harm", at_most(refused=0), refused)

    results, _ = await run_all([harmless, harmful], SHORT, deadline_ms=PATIENT_MS)

    assert [result.verdict for result in results] == ["pass", "short"], [result.as_json() for result in results]
    assert results[0].figures["requests"] > 300
    assert results[1].figures["refused"] > 0
    assert results[1].figures["cached_answered"] > 0


@pytest.mark.parametrize("names", [["PG", "BE"], ["BE-01"]])
def test_a_family_that_there_is_not_is_refused_also_beside_one_that_there_is(names, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["faults", "--only", *names])

    assert main() == 2
    assert f"no row is called {names[-1]}; there are BASE PG-01" in capsys.readouterr().err
