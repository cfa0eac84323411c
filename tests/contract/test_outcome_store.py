"""What every ``OutcomeStore`` does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from e2e.stack import register

from understudy.adapters.memory.outcomes import MemoryOutcomeStore
from understudy.adapters.postgres.experiments.outcomes import PostgresOutcomeStore
from understudy.core.experiments.outcome_events import MAX_EVENTS, OutcomeEvent
from understudy.errors import RegistryUnavailable
from understudy.ports.experiments.outcome_store import OutcomeResult, OutcomeStore

NEW, KNOWN = OutcomeResult.NEW, OutcomeResult.KNOWN
PREDICTION_ID = "019a9f3e-7b1c-7d2e-8f00-0123456789ab"


def an_outcome(event_id: str = "e1", **changes: Any) -> OutcomeEvent:
    return OutcomeEvent(event_id, "churn", "cust-42", None, "converted", 1.0, 1_795_179_731.25)._replace(**changes)


@pytest.fixture(params=["twin", "postgres"])
def postgres_url(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("database_url") if request.param == "postgres" else None


@pytest.fixture
async def store(postgres_url: str | None) -> AsyncIterator[OutcomeStore]:
    opened: OutcomeStore = (
        MemoryOutcomeStore() if postgres_url is None else PostgresOutcomeStore(postgres_url, timeout_seconds=5)
    )
    yield opened
    await opened.close()


async def kept(store: OutcomeStore, postgres_url: str | None) -> list[OutcomeEvent]:
    """Return what is stored, by event id."""
    if isinstance(store, MemoryOutcomeStore):
        return sorted(store.kept.values())
    connection = await asyncpg.connect(postgres_url)
    try:
        rows = await connection.fetch(
            "SELECT coalesce(sent_as, event_id) AS id, model_name, entity_id, prediction_id::text, name, value,"
            " extract(epoch FROM occurred_at)::float8 FROM OutcomeEvent"
            ' ORDER BY coalesce(sent_as, event_id) COLLATE "C", model_name'
        )
    finally:
        await connection.close()
    return [OutcomeEvent(*row) for row in rows]


async def test_an_event_is_kept_as_it_came(store, postgres_url):
    events = [
        an_outcome("e1"),
        an_outcome("e2", entity_id=None, prediction_id=PREDICTION_ID, value=-12.5),
        an_outcome("é\t'", name="revenue", value=1e300, occurred_at=-62_135_596_800.0),
        an_outcome("last", occurred_at=253_402_300_799.0),
    ]

    assert await store.add(events) == [NEW] * 4

    assert await kept(store, postgres_url) == sorted(events)


async def test_an_event_that_is_sent_again_counts_once_and_what_came_first_stands(store, postgres_url):
    await store.add([an_outcome("e1"), an_outcome("e2")])

    again = await store.add([an_outcome("e3"), an_outcome("e1", value=9.0), an_outcome("e2")])

    assert again == [NEW, KNOWN, KNOWN]
    assert [event.value for event in await kept(store, postgres_url)] == [1.0, 1.0, 1.0]


async def test_of_two_events_with_one_id_in_a_batch_the_first_counts(store, postgres_url):
    assert await store.add([an_outcome("e1", value=1.0), an_outcome("e1", value=2.0)]) == [NEW, KNOWN]

    assert [event.value for event in await kept(store, postgres_url)] == [1.0]


async def test_an_id_is_a_models_own_whichever_other_model_has_it_first(store, postgres_url):
    theirs, mine = an_outcome("e1", model_name="digits", value=0.0), an_outcome("e1", model_name="visits")

    first = await store.add([theirs])
    second = await store.add([mine, mine._replace(value=9.0)])
    again = await store.add(
        [mine, theirs, an_outcome("e2", model_name="visits"), an_outcome("e2", model_name="digits")]
    )

    assert [*first, *second, *again] == [NEW, NEW, KNOWN, KNOWN, KNOWN, NEW, NEW]
    assert [(event.model_name, event.value) for event in await kept(store, postgres_url)][:2] == [
        ("digits", 0.0),
        ("visits", 1.0),
    ]
    assert len(await kept(store, postgres_url)) == 4


async def test_two_models_whose_events_have_the_same_ids_and_come_at_once_keep_all_of_them(store, postgres_url):
    events = [an_outcome(f"e{number:04}") for number in range(MAX_EVENTS)]
    other: OutcomeStore = store if postgres_url is None else PostgresOutcomeStore(postgres_url, timeout_seconds=5)

    one, two = await asyncio.gather(
        store.add(events), other.add([event._replace(model_name="visits") for event in events[::-1]])
    )

    await other.close()
    assert set(one) == set(two) == {NEW}
    assert len(await kept(store, postgres_url)) == 2 * MAX_EVENTS


async def test_nothing_is_added_by_no_events(store):
    assert list(await store.add([])) == []


async def test_two_who_send_the_same_events_at_once_in_opposite_orders_both_end_and_count_them_once(
    store, postgres_url
):
    events = [an_outcome(f"e{number:04}") for number in range(MAX_EVENTS)]
    other: OutcomeStore = store if postgres_url is None else PostgresOutcomeStore(postgres_url, timeout_seconds=5)

    one, two = await asyncio.gather(store.add(events), other.add(events[::-1]))

    await other.close()
    assert [*one, *two].count(NEW) == MAX_EVENTS
    assert len(await kept(store, postgres_url)) == MAX_EVENTS


async def test_where_nobody_answers_nothing_is_promised():
    twin, real = MemoryOutcomeStore(), PostgresOutcomeStore("postgresql://nobody@127.0.0.1:1/none", timeout_seconds=2)
    twin.available = False

    for store in (twin, real):
        with pytest.raises(RegistryUnavailable):
            await store.add([an_outcome()])


async def test_models_that_are_not_registered_are_told(store: OutcomeStore, postgres_url: str | None):
    if postgres_url is None:
        store = MemoryOutcomeStore(["visits"])
    else:
        await register(postgres_url, 1, [1])

    assert await store.unknown_models({"visits", "vistis"}) == {"vistis"}
    assert await store.unknown_models({"visits"}) == frozenset()
    assert await store.unknown_models(set()) == frozenset()


async def test_it_says_which_names_no_outcome_of_a_model_had_before(store, postgres_url):
    await store.add([an_outcome("e1")])

    found = await store.new_metrics({("churn", "converted"), ("churn", "convertd"), ("fraud", "converted")})

    assert found == {("churn", "convertd"), ("fraud", "converted")}
    assert await store.new_metrics(()) == frozenset()
