"""The page about failure says what the committed run of the fault matrix found."""

import orjson

from rigs.faults.matrix import ROWS
from rigs.faults.page import BASELINE, PAGE, RUNGS, filled, marked, tables

ASK_MORE_SINCE: frozenset[str] = frozenset({"AL-04"})
"""Rows that ask for more than the committed run did; the page shows what was asked then. The next run empties this."""


def test_the_page_has_the_figures_of_the_committed_run():
    document = orjson.loads(BASELINE.read_bytes())
    page = PAGE.read_text()

    assert filled(page, document) == page
    assert all(marked(page, name) == text for name, text in tables(document).items())


def test_the_committed_run_is_of_every_row():
    document = orjson.loads(BASELINE.read_bytes())

    assert [row["id"] for row in document["rows"]] == [row.id for row in ROWS]
    assert {rung.row for rung in RUNGS} <= {row.id for row in ROWS}
    changed = {row["id"] for row, known in zip(document["rows"], ROWS, strict=True) if row["fault"] != known.fault}
    assert changed <= ASK_MORE_SINCE
