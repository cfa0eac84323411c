"""An attacker with the login of a proxy, which may lock ``ProxyInstance`` as long as it likes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg


@asynccontextmanager
async def locked_reports(database_url: str) -> AsyncIterator[None]:
    """Keep the reports of proxies locked meanwhile, by a login that has the role of proxies and no other."""
    name = f"test_{uuid4().hex[:12]}"
    owner = await asyncpg.connect(database_url, timeout=10, command_timeout=30)
    await owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_proxy")
    try:
        thief = await asyncpg.connect(
            f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}", timeout=10, command_timeout=30
        )
        try:
            async with thief.transaction():
                await thief.execute("LOCK TABLE ProxyInstance IN ACCESS EXCLUSIVE MODE")
                yield
        finally:
            await thief.close(timeout=5)
    finally:
        await owner.execute(f"DROP ROLE {name}")
        await owner.close(timeout=5)
