"""What every revision's schema looks like on the way up, read once; and databases at a revision, copied."""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple
from uuid import uuid4

import asyncpg
import orjson
import pytest
from catalogue import Catalogue, catalogue_of
from conftest import PostgresServer
from loopback.server_statements import ServerStatements
from traffic.clusters import shared_folder
from traffic.migration_rows import Columns, columns_of

from understudy.adapters import migrations


class Database(NamedTuple):
    """A test's own database, with an open connection to it."""

    url: str
    connection: asyncpg.Connection


AtRevision = Callable[[str], AbstractAsyncContextManager[Database]]


class Climb(NamedTuple):
    """What was seen at each revision."""

    catalogues: dict[str, Catalogue]
    columns: dict[str, Columns]


@asynccontextmanager
async def session_of(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, timeout=10, command_timeout=60)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@pytest.fixture(scope="session")
def climb(postgres: PostgresServer) -> Climb:
    """A database that came up to each revision, one after the other, with nothing in it.

    One worker climbs for all of them, which takes some seconds of a processor.
    """
    of_all = shared_folder() / "steps.json"
    with of_all.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not of_all.exists():
            of_all.write_bytes(orjson.dumps(asyncio.run(_climb(postgres))._asdict()))
    return Climb(**orjson.loads(of_all.read_bytes()))


@pytest.fixture(scope="session")
def steps(climb: Climb) -> Mapping[str, Catalogue]:
    """The catalogue of an empty database at each revision."""
    return climb.catalogues


async def _climb(postgres: PostgresServer) -> Climb:
    name = f"understudy_steps_{uuid4().hex[:12]}"
    found = Climb({}, {})
    async with session_of(postgres.url) as server:
        await server.execute(f"CREATE DATABASE {name}")
        try:
            async with session_of(postgres.url_of(name)) as database:
                for revision in migrations.revisions():
                    await migrations.upgrade(postgres.url_of(name), revision)
                    found.catalogues[revision] = await catalogue_of(database)
                    found.columns[revision] = await columns_of(database)
        finally:
            await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    return found


class RevisionDatabases:
    """Empty databases at a revision, each made from the nearest one below that was asked for before."""

    def __init__(self, postgres: PostgresServer, statements: ServerStatements, newest: str) -> None:
        self._postgres = postgres
        self._statements = statements
        self._made = {migrations.head(): newest}

    async def copy(self, name: str, revision: str) -> str:
        """Make a database that is the caller's own; return its URL."""
        if revision not in self._made:
            self._made[revision] = await self._make(revision)
        self._create(name, self._made[revision])
        return self._postgres.url_of(name)

    def drop(self, name: str) -> None:
        self._statements.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        """Drop all but the newest, which was given."""
        for revision in self._made.keys() - {migrations.head()}:
            self.drop(self._made[revision])

    async def _make(self, revision: str) -> str:
        name = f"understudy_at_{revision}_{uuid4().hex[:12]}"
        below = max((made for made in self._made if made < revision), default=None)
        self._create(name, None if below is None else self._made[below])
        await migrations.upgrade(self._postgres.url_of(name), revision)
        return name

    def _create(self, name: str, template: str | None) -> None:
        of = "" if template is None else f" TEMPLATE {template}"
        self._statements.execute(f"CREATE DATABASE {name}{of} {self._postgres.copied}")


@pytest.fixture(scope="session")
def revision_databases(
    postgres: PostgresServer, statements: ServerStatements, migrated_template: str
) -> Iterator[RevisionDatabases]:
    made = RevisionDatabases(postgres, statements, migrated_template)
    yield made
    made.close()


@pytest.fixture
def at_revision(revision_databases: RevisionDatabases) -> AtRevision:
    """Makes a database of the test's own that came up to a revision."""

    @asynccontextmanager
    async def database(revision: str) -> AsyncIterator[Database]:
        name = f"understudy_test_{uuid4().hex[:12]}"
        try:
            url = await revision_databases.copy(name, revision)
            async with session_of(url) as connection:
                yield Database(url, connection)
        finally:
            revision_databases.drop(name)

    return database
