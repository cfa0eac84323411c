"""What every revision's schema looks like on the way up, read once."""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import orjson
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
def steps(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Mapping[str, Catalogue]:
    """The catalogue of a database that came up to each revision, one after the other, with nothing in it.

    One worker climbs for all of them, which takes some seconds of a processor.
    """
    if worker_id == "master":
        return asyncio.run(_climb(postgres))
    of_all = tmp_path_factory.getbasetemp().parent / "steps.json"
    with of_all.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not of_all.exists():
            of_all.write_bytes(orjson.dumps(asyncio.run(_climb(postgres))))
    found: Mapping[str, Catalogue] = orjson.loads(of_all.read_bytes())
    return found


async def _climb(postgres: PostgresServer) -> Mapping[str, Catalogue]:
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
