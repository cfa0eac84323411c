"""Brings a database's schema to the one that this code needs.

The scripts lie inside the package, so that an installed wheel finds them as a checkout does; ``migrations/`` at the top
of the repository is a link to this folder, and ``alembic.ini`` names it for ``alembic revision``.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from understudy.adapters.postgres_engine import make_engine, translated
from understudy.errors import MigrationNeeded

T = TypeVar("T")
UPGRADE_SECONDS = 120.0
LOCK_TIMEOUT = "4s"
"""A migration that waits longer for a table would stall every query behind it (warehouse uses the same bound)."""
STATEMENT_TIMEOUT = "60s"
ROLES = (
    "understudy_proxy",
    "understudy_monitor",
    "understudy_engineer",
    "understudy_retention",
    "understudy_reader",
)
"""The roles that are granted to logins (docs/reference/sql.md says what each may)."""
# Each of them may read the revision, and nobody else is granted that.
_WITHOUT_RIGHTS = """
    SELECT name FROM unnest(CAST(:names AS text[])) AS name
    WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
       OR NOT has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = name), 'alembic_version', 'SELECT')
    ORDER BY name
"""
_MUTEX = 0x756E_6465_7273_7475  # "understu": two upgrades at once run one after the other


async def upgrade(database_url: str, revision: str = "head") -> str:
    """Upgrade the schema and return the revision that it is at; does nothing when it is there already.

    Raises:
        RegistryUnavailable: Postgres does not answer, or a lock was not to be had within 4 seconds: nothing changed.
        MigrationNeeded: The database is at a revision that this code does not know, so it is newer.
    """

    def run(connection: Connection) -> str:
        _refuse_newer(connection)
        command.upgrade(_config(connection), revision)
        # Roles belong to the server: some may be there now that nobody could make before.
        if connection.execute(text("SELECT to_regprocedure('understudy_grant_roles()') IS NOT NULL")).scalar():
            connection.execute(text("SELECT understudy_grant_roles()"))
        return _revision_of(connection) or ""

    return await _in_transaction(database_url, run)


async def downgrade(database_url: str, revision: str = "base") -> None:
    """Take migrations back; from the first one on this deletes every table and all data.

    Raises:
        RegistryUnavailable: As for :func:`upgrade`.
    """
    await _in_transaction(database_url, lambda connection: command.downgrade(_config(connection), revision))


async def current_revision(database_url: str) -> str | None:
    """Return the revision of the schema, ``None`` for an empty database.

    Raises:
        RegistryUnavailable: Postgres does not answer.
    """
    return await _in_transaction(database_url, _revision_of)


async def check(database_url: str) -> str:
    """Return the revision when it is the one that this code needs.

    Raises:
        MigrationNeeded: It is older or newer.
        RegistryUnavailable: Postgres does not answer.
    """
    found = await current_revision(database_url)
    if found != head():
        raise MigrationNeeded(f"the database's schema is at {found or 'nothing'}, this code needs {head()}")
    return found


async def roles_without_rights(database_url: str) -> Sequence[str]:
    """Return which of our roles are not there, or have no rights in this database; none where there are no such roles.

    Raises:
        RegistryUnavailable: Postgres does not answer.
    """

    def ask(connection: Connection) -> Sequence[str]:
        return [str(name) for name in connection.execute(text(_WITHOUT_RIGHTS), {"names": list(ROLES)}).scalars()]

    return await _in_transaction(database_url, ask)


def head() -> str:
    """Return the revision that this code needs."""
    return ScriptDirectory.from_config(_config(None)).get_current_head() or ""


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _revision_of(connection: Connection) -> str | None:
    revision: str | None = MigrationContext.configure(connection).get_current_revision()
    return revision


def _refuse_newer(connection: Connection) -> None:
    found = _revision_of(connection)
    known = {script.revision for script in ScriptDirectory.from_config(_config(None)).walk_revisions()}
    if found is not None and found not in known:
        raise MigrationNeeded(f"the database's schema is at {found}, which this version of Understudy does not know")


async def _in_transaction(database_url: str, work: Callable[[Connection], T]) -> T:
    engine = make_engine(database_url, timeout_seconds=UPGRADE_SECONDS, application_name="understudy-migrations")
    try:
        async with translated("the schema could not be read or changed", UPGRADE_SECONDS), engine.begin() as connection:
            await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
            await connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))
            await connection.execute(text("SELECT pg_advisory_xact_lock(:mutex)"), {"mutex": _MUTEX})
            return await connection.run_sync(work)
    finally:
        await engine.dispose()
