"""An outcome's id in SQL: whose it is, and what the statement of the release before makes of it."""

import asyncpg
import pytest

# As the release before sends it: its ON CONFLICT needs a unique index on event_id alone.
ADD_AS_BEFORE = """
    INSERT INTO outcomeevent (event_id, model_name, entity_id, name, value, occurred_at)
    SELECT event_id, model_name, 'cust-42', 'bought', 1, now()
    FROM unnest($1::text[], $2::text[]) AS given (event_id, model_name)
    ORDER BY event_id
    ON CONFLICT (event_id) DO NOTHING
    RETURNING event_id
"""
ADD = (
    "INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)"
    " VALUES ($1, $2, 'u', 'n', 1, now())"
)
STORED = "SELECT model_name, coalesce(sent_as, event_id) FROM OutcomeEvent ORDER BY 1, 2"


async def stored(database: asyncpg.Connection) -> list[tuple[str, str]]:
    return [tuple(row) for row in await database.fetch(STORED)]


async def test_the_statement_of_the_release_before_counts_an_event_once_and_loses_none_to_another_model(database):
    new = await database.fetch(ADD_AS_BEFORE, ["e1", "e2"], ["digits", "digits"])
    known = await database.fetch(ADD_AS_BEFORE, ["e1"], ["digits"])
    await database.fetch(ADD_AS_BEFORE, ["e1", "e3"], ["visits", "visits"])
    again = await database.fetch(ADD_AS_BEFORE, ["e1", "e3"], ["visits", "visits"])

    assert [row[0] for row in new] == ["e1", "e2"]
    assert known == again == []
    assert await stored(database) == [("digits", "e1"), ("digits", "e2"), ("visits", "e1"), ("visits", "e3")]


async def test_a_plain_insert_of_an_id_that_another_model_has_is_stored_under_a_random_one(database):
    await database.execute(ADD, "e1", "digits")

    await database.execute(ADD, "e1", "visits")
    with pytest.raises(asyncpg.UniqueViolationError):
        await database.execute(ADD, "e1", "digits")
    again = await database.execute(ADD, "e1", "visits")

    assert again == "INSERT 0 0"
    assert await stored(database) == [("digits", "e1"), ("visits", "e1")]
    assert await database.fetchval("SELECT length(event_id) FROM OutcomeEvent WHERE model_name = 'visits'") == 36


async def test_an_event_under_a_random_id_is_known_when_the_other_models_row_is_deleted_by_age(database):
    await database.execute(ADD, "e1", "digits")
    await database.execute(ADD, "e1", "visits")
    await database.execute("DELETE FROM OutcomeEvent WHERE model_name = 'digits'")

    await database.execute(ADD, "e1", "visits")

    assert await stored(database) == [("visits", "e1")]
