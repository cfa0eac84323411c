"""Brings a database's schema to the one that this code needs: revisions in `versions/rNNNN_name.py`, scripts in `sql/`.

The scripts lie inside the package, so that an installed wheel finds them as a checkout does; ``migrations/`` at the top
of the repository is a link to this folder, and ``alembic.ini`` names it for ``alembic revision``. Every call
raises ``RegistryUnavailable`` when Postgres does not answer.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import asyncpg
from alembic.migration import MigrationContext
from alembic.script import Script
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from understudy.adapters.migrations.bounds import PATIENCE, LockWatch, Patience, Wait, set_bounds
from understudy.adapters.migrations.losses import declared_losses, find_losses, lock_out_writers
from understudy.adapters.migrations.script_directory import (
    revisions_between,
    run_downgrade,
    run_upgrade,
    script_directory,
)
from understudy.adapters.postgres.connections.connection import asyncpg_error
from understudy.adapters.postgres.connections.engine import make_engine, translated
from understudy.errors import DataWouldBeLost, MigrationBlocked, MigrationNeeded, RegistryUnavailable

T = TypeVar("T")
UPGRADE_SECONDS = 120.0
"""For one revision, waits included."""
ROLES = (
    "understudy_proxy",
    "understudy_monitor",
    "understudy_engineer",
    "understudy_retention",
    "understudy_reader",
    "understudy_eraser",
    "understudy_agent",
)
"""The roles that are granted to logins (docs/reference/sql.md says what each may)."""
# Each of them, and no other role, is granted to read the revision.
_WITHOUT_RIGHTS = """
    SELECT name FROM unnest(CAST(:names AS text[])) AS name
    WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
       OR NOT has_table_privilege((SELECT oid FROM pg_roles WHERE rolname = name), 'alembic_version', 'SELECT')
    ORDER BY name
"""
_FAILED = "the schema could not be read or changed"
_MUTEX = 0x756E_6465_7273_7475
"""The advisory lock "understu": upgrades of an empty database take turns by it, and the release before waits for it."""
_HAS_SCHEMA = """
    SELECT EXISTS (SELECT FROM pg_class
                   WHERE relname = 'alembic_version' AND relnamespace = current_schema()::regnamespace)
"""


async def upgrade(database_url: str, revision: str = "head", *, patience: Patience = PATIENCE) -> str:
    """Upgrade the schema and return the revision that it is at; does nothing when it is there already.

    Each revision is a transaction of its own: locks are held for one revision and not for all of them, and an upgrade
    that is cut short leaves whole revisions.

    Args:
        database_url: A login that owns the tables.
        revision: Where to go; a revision below the schema's own is left at that.
        patience: How long it may wait for one lock, and work on one statement.

    Raises:
        RegistryUnavailable: Postgres does not answer, or a statement took longer than it may.
        MigrationBlocked: A lock could not be taken in time: the schema is at a whole revision, and another call goes
            on.
        MigrationNeeded: The database is at a revision that this code does not know, so it is newer.
        ValueError: There is no such revision.
    """

    def step(connection: Connection) -> bool:
        ahead = revisions_between(_known_revision_of(connection), revision)
        if ahead:
            with _naming(f"upgrading to {ahead[-1].revision}"):
                run_upgrade(connection, ahead[-1])
        # Roles belong to the server: some may exist now that an earlier upgrade had no right to create.
        elif connection.execute(text("SELECT to_regprocedure('understudy_grant_roles()') IS NOT NULL")).scalar():
            with _naming("granting the roles their rights"):
                connection.execute(text("SELECT understudy_grant_roles()"))
        return bool(ahead)

    async with _connected(database_url) as session:
        while await _in_transaction(session, database_url, step, patience):
            pass
        return await _in_transaction(session, database_url, _revision_of, patience) or ""


async def downgrade(
    database_url: str, revision: str = "base", *, lose_data: bool = False, patience: Patience = PATIENCE
) -> None:
    """Revert migrations, the newest first, each in a transaction of its own.

    Args:
        database_url: A login that owns the tables.
        revision: The target revision; ``base`` deletes every table.
        lose_data: Go on where the schema below cannot hold existing data (``LOSES`` of each revision).
        patience: As for :func:`upgrade`.

    Raises:
        DataWouldBeLost: Data would be deleted; names which. Nothing was changed, unless the data came while this ran:
            then the revisions above the one that would delete it are reverted.
        MigrationBlocked: As for :func:`upgrade`.
        ValueError: There is no such revision.
    """

    def step(connection: Connection) -> bool:
        behind = revisions_between(revision, _known_revision_of(connection))
        if not behind:
            return False
        with _naming(f"taking {behind[0].revision} back"):
            if not lose_data:
                lock_out_writers(connection, declared_losses(behind[:1]))
                _refuse_losses(connection, behind)
            run_downgrade(connection, behind[0])
        return len(behind) > 1

    async with _connected(database_url) as session:
        while await _in_transaction(session, database_url, step, patience):
            pass


async def losses_of_downgrade(database_url: str, revision: str) -> Sequence[str]:
    """Return in words what :func:`downgrade` to a revision would delete; it changes nothing.

    Raises:
        ValueError: There is no such revision.
    """

    def ask(connection: Connection) -> Sequence[str]:
        return find_losses(connection, declared_losses(revisions_between(revision, _known_revision_of(connection))))

    return await _read(database_url, ask)


async def current_revision(database_url: str) -> str | None:
    """Return the revision of the schema, ``None`` for an empty database."""
    return await _read(database_url, _revision_of)


async def check(database_url: str) -> str:
    """Return the revision when it is the one that this code needs.

    Raises:
        MigrationNeeded: It is older or newer.
    """
    found = await current_revision(database_url)
    if found != head():
        raise MigrationNeeded(f"the database's schema is at {found or 'nothing'}, this code needs {head()}")
    return found


async def roles_without_rights(database_url: str) -> Sequence[str]:
    """Return which of the schema's roles (``ROLES``) do not exist, or have no rights in this database."""

    def ask(connection: Connection) -> Sequence[str]:
        return [str(name) for name in connection.execute(text(_WITHOUT_RIGHTS), {"names": list(ROLES)}).scalars()]

    return await _read(database_url, ask)


def head() -> str:
    """Return the revision that this code needs."""
    return script_directory().get_current_head() or ""


def revisions() -> Sequence[str]:
    """Return every revision, the oldest first."""
    return [script.revision for script in script_directory().walk_revisions()][::-1]


def notes(before: str | None) -> Sequence[str]:
    """Return what operators notice of the revisions after ``before``, as declared; ``None``, a new schema: nothing."""
    if before is None:
        return ()
    modules = [script_directory().get_revision(revision).module for revision in revisions() if revision > before]
    return [note for module in modules for note in getattr(module, "NOTES", ())]


def _revision_of(connection: Connection) -> str | None:
    # Alembic would use a table outside of the session's search_path.
    if connection.execute(text("SELECT to_regclass('alembic_version') IS NULL")).scalar():
        return None
    revision: str | None = MigrationContext.configure(connection).get_current_revision()
    return revision


def _known_revision_of(connection: Connection) -> str | None:
    found = _revision_of(connection)
    if found is not None and found not in revisions():
        raise MigrationNeeded(f"the database's schema is at {found}, which this version of Understudy does not know")
    return found


def _refuse_losses(connection: Connection, scripts: Sequence[Script]) -> None:
    found = find_losses(connection, declared_losses(scripts))
    if found:
        below = scripts[-1].down_revision or "base"
        raise DataWouldBeLost(f"the schema at {below} cannot hold {', '.join(found)}")


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Name the revision in errors of a cancelled statement, which is rolled back."""
    try:
        yield
    except Exception as problem:
        cause = asyncpg_error(problem)
        if isinstance(cause, asyncpg.LockNotAvailableError):
            raise _GaveUp(what) from problem
        if isinstance(cause, asyncpg.QueryCanceledError):
            raise _TookTooLong(what) from problem
        raise


class _GaveUp(Exception):
    """A lock could not be taken in time; the text is its purpose."""


class _TookTooLong(Exception):
    """Postgres cancelled a statement; the text is its purpose."""


@asynccontextmanager
async def _connected(database_url: str) -> AsyncIterator[AsyncConnection]:
    engine = make_engine(database_url, timeout_seconds=UPGRADE_SECONDS, application_name="understudy-migrations")
    try:
        async with translated(_FAILED), engine.connect() as session:
            yield session
    finally:
        await engine.dispose()


async def _read(database_url: str, ask: Callable[[Connection], T]) -> T:
    """Read the committed state, without waiting for a migration that is under way."""
    async with _connected(database_url) as session, translated(_FAILED, UPGRADE_SECONDS), session.begin():
        await session.run_sync(set_bounds, PATIENCE)
        return await session.run_sync(ask)


async def _in_transaction(
    session: AsyncConnection, database_url: str, work: Callable[[Connection], T], patience: Patience
) -> T:
    async with translated(_FAILED, UPGRADE_SECONDS), session.begin():
        pid = await session.scalar(text("SELECT pg_backend_pid()"))
        async with LockWatch(database_url, int(pid)) as watch:
            try:
                await session.run_sync(set_bounds, patience)
                await session.run_sync(_take_turn)
                return await session.run_sync(work)
            except _GaveUp as problem:
                raise _blocked(str(problem), watch.blocked_by, patience) from problem
            except _TookTooLong as problem:
                most = f"{patience.statement_seconds:g} s"
                raise RegistryUnavailable(
                    f"{problem}: a statement took longer than {most}, and was rolled back",
                    hint="With less load, or --statement-seconds, run the command again: it goes on where it stopped.",
                ) from problem


def _take_turn(connection: Connection) -> None:
    """Wait for other migrations, by a lock that asks for the right to write: any login can take an advisory one.

    A migration of the release before waits for this one, by the advisory lock. This one does not wait for it: Postgres
    rolls the later of the two back whole, since both change the same tables and the same row of alembic_version.
    """
    with _naming("waiting for another migration of this database"):
        has_schema = connection.execute(text(_HAS_SCHEMA)).scalar()
        take = "pg_try_advisory_xact_lock" if has_schema else "pg_advisory_xact_lock"
        connection.execute(text(f"SELECT {take}(:mutex)"), {"mutex": _MUTEX})
        if connection.execute(text(_HAS_SCHEMA)).scalar():
            connection.execute(text("LOCK TABLE alembic_version IN SHARE ROW EXCLUSIVE MODE"))


def _blocked(what: str, wait: Wait | None, patience: Patience) -> MigrationBlocked:
    detail = f"{what}: a lock could not be taken within {patience.lock_seconds:g} s, and all of it was rolled back"
    if wait is None:
        return MigrationBlocked(detail)
    end = ", ".join(f"pg_terminate_backend({pid})" for pid in wait.pids)
    then = "Then run the command again: it goes on where it stopped."
    return MigrationBlocked(
        f"{detail}; it waited for {wait.lock} behind {'; '.join(wait.holders)}",
        hint=f"Let that transaction end, or end it: SELECT {end}. {then}",
    )
