"""``understudy db check``: one planted fault for each thing that it looks at, on a real database."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest
from command import CommandLine, Done
from conftest import PostgresServer

from understudy.adapters import migrations
from understudy.adapters.migrations.inventory import FUNCTIONS, TRIGGERS, VIEWS

FAULTS = {
    "DROP TABLE Experiment": ("objects", "problem", "missing: table experiment"),
    "ALTER TABLE Rollout RENAME COLUMN reason TO why": ("objects", "problem", "missing: column rollout.reason"),
    "DROP VIEW understudy_split": ("objects", "problem", "missing: view understudy_split"),
    "DROP FUNCTION understudy_redact_inputs(TEXT)": ("objects", "problem", "understudy_redact_inputs(text)"),
    "DROP TRIGGER servingpolicy_guard ON ServingPolicy": (
        "objects",
        "problem",
        "missing: trigger servingpolicy_guard on servingpolicy",
    ),
    "ALTER TABLE PolicyAudit DISABLE TRIGGER policyaudit_guard": (
        "guards",
        "problem",
        "switched off: policyaudit_guard on policyaudit",
    ),
    "CREATE INDEX half ON ONLY PredictionLog (score)": ("indexes", "problem", "half on predictionlog"),
    "ALTER TABLE Rollout ADD CONSTRAINT late CHECK (step < 99) NOT VALID": (
        "constraints",
        "warning",
        "late on rollout",
    ),
    "ALTER TABLE Experiment OWNER TO pg_database_owner": (
        "ownership",
        "problem",
        "experiment (pg_database_owner)",
    ),
    "ALTER FUNCTION understudy_guard_policy() OWNER TO pg_database_owner": (
        "ownership",
        "problem",
        "understudy_guard_policy() (pg_database_owner)",
    ),
    "ALTER TABLE PolicyChange DISABLE TRIGGER policychange_guard; "
    "INSERT INTO PolicyChange (model_name, source, changed_xid) VALUES ('visits', 'policy', '99999999999'); "
    "ALTER TABLE PolicyChange ENABLE TRIGGER policychange_guard": (
        "transactions",
        "warning",
        "since it was restored from a dump",
    ),
    "GRANT CREATE ON SCHEMA public TO PUBLIC": ("ownership", "warning", "any login may make objects"),
    "REVOKE SELECT ON ServingPolicy FROM understudy_proxy": (
        "roles",
        "problem",
        "lack: understudy_proxy SELECT servingpolicy",
    ),
    "REVOKE UPDATE (status) ON ModelVersion FROM understudy_monitor": (
        "roles",
        "problem",
        "understudy_monitor UPDATE modelversion.status",
    ),
    "REVOKE EXECUTE ON FUNCTION understudy_ensure_partitions(INT, TIMESTAMPTZ) FROM understudy_monitor": (
        "roles",
        "problem",
        "understudy_monitor EXECUTE understudy_ensure_partitions(integer, timestamp with time zone)",
    ),
    "GRANT DELETE ON PolicyAudit TO understudy_reader": (
        "roles",
        "warning",
        "more than they need: understudy_reader DELETE policyaudit",
    ),
    "GRANT SELECT (sha256) ON ApiKey TO understudy_reader": (
        "roles",
        "warning",
        "understudy_reader SELECT apikey.sha256",
    ),
    "ALTER SEQUENCE policyaudit_id_seq MAXVALUE 100 RESTART 60; SELECT nextval('policyaudit_id_seq')": (
        "sequences",
        "warning",
        "policyaudit_id_seq has used 60%",
    ),
    "ALTER SEQUENCE policyaudit_id_seq MAXVALUE 100 RESTART 95; SELECT nextval('policyaudit_id_seq')": (
        "sequences",
        "problem",
        "policyaudit_id_seq has used 95%",
    ),
    "INSERT INTO AlertOutbox (id, dedup_key, action, severity, payload) VALUES (77, 'k', 'trigger', 'info', '{}')": (
        "sequences",
        "problem",
        "alertoutbox_id_seq is at 0, alertoutbox at 77",
    ),
    "UPDATE alembic_version SET version_num = '0009'": ("schema", "problem", "at 0009, and this release needs"),
    "UPDATE alembic_version SET version_num = '9999'": ("schema", "problem", "at 9999, and this release needs"),
    "DROP TABLE {this_month}": ("partitions", "problem", "rows wait"),
    "DROP TABLE {next_month}": ("partitions", "warning", "has none for"),
    "ALTER TABLE PredictionLog DETACH PARTITION {next_month}": (
        "partitions",
        "problem",
        "have the name of a partition and are none",
    ),
    "ALTER DATABASE {database} SET session_replication_role = replica": ("settings", "problem", "no guard fires"),
    "ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'": (
        "settings",
        "problem",
        "writers refuse each other",
    ),
    "ALTER DATABASE {database} SET default_transaction_read_only = on": (
        "settings",
        "problem",
        "nothing can be written",
    ),
    "ALTER DATABASE {database} SET timezone = 'Asia/Tokyo'": ("settings", "warning", "is Asia/Tokyo"),
    "ALTER DATABASE {database} SET lock_timeout = '50ms'": ("settings", "warning", "lock_timeout of the database"),
    "ALTER DATABASE {database} SET statement_timeout = '1s'": ("settings", "warning", "a proxy's write may take 2 s"),
    "ALTER DATABASE {database} SET synchronous_commit = off": ("settings", "warning", "loses rows"),
    "ALTER DATABASE {database} SET search_path = elsewhere, public, pg_catalog; "
    "ALTER ROLE CURRENT_USER IN DATABASE {database} SET search_path = elsewhere": (
        "settings",
        "problem",
        "search_path of the login",
    ),
}
"""From a statement to the finding that tells of it: its name, its state, and words of it."""


async def places(database: asyncpg.Connection) -> dict[str, str]:
    """Return what a statement above may name."""
    month = "SELECT 'predictionlog_' || to_char(now() AT TIME ZONE 'UTC' + $1 * INTERVAL '1 month', 'YYYY_MM')"
    return {
        "database": await database.fetchval("SELECT current_database()"),
        "this_month": await database.fetchval(month, 0),
        "next_month": await database.fetchval(month, 1),
    }


def filled(statement: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        statement = statement.replace(f"{{{name}}}", value)
    return statement


def finding_of(done: Done, name: str) -> dict[str, str]:
    (found,) = [one for one in done.document["findings"] if one["name"] == name]
    return dict(found)


async def test_a_migrated_database_is_fit(understudy: CommandLine):
    done = await understudy.beside("db", "check", "--json")

    assert done.code == 0, done.out
    assert [one for one in done.document["findings"] if one["state"] == "problem"] == []
    assert done.document["revision"] == done.document["needed_revision"] == migrations.head()
    assert {one["name"] for one in done.document["findings"]} >= {name for name, _, _ in FAULTS.values()}


@pytest.mark.parametrize("statement", FAULTS)
async def test_a_planted_fault_is_named_with_what_to_do_next(database, understudy: CommandLine, statement):
    name, state, words = FAULTS[statement]
    healthy = await understudy.beside("db", "check", "--json")

    await database.execute(filled(statement, await places(database)))
    done = await understudy.beside("db", "check", "--json")
    text = await understudy.beside("db", "check")

    found = finding_of(done, name)
    assert words not in finding_of(healthy, name)["what"]
    assert (found["state"], words in found["what"]) == (state, True), found
    assert found["next_step"]
    assert done.code == text.code == (1 if state == "problem" else 0)
    assert "".join(words.split()) in "".join(text.out.split())
    assert "".join(found["next_step"].split()) in "".join(text.out.split())


async def test_without_a_schema_it_says_what_makes_one(empty_database_url):
    done = await CommandLine(empty_database_url).beside("db", "check", "--json")

    assert done.code == 1
    assert finding_of(done, "schema")["what"] == f"at nothing, and this release needs {migrations.head()}"
    assert finding_of(done, "schema")["next_step"] == "understudy db upgrade brings it up."


@pytest.fixture
async def latin_url(postgres: PostgresServer) -> AsyncIterator[str]:
    """A database that has no Unicode, and not even plpgsql."""
    name = f"understudy_test_{uuid4().hex[:12]}"
    server = await asyncpg.connect(postgres.url, timeout=10, command_timeout=30)
    await server.execute(
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' LOCALE_PROVIDER 'libc'"
        " TEMPLATE template0"
    )
    inside = await asyncpg.connect(postgres.url_of(name), timeout=10, command_timeout=30)
    await inside.execute("DROP EXTENSION plpgsql")
    await inside.close(timeout=5)
    yield postgres.url_of(name)
    await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await server.close(timeout=5)


async def test_a_database_without_unicode_or_plpgsql_is_not_fit(latin_url):
    done = await CommandLine(latin_url).beside("db", "check", "--json")

    assert done.code == 1
    assert finding_of(done, "server")["state"] == finding_of(done, "extensions")["state"] == "problem"
    assert "LATIN1" in finding_of(done, "server")["what"]


async def test_a_login_that_may_not_look_everywhere_is_told_what_was_not_looked_at(
    database, database_url, understudy: CommandLine
):
    name = f"reader_{uuid4().hex[:8]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_reader")
    try:
        url = f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
        done = await understudy.beside("db", "check", "--json", DATABASE_URL=url)
    finally:
        await database.execute(f"DROP ROLE {name}")

    assert done.code == 0, done.out + done.err
    assert "the rights of roles" in finding_of(done, "not looked at")["what"]
    assert "alertoutbox_id_seq" in finding_of(done, "not looked at")["what"]


async def test_a_proxys_login_is_told_of_transactions_by_the_table_that_it_may_read_and_which_it_may_not(
    database, database_url, understudy: CommandLine
):
    name = f"proxy_{uuid4().hex[:8]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_proxy")
    (foreign,) = [statement for statement, (about, *_) in FAULTS.items() if about == "transactions"]
    try:
        url = f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
        healthy = await understudy.beside("db", "check", "--json", DATABASE_URL=url)
        await database.execute(foreign)
        planted = await understudy.beside("db", "check", "--json", DATABASE_URL=url)
    finally:
        await database.execute(f"DROP ROLE {name}")

    assert "transactions" not in [one["name"] for one in healthy.document["findings"]]
    assert "the transactions that loadedversion names" in finding_of(healthy, "not looked at")["what"]
    assert finding_of(planted, "transactions")["state"] == "warning"
    assert "the transactions that loadedversion names" in finding_of(planted, "not looked at")["what"]


async def test_a_login_of_a_process_with_a_setting_that_harms_it_is_named(
    database, database_url, understudy: CommandLine
):
    name = f"proxy_{uuid4().hex[:8]}"
    await database.execute(f"CREATE ROLE {name} LOGIN IN ROLE understudy_proxy")
    await database.execute(f"ALTER ROLE {name} SET statement_timeout = '100ms'")
    try:
        done = await understudy.beside("db", "check", "--json")
    finally:
        await database.execute(f"DROP ROLE {name}")

    assert f"statement_timeout of the login {name} is 100ms" in finding_of(done, "settings")["what"]


async def test_a_superuser_with_settings_of_its_own_is_no_login_of_ours(database, understudy: CommandLine):
    name = f"dba_{uuid4().hex[:8]}"
    await database.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
    await database.execute(f"ALTER ROLE {name} SET search_path = admin")
    try:
        done = await understudy.beside("db", "check", "--json")
    finally:
        await database.execute(f"DROP ROLE {name}")

    assert name not in finding_of(done, "settings")["what"]


async def test_rows_that_come_while_it_looks_are_no_numbers_that_collide(database_url, understudy: CommandLine):
    """Writers add rows as fast as they can; a sequence that is read before its table lags behind it each time."""
    is_over = asyncio.Event()

    async def write() -> None:
        connection = await asyncpg.connect(database_url, timeout=10, command_timeout=60)
        while not is_over.is_set():
            await connection.execute(
                "INSERT INTO AlertOutbox (dedup_key, action, severity, payload) VALUES ('k', 'trigger', 'info', '{}')"
            )
        await connection.close(timeout=5)

    writers = [asyncio.create_task(write()) for _ in range(2)]
    checks = [await understudy.beside("db", "check", "--json") for _ in range(5)]
    is_over.set()
    await asyncio.gather(*writers)

    assert {finding_of(done, "sequences")["state"] for done in checks} == {"good"}


async def test_db_check_after_an_upgrade_finds_healed_what_an_upgrade_heals(database, understudy: CommandLine):
    await database.execute(
        "GRANT DELETE ON PolicyAudit TO understudy_reader; REVOKE SELECT ON ServingPolicy FROM understudy_proxy"
    )
    before = await understudy.beside("db", "check", "--json")

    upgraded = await understudy.beside("db", "upgrade", "--json")
    after = await understudy.beside("db", "check", "--json")

    assert (before.code, upgraded.code, after.code) == (1, 0, 0)
    assert finding_of(after, "roles")["state"] == "good"


async def test_what_is_looked_for_is_what_a_migrated_database_has(database):
    there = await database.fetch(
        """SELECT 'f', proname || '(' || oidvectortypes(proargtypes) || ')' FROM pg_proc
           WHERE pronamespace = 'public'::regnamespace
           UNION ALL SELECT 't', tgname || ' on ' || relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
           WHERE NOT tgisinternal AND tgparentid = 0
           UNION ALL SELECT 'v', relname FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace"""
    )

    assert {tuple(row) for row in there} == {
        *(("f", name) for name in FUNCTIONS),
        *(("t", name) for name in TRIGGERS),
        *(("v", name) for name in VIEWS),
    }


async def test_going_back_is_refused_where_it_would_delete_and_done_where_somebody_says_so(
    database, understudy: CommandLine
):
    await database.execute("INSERT INTO ArchiveStatus VALUES (TRUE, now())")

    unknown = await understudy.beside("db", "downgrade", "0815")
    planned = await understudy.beside("db", "downgrade", "0009", "--dry-run", "--json")
    refused = await understudy.beside("db", "downgrade", "0009")
    done = await understudy.beside("db", "downgrade", "0009", "--lose-data", "--json")

    assert (unknown.code, "There are: 0001," in unknown.said) == (2, True)
    assert planned.document["losses"] == ["1 times at which the archiver ended"]
    assert (planned.document["after"], planned.document["changed"]) == (migrations.head(), False)
    assert (refused.code, "E210" in refused.err, "1 times at which" in refused.said) == (7, True, True)
    assert (done.document["before"], done.document["after"], done.code) == (migrations.head(), "0009", 0)


async def test_an_upgrade_that_meets_an_open_transaction_leaves_with_5_and_says_whose_it_is(
    database, database_url, understudy: CommandLine
):
    await migrations.downgrade(database_url, "0007", lose_data=True)
    async with database.transaction():
        await database.execute("SELECT * FROM ApiKey")
        done = await understudy.beside("db", "upgrade", "--lock-seconds", "1")

    assert done.code == 5
    assert f"pg_terminate_backend({database.get_server_pid()})" in done.said
    assert "E211" in done.err
