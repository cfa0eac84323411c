"""Connections to Postgres ask for its built-in types once a process, and for a database's own each time."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.adapters.postgres.connections.connection import connect

QUESTION = "typeinfo_tree"
"""The name that asyncpg's own query gives what it asks for."""
A_TIME = datetime(2026, 11, 23, tzinfo=UTC)
ARRAYS: dict[str, list[Any]] = {
    "text[]": ["a", None, "é,{}"],
    "bigint[]": [1, None, -(2**63)],
    "float8[]": [0.5, float("inf")],
    "uuid[]": [uuid.UUID(int=7)],
    "timestamptz[]": [A_TIME],
    "boolean[]": [True, None],
    "jsonb[]": ['{"a": 1}'],
}


async def asked_by(database_url: str, query: str, *values: Any) -> tuple[list[Any], int]:
    """Ask on a connection of its own; returns the first row and how often the server was asked for types."""
    connection = await connect(database_url, timeout_seconds=20, application_name="test")
    statements: list[str] = []
    connection.add_query_logger(lambda record: statements.append(record.query))
    try:
        rows = await connection.fetch(query, *values)
    finally:
        await connection.close(timeout=5)
    return list(rows[0]), sum(QUESTION in statement for statement in statements)


@pytest.mark.parametrize("array", ARRAYS)
async def test_only_the_first_connection_asks_what_a_built_in_array_consists_of(database_url: str, array: str):
    query = f"SELECT $1::{array}, pg_typeof($1)::text"

    first, _ = await asked_by(database_url, query, ARRAYS[array])
    second, questions = await asked_by(database_url, query, ARRAYS[array])

    assert first == second
    assert second[0] == ARRAYS[array]
    assert questions == 0


@pytest.mark.parametrize("array", ["pg_catalog.pg_enum[]", "information_schema.sql_identifier[]"])
async def test_a_type_whose_number_was_given_when_the_cluster_was_made_is_asked_for_by_each_connection(
    database_url: str, array: str
):
    query = f"SELECT ARRAY[]::{array}, '{array}'::regtype::oid::bigint BETWEEN 10000 AND 16383"

    answers = [await asked_by(database_url, query) for _ in range(2)]

    assert answers == [([[], True], 1), ([[], True], 1)]


async def test_a_type_of_the_databases_own_is_asked_for_by_each_connection(database_url: str):
    connection = await connect(database_url, timeout_seconds=20, application_name="test")
    await connection.execute("CREATE TYPE mood AS ENUM ('calm', 'busy')")
    await connection.close(timeout=5)

    answers = [await asked_by(database_url, "SELECT ARRAY['calm']::mood[]") for _ in range(2)]

    assert answers == [([["calm"]], 1), ([["calm"]], 1)]
