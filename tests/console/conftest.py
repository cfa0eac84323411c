"""What the browser's tests share: the browser, a rollout two minutes in, and a second database."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import asyncpg
import pytest
from conftest import PostgresServer
from console.browser_world import CHROMIUM
from loopback.server_statements import ServerStatements
from playwright.async_api import Browser, async_playwright
from worlds.rollout import TWINS, PastRollout


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.fail("Debian's chromium is missing: apt-get install chromium")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
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
