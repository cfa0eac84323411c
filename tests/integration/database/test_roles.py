"""What each database role may do, and that everything else is refused: in the catalogue, and by trying it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from traffic.clusters import put_new_cluster

from understudy.adapters import migrations
from understudy.adapters.embedded.postgres import EmbeddedPostgres

PROXY, MONITOR, ENGINEER, RETENTION, READER, ERASER, AGENT = migrations.ROLES
Login = Callable[..., Awaitable[str]]

# For each table what proxy, monitor, engineer, retention, reader, eraser and agent may: s(elect), i(nsert), u(pdate),
# d(elete); in brackets when only for some columns. A table that is not here fails the first test: somebody has to
# decide.
DECISIONS = {
    "agentlease": ("", "", "s", "", "s", "", "siu"),
    "alembic_version": ("s", "s", "s", "s", "s", "s", "s"),
    "alertoutbox": ("", "siu", "s", "sd(u)", "s", "", ""),
    "apikey": ("(s)", "", "(s)", "", "(s)", "", ""),
    "archivestatus": ("", "s", "s", "siu", "s", "", ""),
    "cachesecret": ("(s)", "", "", "", "", "", ""),
    "drifthour": ("", "siu", "s", "sd", "s", "", ""),
    "entityerasure": ("", "", "(s)", "d(s)", "(s)", "(s)", ""),
    "entityerasurefile": ("", "", "", "", "", "s", ""),
    "entityerasureswap": ("", "", "", "", "", "", ""),
    "erasuresecret": ("", "", "", "", "", "", ""),
    "experiment": ("", "s", "siud", "", "s", "", ""),
    "installation": ("", "", "s", "", "s", "", ""),
    "iceberg_namespace_properties": ("", "siu", "s", "", "s", "s", ""),
    "iceberg_tables": ("", "siu", "s", "", "s", "su", ""),
    "judgequestion": ("", "si(u)", "s", "", "s", "", ""),
    "lakefile": ("s(iu)", "sd(u)", "s", "", "s", "s", ""),
    "lakerewrite": ("", "siud", "s", "", "s", "s", ""),
    "loadedversion": ("", "s", "s", "", "s", "", "siud"),
    "logarchive": ("", "(s)", "s", "s(iu)", "s", "s", ""),
    "logarchivefile": ("", "", "s", "sid(u)", "s", "s", ""),
    "modelendpoint": ("s", "s", "siud", "", "s", "", "s"),
    "modelserver": ("", "s", "s", "", "s", "", "siu"),
    "modelversion": ("s", "s(u)", "siud", "(s)", "s", "", "s"),
    "monitorlease": ("", "siu", "s", "s(u)", "s", "", ""),
    "notification": ("", "s(u)", "s", "sd", "s", "", ""),
    "outcomeevent": ("i(s)", "s", "si", "sd", "s", "", ""),
    "placement": ("", "siud", "s", "", "s", "", "s"),
    "policyaudit": ("", "s", "s", "sd", "s", "", ""),
    "policychange": ("s", "s", "s", "sd(u)", "s", "", ""),
    "policyfile": ("", "s", "s(iu)", "", "s", "", ""),
    "predictiondeadletter": ("i(s)", "", "s", "sd", "s", "", ""),
    "predictionlog": ("i", "s", "s", "s(u)", "s", "", ""),
    "predictionmetric": ("", "siu", "s", "sd", "s", "", ""),
    "predictionwindow": ("si(u)", "s", "s", "sd", "s", "", ""),
    "proxyinstance": ("siud", "s", "s", "", "s", "", "s"),
    "registryaudit": ("", "s", "s", "sd", "s", "", ""),
    "rollout": ("(s)", "s(u)", "siu", "sd(u)", "s", "", ""),
    "rolloutevent": ("", "si", "si", "sd(u)", "s", "", ""),
    "servingpolicy": ("s", "s(u)", "siud", "s", "s", "", "s"),
    "spooloffset": ("si(u)", "(s)", "s", "sd(u)", "s", "", ""),
    "subscription": ("", "s", "sd(iu)", "", "s", "", ""),
    "subscriptionaudit": ("", "s", "s", "sd", "s", "", ""),
    "understudy_arms": ("", "s", "s", "", "s", "", ""),
    "understudy_split": ("", "s", "s", "", "s", "", ""),
    "understudy_status": ("", "s", "s", "", "s", "", ""),
    "versionloading": ("", "s", "siu", "", "s", "", "s(u)"),
    "versionvalidation": ("", "s", "siu", "", "s", "", "siu"),
    "warmupanswer": ("(si)", "s", "s", "", "s", "", ""),
    "warmuprequest": ("s", "s(i)", "s(i)", "d(s)", "s", "", ""),
}
TOLD_OF_ERASURES = (
    "actor archived_rows began_at dead_letters digest erased_before files finished_at id kept_rows lake_files "
    "lake_rows log_rows model_name outcomes reason resumed_by via"
)
ASKED_OF_PROXIES = "champion_id deadline example_calls instances predicted_at prediction_ids version_id"
COLUMNS = {
    **{(role, "warmuprequest", "i"): ASKED_OF_PROXIES for role in (MONITOR, ENGINEER)},
    (RETENTION, "warmuprequest", "s"): "deadline id",
    (MONITOR, "notification", "u"): "attempts delivered_at last_error next_attempt_at",
    (ENGINEER, "subscription", "i"): "format kinds model_name name receiver severity",
    (ENGINEER, "subscription", "u"): "format kinds model_name receiver severity",
    (ENGINEER, "policyfile", "i"): "document model_name path",
    (ENGINEER, "policyfile", "u"): "document path",
    (AGENT, "versionloading", "u"): "pinned_digest",
    (PROXY, "warmupanswer", "s"): "instance request_id",
    (PROXY, "warmupanswer", "i"): "answered instance problem request_id scores seconds",
    **{(role, "entityerasure", "s"): TOLD_OF_ERASURES for role in (ENGINEER, READER, ERASER)},
    (RETENTION, "entityerasure", "s"): "finished_at id",
    (PROXY, "apikey", "s"): "bytes_per_second calls_per_second expires_at id revoked_at scopes sha256 tenant",
    (
        ENGINEER,
        "apikey",
        "s",
    ): "bytes_per_second calls_per_second created_at created_by expires_at id note revoked_at scopes tenant",
    (
        READER,
        "apikey",
        "s",
    ): "bytes_per_second calls_per_second created_at created_by expires_at id note revoked_at scopes tenant",
    (PROXY, "cachesecret", "s"): "secret",
    (PROXY, "outcomeevent", "s"): "event_id model_name sent_as",
    (PROXY, "lakefile", "i"): "byte_offset key layout segment spool_id",
    (PROXY, "lakefile", "u"): "byte_count named_at row_count stored_at",
    (PROXY, "predictiondeadletter", "s"): "byte_offset segment spool_id",
    (PROXY, "predictionwindow", "u"): "calls counts errors",
    (PROXY, "rollout", "s"): "id slow_us",
    (PROXY, "spooloffset", "u"): "byte_offset segment updated_at",
    (MONITOR, "judgequestion", "u"): "answered_at difference outcome",
    (MONITOR, "lakefile", "u"): "commit_number committed_at",
    (MONITOR, "logarchive", "s"): "drop_after",
    (MONITOR, "modelversion", "u"): "status",
    (MONITOR, "rollout", "u"): "announced_at finished_at phase revision slow_us state step step_started_at",
    (MONITOR, "spooloffset", "s"): "byte_offset segment spool_id",
    (MONITOR, "servingpolicy", "u"): "arms challenger_version challenger_weight champion_version rollout_id salt "
    "shadow_version",
    (RETENTION, "alertoutbox", "u"): "last_error",
    (RETENTION, "logarchive", "i"): "location month_end month_start partition_name",
    (RETENTION, "logarchive", "u"): "attempt changed_at fingerprint row_count state",
    (RETENTION, "logarchivefile", "u"): "byte_count row_count sha256",
    (RETENTION, "modelversion", "s"): "id model_name version",
    (RETENTION, "monitorlease", "u"): "renewed_at",
    (RETENTION, "policychange", "u"): "changed_at",
    (RETENTION, "predictionlog", "u"): "inputs",
    (RETENTION, "rollout", "u"): "reason",
    (RETENTION, "rolloutevent", "u"): "inputs",
    (RETENTION, "spooloffset", "u"): "updated_at",
}
FUNCTIONS = {
    "understudy_archive_fingerprint(bigint)": {RETENTION},
    "understudy_detach_archived(bigint)": {RETENTION},
    "understudy_drop_archived(bigint)": {RETENTION},
    "understudy_drop_due()": {RETENTION},
    "understudy_drop_silent_servers()": {MONITOR},
    "understudy_add_agent_endpoint(bigint, text)": {AGENT},
    "understudy_left_endpoints(text)": {AGENT},
    "understudy_remove_agent_endpoint(bigint, text)": {AGENT},
    **{
        function: {ERASER}
        for function in (
            "understudy_begin_archive_anew(bigint, text, bigint)",
            "understudy_begin_erasure(text, text, text, text)",
            "understudy_end_erased_files(bigint, text, bigint)",
            "understudy_end_erasure(bigint, text)",
            "understudy_count_beside_log(text, text)",
            "understudy_count_entity(text, text, text)",
            "understudy_count_texts(bigint, text)",
            "understudy_erase_beside_log(bigint, text)",
            "understudy_erase_month(bigint, text, text)",
            "understudy_erase_told(bigint, text, text, uuid[])",
            "understudy_lock_archive()",
            "understudy_begin_lake_erasure(bigint, text, text[])",
            "understudy_name_lake_files(bigint, text, bigint, text[], bigint)",
            "understudy_end_lake_erasure(bigint, text, bigint, bigint, boolean)",
            "understudy_name_erased_file(bigint, text, bigint, text, text)",
            "understudy_swap_erased_file(bigint, text, bigint, text, bigint, bigint, bigint, text)",
        )
    },
    "understudy_notify(text, text, text, jsonb)": set(),
    **{
        f"understudy_notify_{what}()": set()
        for what in ("policy", "alert", "rollout", "registry", "experiment", "loading")
    },
    "understudy_test_subscription(text)": {ENGINEER},
    "understudy_entity_digest(text)": set(),
    "understudy_end_guard(text, text)": set(),
    "understudy_finish_guard(bigint, text)": set(),
    "understudy_open_guard(servingpolicy, bigint)": set(),
    "understudy_tell_guard(bigint, text, text)": set(),
    "understudy_watch_arms(servingpolicy)": set(),
    "understudy_open_erasure(bigint, text)": set(),
    "understudy_put_back_file(bigint, bigint, text)": set(),
    "understudy_ensure_partitions(integer, timestamp with time zone)": {PROXY, MONITOR, ENGINEER},
    "understudy_grant_roles()": set(),
    "understudy_revoke_role(text)": set(),
    "understudy_rights()": set(),
    "understudy_touch(text, text, bigint)": set(),
    "understudy_warm_up_inputs(bigint)": {PROXY},
    "understudy_erased_until()": {PROXY},
    "understudy_late_names(text, text[], timestamp with time zone[], text[])": {PROXY},
}
GRANT = "SELECT understudy_grant_roles()"
PRIVILEGES = {"s": "SELECT", "i": "INSERT", "u": "UPDATE", "d": "DELETE"}
RELATIONS = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition ORDER BY 1
"""
OF_COLUMNS = """
    SELECT attname FROM pg_attribute WHERE attrelid = $2::text::regclass AND attnum > 0 AND NOT attisdropped
      AND has_column_privilege($1::text, attrelid, attnum, $3)
    ORDER BY 1
"""


@pytest.fixture
async def login(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Login]:
    """Makes a login that has these roles and nothing else, and returns its URL."""
    made = []

    async def make(*roles: str) -> str:
        name = f"test_{uuid4().hex[:12]}"
        made.append(name)
        await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE {', '.join(roles)}")
        _, _, place = database_url.rpartition("@")
        return f"postgresql://{name}:secret@{place}"

    yield make
    for name in made:
        await database.execute(f"DROP ROLE {name}")


@pytest.fixture
def own_server_url(short_path: Path) -> Iterator[str]:
    """A server that has none of our roles yet."""
    put_new_cluster(short_path / "pg")
    with EmbeddedPostgres(short_path / "pg", parameters={"fsync": "off"}) as server:
        yield server.url


@asynccontextmanager
async def session_of(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, timeout=10, command_timeout=30)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


def decided(role: str, table: str) -> tuple[set[str], set[str]]:
    """Return the rights of a role on a whole table, and those on some of its columns."""
    whole, _, partial = DECISIONS[table][migrations.ROLES.index(role)].partition("(")
    return set(whole), set(partial.rstrip(")"))


async def test_every_table_and_view_has_a_decision_for_every_role(database):
    assert [row["relname"] for row in await database.fetch(RELATIONS)] == sorted(DECISIONS)


async def test_every_role_has_in_the_catalogue_what_was_decided_and_nothing_more(database):
    wrong: list[object] = []
    for role, table, letter in product(migrations.ROLES, DECISIONS, PRIVILEGES):
        whole, partial = decided(role, table)
        has_whole = await database.fetchval(
            "SELECT has_table_privilege($1::text, $2::text, $3)", role, table, PRIVILEGES[letter]
        )
        if has_whole != (letter in whole):
            wrong.append((role, table, letter))
        if letter != "d" and letter not in whole:
            columns = await database.fetch(OF_COLUMNS, role, table, PRIVILEGES[letter])
            expected = COLUMNS[role, table, letter].split() if letter in partial else []
            if [row["attname"] for row in columns] != expected:
                wrong.append((role, table, letter, columns))
    assert wrong == []


@pytest.mark.parametrize("privilege", ["TRUNCATE", "REFERENCES", "TRIGGER"])
async def test_nobody_may_empty_a_table_refer_to_one_or_hang_a_trigger_on_one(database, privilege):
    held = [
        (role, table)
        for role, table in product(migrations.ROLES, DECISIONS)
        if await database.fetchval("SELECT has_table_privilege($1::text, $2::text, $3)", role, table, privilege)
    ]

    assert held == []


async def test_functions_that_act_as_the_owner_are_for_those_who_need_them(database):
    for function, allowed in FUNCTIONS.items():
        for role in migrations.ROLES:
            held = await database.fetchval(
                "SELECT has_function_privilege($1::text, $2::text, 'EXECUTE')", role, function
            )
            assert (role in allowed) == held, (role, function)


@pytest.mark.parametrize("role", migrations.ROLES)
async def test_every_operation_that_was_not_decided_is_refused_when_it_is_tried(database, login, role):
    tried, permitted = 0, []
    columns = {table: await columns_of(database, table) for table in DECISIONS}
    async with session_of(await login(role)) as session:
        for table in DECISIONS:
            whole, partial = decided(role, table)
            for letter, statement in forbidden_statements(table, columns[table], whole):
                if letter in partial:
                    granted = COLUMNS[role, table, letter].split()
                    statements = [
                        f"{statement.split('{}')[0]}{column}{statement.split('{}')[1]}"
                        for column in columns[table]
                        if column not in granted
                    ]
                else:
                    statements = [statement.replace("{}", columns[table][0])]
                for one in statements:
                    tried += 1
                    try:
                        await session.execute(one)
                        permitted.append(one)
                    except asyncpg.InsufficientPrivilegeError:
                        pass
        for statement in (
            "CREATE TABLE mine (a INT)",
            "ALTER TABLE ServingPolicy DISABLE TRIGGER ALL",
            "DROP TABLE PolicyAudit",
            "SET session_replication_role = replica",
            "CREATE ROLE another",
            "COPY ModelVersion TO PROGRAM 'true'",
            "SELECT pg_read_file('/etc/hostname')",
            "SET ROLE pg_read_all_data",
        ):
            tried += 1
            try:
                await session.execute(statement)
                permitted.append(statement)
            except (asyncpg.InsufficientPrivilegeError, asyncpg.PostgresSyntaxError):
                pass

    assert permitted == []
    assert tried > 30


async def columns_of(database: asyncpg.Connection, table: str) -> list[str]:
    rows = await database.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
        table,
    )
    return [f"{row['attname']}" if row["attname"] != "row" else '"row"' for row in rows]


def forbidden_statements(table: str, columns: list[str], whole: set[str]) -> list[tuple[str, str]]:
    """Return what fails for the right that is missing and for nothing else, with ``{}`` for a column."""
    statements = {
        "s": f"SELECT {{}} FROM {table} LIMIT 0",
        "i": f"INSERT INTO {table} ({{}}) VALUES (DEFAULT)",
        "u": f"UPDATE {table} SET {{}} = DEFAULT",
        "d": f"DELETE FROM {table}",
        "t": f"TRUNCATE {table}",
    }
    views_cannot = {"u", "i", "d", "t"} if table.startswith("understudy_") else set()
    return [(letter, text) for letter, text in statements.items() if letter not in whole | views_cannot]


async def test_a_hash_of_a_key_is_read_by_the_proxy_alone(database, login):
    await database.execute("INSERT INTO ApiKey (id, sha256, scopes) VALUES ('k', repeat('a', 64), '{read}')")
    for role in migrations.ROLES:
        async with session_of(await login(role)) as session:
            if role == PROXY:
                assert await session.fetchval("SELECT sha256 FROM ApiKey") == "a" * 64
            else:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await session.execute("SELECT sha256 FROM ApiKey")


async def test_an_engineers_change_is_audited_under_their_login_and_the_audit_stays_out_of_reach(database, login):
    url = await login(ENGINEER)
    async with session_of(url) as session:
        version = await session.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ('churn', '6', 's3://models', 'onnx', '{}') RETURNING id"
        )
        await session.execute("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'tfs-6:8500')", version)
        await session.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", version)
        await session.execute("SET understudy.actor = 'somebody else'")
        await session.execute("UPDATE ServingPolicy SET shadow_percent = 7")
        rolled_back = await session.fetchval("SELECT understudy_rollback('churn') ->> 'did'")
        actors = await session.fetch("SELECT DISTINCT actor FROM PolicyAudit")
        for statement in (
            "DELETE FROM PolicyAudit",
            "UPDATE PolicyAudit SET actor = 'nobody'",
            "SELECT understudy_touch('churn', 'policy')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.execute(statement)

    assert [row["actor"] for row in actors] == [url.partition("://")[2].partition(":")[0]]
    assert rolled_back.startswith("nothing")
    assert await database.fetchval("SELECT count(*) FROM PolicyChange WHERE source = 'policy'") == 1


async def test_functions_that_act_as_the_owner_look_names_up_in_our_schema_alone(database):
    loose = await database.fetch(
        """SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef
           AND NOT coalesce('search_path=public, pg_temp' = ANY (proconfig), FALSE)"""
    )

    assert loose == []


OF_PUBLIC = {"understudy_newest_move"}
"""Said to every login: which change of champion was the last one."""


async def test_functions_that_act_as_the_owner_are_no_logins_to_hang_on_a_table_of_its_own(database, login):
    definers = await database.fetch(
        """SELECT proname, prorettype = 'trigger'::regtype AS is_of_trigger,
                  EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) AS given
                          WHERE given.grantee = 0 AND given.privilege_type = 'EXECUTE') AS is_of_public
           FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"""
    )
    of_triggers = [row["proname"] for row in definers if row["is_of_trigger"]]
    refused = []
    async with session_of(await login(READER)) as session:
        await session.execute("CREATE TEMP TABLE mine (id TEXT)")
        for function in of_triggers:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.execute(
                    f"CREATE TRIGGER forge AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION public.{function}()"
                )
            refused.append(function)

    assert {row["proname"] for row in definers if row["is_of_public"]} <= OF_PUBLIC
    assert "understudy_record_key" in refused


async def test_granting_again_heals_what_somebody_changed(database, database_url):
    await database.execute(
        "GRANT DELETE ON PolicyAudit TO understudy_reader; REVOKE SELECT ON ServingPolicy FROM understudy_proxy"
    )

    await migrations.upgrade(database_url)

    held = "SELECT has_table_privilege($1::text, $2::text, $3)"
    assert not await database.fetchval(held, READER, "policyaudit", "DELETE")
    assert await database.fetchval(held, PROXY, "servingpolicy", "SELECT")


async def test_a_server_where_the_migrating_login_may_not_make_roles_is_migrated_and_told(own_server_url):
    async with session_of(own_server_url) as admin:
        await admin.execute("CREATE ROLE plain LOGIN PASSWORD 'secret'")
        await admin.execute("CREATE DATABASE theirs OWNER plain")
    place = own_server_url.rpartition("@")[2].partition("/")[0]
    url = f"postgresql://plain:secret@{place}/theirs"

    revision = await migrations.upgrade(url)
    missing = await migrations.roles_without_rights(url)
    async with session_of(own_server_url) as admin:
        for role in migrations.ROLES:
            await admin.execute(f"CREATE ROLE {role} NOLOGIN")
    known_without_rights = await migrations.roles_without_rights(url)
    await migrations.upgrade(url)

    assert revision == migrations.head()
    assert list(missing) == sorted(migrations.ROLES) == list(known_without_rights)
    assert await migrations.roles_without_rights(url) == []


@pytest.mark.old_schema
async def test_the_way_down_takes_the_rights_and_leaves_the_roles(database, database_url):
    await migrations.downgrade(database_url, "0007", lose_data=True)
    without = await migrations.roles_without_rights(database_url)
    executable = await database.fetchval(
        "SELECT has_function_privilege($1::text, 'understudy_ensure_partitions(int, timestamptz)', 'EXECUTE')", READER
    )
    await migrations.upgrade(database_url)

    assert list(without) == sorted(migrations.ROLES)
    assert executable
    assert await migrations.roles_without_rights(database_url) == []


@pytest.mark.exhaustive
async def test_two_databases_of_one_server_make_the_roles_at_once(own_server_url):
    urls = [own_server_url.rpartition("/")[0] + f"/{name}" for name in ("one", "two")]
    async with session_of(own_server_url) as admin:
        await admin.execute("CREATE DATABASE one")
        await migrations.upgrade(urls[0])
        await admin.execute("CREATE DATABASE two TEMPLATE one")

    async with session_of(urls[0]) as one, session_of(urls[1]) as two:
        for session in (one, two):
            await session.execute("SELECT understudy_revoke_role(role) FROM understudy_rights()")
        for role in migrations.ROLES:
            await one.execute(f"DROP ROLE {role}")

        missing = await asyncio.gather(*(session.fetchval(GRANT) for session in (one, two)))

    assert missing == [[], []]
    assert [list(await migrations.roles_without_rights(url)) for url in urls] == [[], []]


@pytest.mark.parametrize("role", [MONITOR, ENGINEER, READER])
async def test_no_role_ends_or_opens_a_guard_but_by_changing_the_policy(login, role):
    session = await asyncpg.connect(await login(role), timeout=10)

    for call in (
        "understudy_end_guard('shop', 'quiet')",
        "understudy_finish_guard(1, 'quiet')",
        "understudy_tell_guard(1, 'FAILED', 'quiet')",
        "understudy_open_guard(NULL, NULL)",
        "understudy_watch_arms(NULL)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await session.execute(f"SELECT {call}")
    await session.close(timeout=5)
