"""Rows of every table, as somebody has them whose database is at a revision."""

from pathlib import Path

import asyncpg

_ROWS = {
    path.stem: path.read_text() for path in sorted((Path(__file__).parents[1] / "migrations" / "rows").glob("*.sql"))
}
"""From a revision to the rows of what it adds."""
_TABLES = """
    SELECT relname AS name, string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
      AND relname <> 'alembic_version'
    GROUP BY relname
"""

Columns = dict[str, str]
"""From a table to its columns, as they stand in a SELECT."""
Contents = dict[str, tuple[int, str]]
"""From a table to how many rows it has, and to the sum of all of them."""


async def insert_rows(connection: asyncpg.Connection, revision: str) -> None:
    """Fill every table of a migrated database that is at a revision, and every column that somebody may lose."""
    statements = "".join(rows for since, rows in _ROWS.items() if since <= revision)
    await connection.execute(f"BEGIN; {statements} COMMIT")


async def columns_of(connection: asyncpg.Connection) -> Columns:
    """Return which tables there are, and their columns."""
    return {row["name"]: row["columns"] for row in await connection.fetch(_TABLES)}


async def contents_of(connection: asyncpg.Connection, columns: Columns, *, without_model: str = "") -> Contents:
    """Count and sum the rows of some columns of tables; those of one model may be left out."""
    found = {}
    for table, names in columns.items():
        where = f"WHERE model_name <> '{without_model}'" if without_model and "model_name" in names.split(", ") else ""
        (row,) = await connection.fetch(
            f"SELECT count(*), md5(coalesce(string_agg(one::text, '|' ORDER BY one::text), '')) FROM "
            f"(SELECT {names} FROM {table} {where}) AS one"
        )
        found[table] = (row[0], row[1])
    return found
