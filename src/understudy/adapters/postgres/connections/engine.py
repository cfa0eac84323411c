"""SQLAlchemy over the connections of Postgres; a module of its own, because importing it takes half a second."""

from contextlib import AbstractAsyncContextManager

import asyncpg
from sqlalchemy import NullPool
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from understudy.adapters.postgres.connections import connection as postgres_connection
from understudy.adapters.postgres.connections.connection import VENDOR_ERRORS, connect


def make_engine(database_url: str, *, timeout_seconds: float, application_name: str) -> AsyncEngine:
    """Return an engine over :func:`connect`; it opens a connection for each use and keeps none."""

    async def open_connection() -> asyncpg.Connection:
        return await connect(database_url, timeout_seconds=timeout_seconds, application_name=application_name)

    return create_async_engine("postgresql+asyncpg://", async_creator=open_connection, poolclass=NullPool)


def translated(what: str, timeout_seconds: float | None = None) -> AbstractAsyncContextManager[None]:
    """As :func:`understudy.adapters.postgres.connections.connection.translated`, for SQLAlchemy's errors too."""
    return postgres_connection.translated(what, timeout_seconds, (*VENDOR_ERRORS, SQLAlchemyError))
