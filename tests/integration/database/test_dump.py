"""A dump holds every table, and comes back whole into another database."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from command import CommandLine
from conftest import PostgresServer
from loopback.server_statements import ServerStatements
from traffic.migration_rows import columns_of, contents_of, insert_rows

from understudy.adapters import migrations
from understudy.adapters.embedded.installations import find_installations

SEQUENCES = "SELECT sequencename::text, last_value FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1"


@pytest.fixture
def restored_url(postgres: PostgresServer, statements: ServerStatements) -> Iterator[str]:
    """An empty database of the same server."""
    name = f"understudy_test_{uuid4().hex[:12]}"
    statements.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    yield postgres.url_of(name)
    statements.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def run(program: str, *arguments: str) -> None:
    path = find_installations()[0].binary(program)
    done = await asyncio.to_thread(
        subprocess.run, [path, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


async def problems(database_url: str) -> list[str]:
    """Return what the preflight finds wrong; the rows themselves have numbers that no sequence gave."""
    done = await CommandLine(database_url).beside("db", "check", "--json")
    return [one["what"] for one in done.document["findings"] if one["state"] == "problem"]


async def test_a_dump_of_rows_in_every_table_comes_back_with_each_row_and_number_and_passes_the_check(
    database: asyncpg.Connection, database_url: str, restored_url: str, tmp_path: Path
):
    await insert_rows(database, migrations.head())
    columns = await columns_of(database)
    before, numbers = await contents_of(database, columns), await database.fetch(SEQUENCES)

    await run("pg_dump", "--dbname", database_url, "--format", "directory", "--file", str(tmp_path / "dump"))
    await run("pg_restore", "--dbname", restored_url, "--exit-on-error", str(tmp_path / "dump"))

    restored = await asyncpg.connect(restored_url, timeout=60)
    assert [table for table, (count, _) in before.items() if not count] == []
    assert await columns_of(restored) == columns
    assert await contents_of(restored, columns) == before
    assert await restored.fetch(SEQUENCES) == numbers
    await restored.close(timeout=5)
    assert await problems(restored_url) == await problems(database_url)
