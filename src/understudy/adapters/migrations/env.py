"""Alembic's entry point for its own commands, such as ``alembic revision``, on the database of ``DATABASE_URL``."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from understudy.adapters.migrations.bounds import Patience, set_bounds
from understudy.adapters.postgres.connections.engine import make_engine
from understudy.adapters.postgres.tables import METADATA, is_compared


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        include_name=is_compared,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


async def _main() -> None:
    engine = make_engine(os.environ["DATABASE_URL"], timeout_seconds=60, application_name="alembic")
    try:
        async with engine.begin() as connection:
            await connection.run_sync(set_bounds, Patience())
            await connection.run_sync(_run)
    finally:
        await engine.dispose()


asyncio.run(_main())
