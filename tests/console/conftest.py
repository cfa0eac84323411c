"""What the browser's tests share: one browser, a rollout two minutes in, and a second database."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from conftest import PostgresServer
from console.browser_world import CHROMIUM
from loopback.server_statements import CONNECT_SECONDS, STATEMENT_SECONDS, ServerStatements
from playwright.async_api import Browser, async_playwright
from worlds.rollout import TWINS, PastRollout

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests in one event loop: a browser is of the loop that started it, and starting takes two seconds."""
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of all tests; each opens a context of its own, which shares nothing with another."""
    if CHROMIUM is None:
        pytest.fail("Debian's chromium is missing: apt-get install chromium")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def database(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the test's database, in the loop of these tests."""
    connection = await asyncpg.connect(database_url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS)
    yield connection
    connection.terminate()


@pytest_asyncio.fixture(loop_scope="session")
async def rollout(database: asyncpg.Connection, database_url: str) -> PastRollout:
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    await past.go_on(2)
    return past


@pytest.fixture
def other_url(postgres: PostgresServer, statements: ServerStatements, migrated_template: str) -> Iterator[str]:
    """Another migrated database, like the test's own."""
    name = f"understudy_test_{uuid4().hex[:12]}"
    statements.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} {postgres.copied}")
    yield postgres.url_of(name)
    statements.execute(f"DROP DATABASE {name} WITH (FORCE)")
