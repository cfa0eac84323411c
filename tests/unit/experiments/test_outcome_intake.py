"""How outcome events of files and batches come in."""

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.memory.outcomes import MemoryOutcomeStore
from understudy.core.experiments.outcome_events import MAX_EVENTS, read_outcome_batch
from understudy.errors import BatchInvalid, LoginNotAllowed, RegistryUnavailable, ScopeMissing
from understudy.experiments.outcome_intake import MAX_AHEAD_SECONDS, OutcomeImport, add_outcomes, batches
from understudy.ports.experiments.outcome_store import FileRow, OutcomeResult

NOW = 1_795_179_731.0  # on 20 November 2026, after the events here


def a_row(line: int, **changes: Any) -> FileRow:
    cells = {
        "event_id": f"e{line}",
        "model": "churn",
        "entity_id": "cust-42",
        "name": "converted",
        "value": "1",
        "occurred_at": "2026-11-20T13:02:11Z",
    }
    return FileRow(line, {**cells, **changes})


async def test_a_row_that_cannot_be_used_is_named_by_its_line_and_costs_no_other():
    store = MemoryOutcomeStore()
    importing = OutcomeImport(store)

    bad = await importing.add([a_row(2), a_row(3, value="many"), FileRow(4, {}, "is no row"), a_row(5)])

    assert [(row.line, row.event_id, row.violations[0].pointer) for row in bad] == [(3, "e3", "/value"), (4, None, "")]
    assert bad[1].violations[0].detail == "is no row"
    assert [event_id for _, event_id in store.kept] == ["e2", "e5"]
    assert tuple(importing.total) == (4, 2, 0, 2)


class StoreOfAKey(MemoryOutcomeStore):
    """As a proxy answers a key that may send outcomes of one model: a question about another one is refused whole."""

    async def unknown_models(self, names: Collection[str]) -> frozenset[str]:
        if set(names) - {"churn"}:
            raise ScopeMissing("the key may not send outcomes of all of these models")
        return await super().unknown_models(names)


async def test_rows_of_a_model_that_the_key_may_not_touch_are_named_and_the_others_are_stored():
    store = StoreOfAKey()
    importing = OutcomeImport(store)

    bad = await importing.add([a_row(2), a_row(3, model="fraud"), a_row(4)])

    assert [(row.line, row.violations[0].detail) for row in bad] == [(3, "the key may not send outcomes of fraud")]
    assert [event_id for _, event_id in store.kept] == ["e2", "e4"]
    with pytest.raises(ScopeMissing, match="line 7: the key may not send outcomes of fraud"):
        await OutcomeImport(store).add([a_row(7, model="fraud")])


async def test_a_dry_run_finds_the_rows_that_cannot_be_used_and_stores_none():
    store = MemoryOutcomeStore()
    importing = OutcomeImport(store, dry_run=True)

    bad = await importing.add([a_row(2), a_row(3, value="many")])

    assert [row.line for row in bad] == [3]
    assert tuple(importing.total) == (2, 0, 0, 1)
    assert importing.new_metrics == {("churn", "converted")}
    assert store.kept == {}


async def test_a_file_that_is_imported_again_adds_nothing():
    store = MemoryOutcomeStore()
    await OutcomeImport(store).add([a_row(2), a_row(3)])
    again = OutcomeImport(store)

    await again.add([a_row(2), a_row(3), a_row(4)])

    assert tuple(again.total) == (3, 1, 2, 0)


async def test_a_batch_that_could_not_be_stored_is_not_counted():
    store = MemoryOutcomeStore()
    importing = OutcomeImport(store)
    await importing.add([a_row(2)])
    store.available = False

    with pytest.raises(RegistryUnavailable):
        await importing.add([a_row(3)])

    assert importing.total.rows == 1


@given(st.integers(0, 3 * MAX_EVENTS))
def test_batches_hold_every_row_once_in_order_and_a_thousand_at_most(count):
    found = list(batches(FileRow(line, {}) for line in range(count)))

    assert [row.line for batch in found for row in batch] == list(range(count))
    assert all(len(batch) == MAX_EVENTS for batch in found[:-1])
    assert all(0 < len(batch) <= MAX_EVENTS for batch in found)


async def test_a_document_is_stored_whole_or_not_at_all():
    good = dict(a_row(1, value=1).cells)

    with pytest.raises(BatchInvalid) as refused:
        read_outcome_batch({"events": [good, {**good, "value": None}]})
    added = await add_outcomes(MemoryOutcomeStore(), read_outcome_batch({"events": [good]}), now=NOW)

    assert [violation.pointer for violation in refused.value.violations] == ["/events/1/value"]
    assert [tuple(one) for one in added] == [("e1", OutcomeResult.NEW)]


async def test_an_event_of_no_registered_model_or_of_the_future_refuses_its_batch_and_is_named():
    store = MemoryOutcomeStore(["churn"])
    good = dict(a_row(1, value=1).cells)
    bad = [{**good, "model": "chrun"}, {**good, "occurred_at": "2036-11-20T13:02:11Z"}]

    with pytest.raises(BatchInvalid, match="2 of 3 events cannot be used") as refused:
        await add_outcomes(store, read_outcome_batch({"events": [good, *bad]}), now=NOW)

    assert [tuple(violation) for violation in refused.value.violations] == [
        ("/events/1/model", "no model of this name is registered"),
        ("/events/2/occurred_at", "lies more than an hour in the future"),
    ]
    assert store.kept == {}


async def test_an_event_a_little_ahead_of_this_clock_is_taken():
    outcomes = read_outcome_batch({"events": [dict(a_row(1, value=1).cells)]})

    added = await add_outcomes(MemoryOutcomeStore(), outcomes, now=outcomes[0].occurred_at - MAX_AHEAD_SECONDS)

    assert [result for _, result in added] == [OutcomeResult.NEW]


async def test_such_rows_of_a_file_are_listed_by_their_lines_and_the_others_are_stored():
    store = MemoryOutcomeStore(["churn"])
    importing = OutcomeImport(store, lambda: NOW)

    bad = await importing.add(
        [a_row(2, model="chrun"), a_row(3), a_row(4, value="many"), a_row(5, occurred_at="2036-11-20T13:02:11Z")]
    )

    assert [(row.line, row.violations[0].pointer) for row in bad] == [(2, "/model"), (4, "/value"), (5, "/occurred_at")]
    assert tuple(importing.total) == (4, 1, 0, 3)


async def test_a_name_that_no_outcome_of_the_model_had_is_named_once():
    store = MemoryOutcomeStore()
    await OutcomeImport(store).add([a_row(2)])
    importing = OutcomeImport(store)

    await importing.add([a_row(3), a_row(4, name="convertd"), a_row(5, model="fraud")])
    await importing.add([a_row(6, name="convertd")])

    assert importing.new_metrics == {("churn", "convertd"), ("fraud", "converted")}


async def test_a_login_that_may_only_store_outcomes_stores_them():
    class Storing(MemoryOutcomeStore):
        async def new_metrics(self, metrics: Any) -> Any:
            raise LoginNotAllowed

    importing = OutcomeImport(Storing())

    await importing.add([a_row(2)])

    assert (importing.total.new, importing.new_metrics) == (1, set())
