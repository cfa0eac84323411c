"""Preflight: reads what a database says of itself (``ports.preflight``): its catalogue and settings.

Of rows it reads the highest number of each sequence's table, the list of rights that are meant, and whether two tables
name a transaction of another server.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from understudy.adapters.migrations.inventory import NEEDED_OBJECTS
from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.ports.preflight import DatabaseSnapshot, Numbering, Setting

_APPLICATION = "understudy-db-check"
_SERVER = """
    SELECT current_setting('server_version_num')::int AS version, getdatabaseencoding() AS encoding,
           pg_is_in_recovery() AS is_standby, coalesce(current_schema()::text, 'public') AS schema,
           to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM') AS this_month,
           has_schema_privilege('public', coalesce(current_schema()::text, 'public'), 'CREATE') AS is_open_to_all,
           ARRAY(SELECT extname::text FROM pg_extension) AS extensions
"""
# Postgres 14 has neither the column nor the function, and must still be reported as too old.
_COLLATION_SINCE = 150_000
_COLLATION = """
    SELECT datcollversion || ' became ' || pg_database_collation_actual_version(oid) FROM pg_database
    WHERE datname = current_database() AND datcollversion <> pg_database_collation_actual_version(oid)
"""
# The session's settings show the server's configuration; logins and databases may have others.
_SETTINGS = """
    WITH watched (name) AS (
        SELECT unnest(ARRAY['session_replication_role', 'default_transaction_read_only', 'synchronous_commit',
                            'default_transaction_isolation', 'TimeZone', 'search_path', 'statement_timeout',
                            'lock_timeout', 'transaction_timeout'])
    ), stored (whose, line) AS (
        SELECT CASE setrole WHEN 0 THEN 'the database' ELSE 'the login ' || pg_get_userbyid(setrole) END,
               unnest(setconfig)
        FROM pg_db_role_setting
        WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
          AND (setrole = 0 OR pg_get_userbyid(setrole) = $1
               OR EXISTS (SELECT FROM pg_roles WHERE rolname = ANY ($2) AND pg_has_role(setrole, oid, 'MEMBER'))
                  -- A superuser counts as a member of every role.
                  AND NOT EXISTS (SELECT FROM pg_roles WHERE oid = setrole AND rolsuper))
    )
    SELECT whose, name, substr(line, strpos(line, '=') + 1) AS value
    FROM stored JOIN watched ON lower(name) = lower(split_part(line, '=', 1))
    UNION ALL
    SELECT 'this session', name, setting FROM pg_settings
    WHERE name IN (SELECT name FROM watched) AND lower(name) <> 'search_path'
      AND NOT EXISTS (SELECT FROM stored WHERE lower(split_part(line, '=', 1)) = lower(pg_settings.name))
    ORDER BY 2, 1
"""
_OBJECTS = """
    SELECT CASE relkind WHEN 'v' THEN 'view ' ELSE 'table ' END || relname FROM pg_class
    WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'p', 'v')
    UNION ALL SELECT 'column ' || relname || '.' || attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT 'function ' || proname || '(' || oidvectortypes(proargtypes) || ')' FROM pg_proc
    WHERE pronamespace = $1::text::regnamespace
    UNION ALL SELECT 'trigger ' || tgname || ' on ' || relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = $1::text::regnamespace AND NOT tgisinternal AND tgparentid = 0
"""
# Foreign keys are kept by triggers too, which are internal and have generated names.
_DISABLED = """
    SELECT CASE WHEN tgisinternal THEN 'a foreign key' ELSE tgname END || ' on ' || relname
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = $1::text::regnamespace AND tgenabled IN ('D', 'R') GROUP BY 1 ORDER BY 1
"""
_INVALID = """
    SELECT one.relname || ' on ' || owner.relname FROM pg_index
    JOIN pg_class one ON one.oid = indexrelid JOIN pg_class owner ON owner.oid = indrelid
    WHERE owner.relnamespace = $1::text::regnamespace AND NOT (indisvalid AND indisready AND indislive) ORDER BY 1
"""
_UNPROVEN = """
    SELECT conname || ' on ' || relname FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
    WHERE connamespace = $1::text::regnamespace AND NOT convalidated ORDER BY 1
"""
_OWNED = """
    SELECT pg_get_userbyid(relowner) AS owner, relname AS name FROM pg_class
    WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
      AND (relname = ANY ($2) OR relname LIKE 'predictionlog\\_%')
    UNION ALL SELECT pg_get_userbyid(proowner), proname || '()' FROM pg_proc
    WHERE pronamespace = $1::text::regnamespace AND proname LIKE 'understudy\\_%'
    ORDER BY 2
"""
_MONTHS = """
    SELECT substr(relname, 15) AS month, relispartition AND relid IN (
        SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('predictionlog')) AS is_part
    FROM (SELECT oid AS relid, relname::text, relispartition FROM pg_class
          WHERE relnamespace = $1::text::regnamespace AND relkind = 'r'
            AND relname ~ '^predictionlog_[0-9]{4}_[0-9]{2}$') AS t
    ORDER BY 1
"""
_ROLES = "SELECT rolname::text FROM pg_roles WHERE rolname = ANY ($1)"
_MEANT = "SELECT role, privileges, object FROM understudy_rights()"
_RIGHTS = """
    WITH access (object, acl) AS (
        SELECT relname::text, relacl FROM pg_class WHERE relnamespace = $1::text::regnamespace
            AND relkind IN ('r', 'p', 'v', 'S') AND NOT relispartition AND relname !~ '^predictionlog_.*_archived_'
        UNION ALL
        SELECT relname || '.' || attname, attacl FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
        WHERE relnamespace = $1::text::regnamespace AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT proname || '(' || oidvectortypes(proargtypes) || ')', proacl FROM pg_proc
        WHERE pronamespace = $1::text::regnamespace AND proname LIKE 'understudy\\_%'
    )
    SELECT concat_ws(' ', pg_get_userbyid(grantee), privilege_type, object)
    FROM access CROSS JOIN LATERAL aclexplode(acl)
    WHERE acl IS NOT NULL AND grantee <> 0 AND pg_get_userbyid(grantee) = ANY ($2)
"""
_SEQUENCES = """
    SELECT name.relname AS name, tables.relname AS table, attname AS column, seqmax AS most,
           has_table_privilege(tables.oid, 'SELECT') AND has_sequence_privilege(name.oid, 'SELECT, USAGE') AS may_look
    FROM pg_sequence
    JOIN pg_class AS name ON name.oid = seqrelid
    JOIN pg_depend ON objid = seqrelid AND deptype = 'a' AND refobjsubid > 0
    JOIN pg_class AS tables ON tables.oid = refobjid
    JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
    WHERE name.relnamespace = $1::text::regnamespace
    ORDER BY 1
"""
_LAST = "SELECT pg_sequence_last_value($1::text::regclass)"
# A statement for each table: a login that may read only one of them is told what that one says.
_FOREIGN_TRANSACTIONS = {
    "policychange": """
        SELECT EXISTS (SELECT FROM policychange WHERE changed_xid > pg_snapshot_xmax(pg_current_snapshot()))""",
    "loadedversion": """
        SELECT EXISTS (SELECT FROM loadedversion WHERE removed_xid > pg_snapshot_xmax(pg_current_snapshot()))""",
}
_TYPES = {"int": "integer", "timestamptz": "timestamp with time zone"}


async def examine_database(
    database_url: str, *, revision: str | None, roles: Sequence[str], timeout_seconds: float
) -> DatabaseSnapshot:
    """Read a database's catalogue and settings for the preflight; read-only, without locks that block other sessions.

    Args:
        database_url: Any login; what it may not read is named in ``unreadable``.
        revision: Of the schema; ``None``: there is none.
        roles: Whose rights and logins to read.
        timeout_seconds: Longest time of the whole examination.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name=_APPLICATION)
    try:
        async with translated("the database could not be examined", timeout_seconds):
            return await _examine(connection, revision, list(roles))
    finally:
        connection.terminate()


async def _examine(connection: asyncpg.Connection, revision: str | None, roles: list[str]) -> DatabaseSnapshot:
    (server,) = await connection.fetch(_SERVER)
    schema = server["schema"]
    has_collation_version = server["version"] >= _COLLATION_SINCE
    collation_moved = await connection.fetchval(_COLLATION) if has_collation_version else ""
    tables = [one.partition(" ")[2] for one in NEEDED_OBJECTS if one.startswith(("table ", "view "))]
    owners = _grouped(await connection.fetch(_OWNED, schema, tables))
    owner = next((name for name, owned in owners.items() if "servingpolicy" in owned), "")
    months = await connection.fetch(_MONTHS, schema)
    meant = await _rights_meant(connection)
    has_foreign_transactions, unread_tables = await _foreign_transactions(connection)
    sequences, unread_sequences = await _sequences(connection, schema)
    # Sequences last: a process may read few of them, and a finding names the first ones.
    unreadable = [f"the transactions that {table} names" for table in unread_tables] + unread_sequences
    if meant is None and revision is not None:
        unreadable.insert(0, "the rights of roles")
    return DatabaseSnapshot(
        revision=revision,
        server_version=server["version"],
        encoding=server["encoding"],
        is_standby=server["is_standby"],
        collation_moved=collation_moved or "",
        extensions=server["extensions"],
        settings=[Setting(*row) for row in await connection.fetch(_SETTINGS, owner, roles)],
        schema=schema,
        is_open_to_all=server["is_open_to_all"],
        objects=frozenset(await _column(connection, _OBJECTS, schema)),
        disabled_triggers=await _column(connection, _DISABLED, schema),
        invalid_indexes=await _column(connection, _INVALID, schema),
        unproven_constraints=await _column(connection, _UNPROVEN, schema),
        owners=owners,
        owner=owner,
        months=[row["month"] for row in months if row["is_part"]],
        loose_months=[f"predictionlog_{row['month']}" for row in months if not row["is_part"]],
        this_month=server["this_month"],
        roles=frozenset(await _column(connection, _ROLES, roles)),
        rights=None if meant is None else frozenset(await _column(connection, _RIGHTS, schema, roles)),
        rights_meant=frozenset() if meant is None else meant,
        sequences=sequences,
        unreadable=unreadable,
        has_foreign_transactions=has_foreign_transactions,
    )


async def _foreign_transactions(connection: asyncpg.Connection) -> tuple[bool | None, list[str]]:
    """Return whether rows name transactions of another server, and the tables that the login may not read.

    ``None``: those tables that it may read name none. A table that is missing is told among the objects.
    """
    found, unreadable = False, []
    for table, statement in _FOREIGN_TRANSACTIONS.items():
        try:
            found |= bool(await connection.fetchval(statement))
        except asyncpg.InsufficientPrivilegeError:
            unreadable.append(table)
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
            continue
    return found or (None if unreadable else False), unreadable


async def _column(connection: asyncpg.Connection, query: str, *arguments: object) -> list[str]:
    return [str(row[0]) for row in await connection.fetch(query, *arguments)]


def _grouped(rows: Sequence[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["owner"], []).append(row["name"])
    return found


async def _rights_meant(connection: asyncpg.Connection) -> frozenset[str] | None:
    """Return the list that roles are granted from; ``None`` without one, or without the right to read it."""
    with suppress(asyncpg.UndefinedFunctionError, asyncpg.InsufficientPrivilegeError):
        return frozenset(one for row in await connection.fetch(_MEANT) for one in _parse_rights(*row))
    return None


def _parse_rights(role: str, privileges: str, objects: str) -> Sequence[str]:
    """Return a line of ``understudy_rights()`` as the catalogue has it: a line for each right on each object."""
    kind, _, names = objects.partition(" ") if objects.startswith(("SEQUENCE ", "FUNCTION ")) else ("", "", objects)
    things = [_normal_name(one, kind) for one in re.findall(r"[^\s,(]+(?:\([^)]*\))?", names)]
    found = []
    for privilege, columns in re.findall(r"([A-Z]+)(?: \(([^)]*)\))?", privileges):
        for thing in things:
            places = [f"{thing}.{column.strip()}" for column in columns.split(",")] if columns else [thing]
            found += [f"{role} {privilege} {place}" for place in places]
    return found


def _normal_name(name: str, kind: str) -> str:
    if kind != "FUNCTION":
        return name.lower()
    own, _, arguments = name.lower().rstrip(")").partition("(")
    types = [_TYPES.get(one.strip(), one.strip()) for one in arguments.split(",") if one.strip()]
    return f"{own}({', '.join(types)})"


async def _sequences(connection: asyncpg.Connection, schema: str) -> tuple[list[Numbering], list[str]]:
    found, unreadable = [], []
    for row in await connection.fetch(_SEQUENCES, schema):
        if not row["may_look"]:
            unreadable.append(row["name"])
            continue
        # An index has each of these columns in order, so this reads one entry of it (for the log: of each month).
        place = f'"{schema}"."{row["table"]}"'
        highest = await connection.fetchval(f'SELECT coalesce(max("{row["column"]}"), 0) FROM {place}')  # noqa: S608 - the catalogue's own names
        # After its table: rows inserted meanwhile must not look like a sequence that lags behind.
        last = await connection.fetchval(_LAST, f'"{schema}"."{row["name"]}"')
        found.append(Numbering(row["name"], row["table"], last or 0, row["most"], highest))
    return found, unreadable
