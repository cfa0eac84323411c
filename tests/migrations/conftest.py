"""What every revision's schema looks like on the way up, read once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest
from catalogue import Catalogue, catalogue_of
from conftest import PostgresServer

from understudy.adapters import migrations

Look = Callable[[str], Awaitable[Catalogue]]


@asynccontextmanager
async def session_of(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, timeout=10, command_timeout=60)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@pytest.fixture(scope="session")
def steps(postgres: PostgresServer) -> Mapping[str, Catalogue]:
    """The catalogue of a database that came up to each revision, one after the other, with nothing in it."""

    async def climb() -> Mapping[str, Catalogue]:
        name = f"understudy_steps_{uuid4().hex[:12]}"
        found = {}
        async with session_of(postgres.url) as server:
            await server.execute(f"CREATE DATABASE {name}")
            try:
                async with session_of(postgres.url_of(name)) as database:
                    for revision in migrations.revisions():
                        await migrations.upgrade(postgres.url_of(name), revision)
                        found[revision] = await catalogue_of(database)
            finally:
                await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        return found

    return asyncio.run(climb())
