"""What a stolen login of one process may not do to the others, by SQL that its role's rights allow."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from understudy.adapters import migrations
from understudy.adapters.migrations.bounds import Patience
from understudy.adapters.postgres.experiments.declarations import PostgresExperimentStore
from understudy.adapters.postgres.prediction_log.archive_ledger import open_ledger
from understudy.ports.experiments.experiment_store import NewExperiment

PROXY, MONITOR, ENGINEER, RETENTION, READER, *_ = migrations.ROLES
Session = Callable[..., Awaitable[asyncpg.Connection]]
ADD_OFFSET = "INSERT INTO SpoolOffset (spool_id, segment, byte_offset) VALUES ($1, 5, 9)"
MOVE_OFFSET = "UPDATE SpoolOffset SET segment = $2, byte_offset = 0, updated_at = now() WHERE spool_id = $1"
NAME_FILE = "INSERT INTO LakeFile (key, spool_id, segment, byte_offset, layout) VALUES ($1, $2, 5, 9, 1)"
ADD_VERSION = (
    "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
    " VALUES ('churn', $1, 'file:///m', 'sklearn', '{}') RETURNING id"
)


@pytest.fixture
async def session(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Session]:
    """Opens a session of a new login that has these roles and nothing else."""
    made: list[str] = []
    opened: list[asyncpg.Connection] = []

    async def open_session(*roles: str) -> asyncpg.Connection:
        made.append(f"test_{uuid4().hex[:12]}")
        await database.execute(f"CREATE ROLE {made[-1]} LOGIN PASSWORD 'secret' IN ROLE {', '.join(roles)}")
        place = database_url.rpartition("@")[2]
        opened.append(await asyncpg.connect(f"postgresql://{made[-1]}:secret@{place}", timeout=10, command_timeout=30))
        return opened[-1]

    yield open_session
    for connection in opened:
        await connection.close(timeout=5)
    for name in made:
        await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@asynccontextmanager
async def refused(match: str, error: type[asyncpg.PostgresError] = asyncpg.CheckViolationError) -> AsyncIterator[None]:
    with pytest.raises(error, match=match):
        yield


async def test_no_key_leads_the_archiver_out_of_its_archive(database, session):
    thief = await session(RETENTION)
    archive = await thief.fetchval(
        "INSERT INTO LogArchive (partition_name, month_start, month_end, location)"
        " VALUES ('predictionlog_2020_01', '2020-01-01Z', '2020-02-01Z', 'file:///a') RETURNING id"
    )
    add = "INSERT INTO LogArchiveFile (archive_id, key, model_name, day) VALUES ($1, $2, 'churn', '2020-01-01')"

    for key in (
        "/etc/x", "../../x", "predictionlog/../../x", "predictionlog/..", "predictionlog//x", "predictionlog/./x",
        "predictionlog/", "predictionlog", "manifests/x", "x", "",
    ):  # fmt: skip
        async with refused("logarchivefile_key_below_root"):
            await thief.execute(add, archive, key)
    await thief.execute(add, archive, "predictionlog/model=a..b/day=2020-01-01/part-1-1-00000.parquet")


async def test_an_offset_belongs_to_the_login_whose_proxy_made_it(database, session):
    mine, thief = await session(PROXY), await session(PROXY)
    await mine.execute(ADD_OFFSET, "mine")
    owner = await database.fetchval("SELECT owner FROM SpoolOffset")

    async with refused("belongs to the login", asyncpg.InsufficientPrivilegeError):
        await thief.execute(MOVE_OFFSET, "mine", 6)
    await mine.execute(MOVE_OFFSET, "mine", 6)
    await database.execute(f"GRANT {owner} TO {await thief.fetchval('SELECT current_user')}")
    await thief.execute(MOVE_OFFSET, "mine", 7)

    assert await database.fetchval("SELECT segment FROM SpoolOffset") == 7


async def test_a_proxy_reaches_no_file_of_another_ones_spool_and_none_that_is_stored(database, session):
    mine, thief = await session(PROXY), await session(PROXY)
    spool, other = f"lake:{uuid4()}", f"lake:{uuid4()}"
    await mine.execute(ADD_OFFSET, spool)
    await thief.execute(ADD_OFFSET, other)
    folder = "predictionlog/data/predicted_at_hour=2026-11-26-17/model=visits"
    key = f"{folder}/{spool[5:]}-5-9-5-20-1.parquet"
    await mine.execute(NAME_FILE, key, spool)

    for change in ("stored_at = now()", "named_at = '2020-01-01Z'", "row_count = 9"):
        async with refused("belong to the login", asyncpg.InsufficientPrivilegeError):
            await thief.execute(f"UPDATE LakeFile SET {change}")
    await mine.execute("UPDATE LakeFile SET stored_at = now(), row_count = 3, named_at = '2020-01-01Z'")
    for login in (mine, thief):
        async with refused("stored does not change"):
            await login.execute("UPDATE LakeFile SET stored_at = NULL")
    # Once the list has forgotten it, its name is free: added again, or deleted as left over, it must not be.
    await database.execute("DELETE FROM LakeFile")
    async with refused("belong to the login", asyncpg.InsufficientPrivilegeError):
        await thief.execute(NAME_FILE, key, spool)
    for foreign in (key, "predictionlog/metadata/v1.json", f"{folder}/../x/{other[5:]}-5-9-5-20-1.parquet", "../x"):
        async with refused("names the spool"):
            await thief.execute(NAME_FILE, foreign, other)
    async with refused("names the spool"):
        await thief.execute(NAME_FILE, key, f"lake:x:{spool[5:]}")


async def test_an_offset_of_before_this_schema_and_one_whose_login_is_gone_go_to_the_login_that_moves_them(
    database, session
):
    await database.execute("INSERT INTO SpoolOffset (spool_id, segment, byte_offset, owner) VALUES"
                           " ('old', 5, 9, NULL), ('gone', 5, 9, 'test_gone')")  # fmt: skip
    mine, thief = await session(PROXY), await session(PROXY)

    for spool in ("old", "gone"):
        await mine.execute(MOVE_OFFSET, spool, 6)
        async with refused("belongs to the login", asyncpg.InsufficientPrivilegeError):
            await thief.execute(MOVE_OFFSET, spool, 7)


@pytest.mark.parametrize(("segment", "offset"), [("9000000000000000000", "0"), ("5", "9000000000000000000")])
async def test_no_offset_is_in_the_distant_future_or_in_a_segment_that_no_disk_holds(session, segment, offset):
    thief = await session(PROXY)
    await thief.execute(ADD_OFFSET, "s")

    async with refused("no spool has a place"):
        await thief.execute(f"UPDATE SpoolOffset SET segment = {segment}, byte_offset = {offset}")
    async with refused("no spool has a place"):
        await thief.execute(
            f"INSERT INTO SpoolOffset (spool_id, segment, byte_offset) VALUES ('t', {segment}, {offset})"
        )


@pytest.mark.parametrize(
    ("generations", "in_flight", "seen_at"),
    [
        ('{"churn": "abc"}', "{}", "now()"),
        ('{"churn": 1e400}', "{}", "now()"),
        ('{"churn": 1.5}', "{}", "now()"),
        ('{"churn": null}', "{}", "now()"),
        ('{"churn": [1]}', "{}", "now()"),
        ("[1, 2]", "{}", "now()"),
        ('"x"', "{}", "now()"),
        ("{}", "5", "now()"),
        ("{}", '{"1": "zz"}', "now()"),
        ("{}", '{"one": 1}', "now()"),
        ("{}", "{}", "'infinity'"),
    ],
)
async def test_a_proxy_reports_only_what_the_monitor_can_read(session, generations, in_flight, seen_at):
    proxy = await session(PROXY)
    add = f"INSERT INTO ProxyInstance (instance, generations, in_flight, seen_at) VALUES ($1, $2, $3, {seen_at})"

    async with refused("proxyinstance_readable"):
        await proxy.execute(add, "evil", generations, in_flight)
    await proxy.execute(add.replace(seen_at, "now()"), "good", '{"churn": 3, "visits/ä": 9007199254740991}', '{"7": 2}')


@pytest.mark.parametrize(
    ("counts", "role", "start"),
    [
        ('"x"', "champion", "now()"),
        ("[1, 2]", "champion", "now()"),
        ('{"volume": "zz"}', "champion", "now()"),
        ('{"volume": {"a": 1}}', "champion", "now()"),
        ('{"volume": 1e300}', "champion", "now()"),
        ('{"latencies": ["a", 1]}', "champion", "now()"),
        ('{"buckets": [[1, "a"]]}', "champion", "now()"),
        ('{"score_squares": "zz"}', "champion", "now()"),
        ("{}", "boss", "now()"),
        ("{}", "champion", "'infinity'"),
    ],
)
async def test_a_proxy_writes_only_windows_that_the_monitor_can_read(database, session, counts, role, start):
    version = await database.fetchval(ADD_VERSION, "1")
    proxy = await session(PROXY)
    add = (
        "INSERT INTO PredictionWindow (model_version_id, window_start, role, policy_generation, shipper, calls, errors,"
        f" counts) VALUES ($1, {start}, $2, 1, $3, 1, 0, $4)"
    )
    good = (
        '{"volume": 3, "score": -7, "score_squares": "49", "latencies": [5, 1], "buckets": [[1, 1, 0, 0, 9, 0, 0, 0]]}'
    )

    async with refused("predictionwindow_readable"):
        await proxy.execute(add, version, role, "evil", counts)
    await proxy.execute(add.replace(start, "now()"), version, "champion", "good", good)


async def test_retention_makes_no_offset_older_than_it_is(database, session):
    await database.execute("INSERT INTO SpoolOffset (spool_id, segment, byte_offset) VALUES ('s', 5, 9)")
    retention = await session(RETENTION)

    await retention.execute("UPDATE SpoolOffset SET updated_at = '2020-01-01'")
    async with refused("only moves forward"):
        await retention.execute("DELETE FROM SpoolOffset")

    assert await database.fetchval("SELECT updated_at > now() - INTERVAL '1 hour' FROM SpoolOffset")


async def test_retention_changes_no_policy_change_through_a_trigger_of_its_own(database, session):
    await database.execute(ADD_VERSION, "1")
    retention = await session(RETENTION)
    await retention.execute(
        """CREATE TEMP TABLE mine (a INT);
           CREATE FUNCTION pg_temp.age() RETURNS TRIGGER LANGUAGE plpgsql AS $$
           BEGIN UPDATE public.PolicyChange SET changed_at = '2020-01-01'; RETURN NULL; END $$;
           CREATE TRIGGER age AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.age()"""
    )

    async with refused("written by triggers only"):
        await retention.execute("INSERT INTO mine VALUES (1)")


async def test_retention_erases_logged_inputs_and_forges_none(database, session):
    version, other = [await database.fetchval(ADD_VERSION, label) for label in ("1", "2")]
    await database.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, inputs)"
        " VALUES ($1, 'u', repeat('0', 64), '{}', 1, '{\"age\": 40}')",
        version,
    )
    await database.execute("ALTER TABLE Rollout DISABLE TRIGGER ALL")
    rollout = await database.fetchval(
        "INSERT INTO Rollout (model_name, champion_version, challenger_version, plan) VALUES ('churn', $1, $2, '{}')"
        " RETURNING id", version, other,
    )  # fmt: skip
    await database.execute(
        "INSERT INTO RolloutEvent (rollout_id, step, phase, reason, code_version, inputs)"
        " VALUES ($1, 0, 'PROGRESSING', '', '1', '{\"calls\": 9}')", rollout,
    )  # fmt: skip
    retention = await session(RETENTION)

    for table in ("PredictionLog", "RolloutEvent"):
        async with refused("erased or stay"):
            await retention.execute(f"UPDATE {table} SET inputs = '{{\"forged\": 1}}'")
    await retention.execute("UPDATE PredictionLog SET inputs = NULL")
    await retention.execute("UPDATE RolloutEvent SET inputs = '{}'")

    assert await database.fetchval("SELECT inputs FROM PredictionLog") is None


async def test_a_reason_and_an_actor_have_a_bound_in_every_audit(database, session):
    version = await database.fetchval(ADD_VERSION, "1")
    engineer = await session(ENGINEER)
    await engineer.execute("SELECT set_config('understudy.reason', repeat('x', 5000000), FALSE)")
    await engineer.execute("SELECT set_config('understudy.via', repeat('y', 5000000), FALSE)")

    await engineer.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", version)
    await engineer.execute("UPDATE ModelVersion SET timeout_ms = 501")
    await engineer.execute("INSERT INTO Subscription (name, receiver) VALUES ('ops', 'chat')")

    for table in ("PolicyAudit", "RegistryAudit", "SubscriptionAudit"):
        longest = await database.fetchrow(f"SELECT max(length(reason)), max(length(via)) FROM {table}")
        assert tuple(longest) == (1000, 255), table


async def test_an_engineer_signs_with_the_login_and_registers_no_champion(database, session):
    champion, challenger = [await database.fetchval(ADD_VERSION, label) for label in ("1", "2")]
    await database.execute("ALTER TABLE Rollout DISABLE TRIGGER rollout_guard")
    await database.execute("ALTER TABLE Rollout DISABLE TRIGGER rollout_guard_new")
    engineer = await session(ENGINEER)
    login = await engineer.fetchval("SELECT current_user")

    async with refused("a policy gives it"):
        await engineer.execute(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, status)"
            " VALUES ('churn', '3', 'file:///m', 'sklearn', '{}', 'champion')"
        )
    rollout = await engineer.fetchval(
        "INSERT INTO Rollout (model_name, champion_version, challenger_version, plan, reason, started_by)"
        " VALUES ('churn', $1, $2, '{}', repeat('x', 5000), 'boss') RETURNING id", champion, challenger,
    )  # fmt: skip
    await engineer.execute("UPDATE Rollout SET started_by = 'boss'")
    add = (
        "INSERT INTO RolloutEvent (rollout_id, step, phase, reason, code_version, actor)"
        " VALUES ($1, 0, 'FAILED', '', '1', $2)"
    )
    await engineer.execute(add, rollout, "boss")
    await (await session(MONITOR)).execute(add, rollout, "monitor")

    assert [row[0] for row in await database.fetch("SELECT actor FROM RolloutEvent ORDER BY id")] == [login, "monitor"]
    assert tuple(await database.fetchrow("SELECT started_by, length(reason) FROM Rollout")) == (login, 1000)


async def test_a_readers_lock_holds_up_no_new_partition(database, session):
    reader, proxy = await session(READER), await session(PROXY)
    async with reader.transaction():
        await reader.execute("SELECT pg_advisory_xact_lock(hashtextextended('understudy.partitions', 0))")

        made = await proxy.fetchval("SELECT understudy_ensure_partitions(5)")
        async with refused("permission denied", asyncpg.InsufficientPrivilegeError), reader.transaction():
            await reader.execute("LOCK TABLE PredictionLog IN SHARE UPDATE EXCLUSIVE MODE")

    assert made == 2


async def test_a_readers_lock_holds_up_no_declaration_of_a_test(database, database_url, session):
    reader, engineer = await session(READER), await session(ENGINEER)
    champion, challenger = [await database.fetchval(ADD_VERSION, label) for label in ("6", "7")]
    await reader.execute("SELECT pg_advisory_lock(hashtextextended('understudy.experiment', 0))")
    async with refused("permission denied", asyncpg.InsufficientPrivilegeError), reader.transaction():
        await reader.execute("LOCK TABLE Experiment IN ROW EXCLUSIVE MODE")
    login = await engineer.fetchval("SELECT current_user")
    url = f"postgresql://{login}:secret@{database_url.rpartition('@')[2]}"
    new = NewExperiment("churn", "converted", champion, challenger, 1_800_000_000.0, {}, "dana")

    declared = await asyncio.gather(*(PostgresExperimentStore(url, timeout_seconds=20).declare(new) for _ in range(2)))

    assert sorted(one is None for one in declared) == [False, True]


async def test_a_readers_lock_holds_up_no_migration(database, database_url, session):
    reader = await session(READER)
    await reader.execute("SELECT pg_advisory_lock($1)", migrations._MUTEX)  # noqa: SLF001 - as a migration takes it
    async with refused("permission denied", asyncpg.InsufficientPrivilegeError), reader.transaction():
        await reader.execute("LOCK TABLE alembic_version IN ROW EXCLUSIVE MODE")

    assert await migrations.upgrade(database_url, patience=Patience(lock_seconds=1)) == migrations.head()


async def test_no_role_writes_a_text_or_a_document_without_a_bound(database):
    unbounded = await database.fetch(
        r"""SELECT DISTINCT relname || '.' || attname AS name
           FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
           JOIN pg_roles ON rolname = ANY ($1::text[])
           WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
             AND atttypid IN ('text'::regtype, 'jsonb'::regtype, 'bytea'::regtype)
             AND (has_column_privilege(pg_roles.oid, pg_class.oid, attnum, 'INSERT')
                  OR has_column_privilege(pg_roles.oid, pg_class.oid, attnum, 'UPDATE'))
             AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND
                  lower(pg_get_triggerdef(pg_trigger.oid)) ~ ('(length|size)[(]new[.]"?' || attname || '\M'))
             AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgname = 'modelversion_guard_size'
                             AND pg_get_triggerdef(pg_trigger.oid) ~ ('new[.]' || attname))
             AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = pg_class.oid AND contype = 'c' AND
                  pg_get_constraintdef(pg_constraint.oid) ~ ('length[(]+' || attname || '\M'))
           ORDER BY 1""",
        list(migrations.ROLES),
    )

    # The log's rows go through the spool, whose frames have 4 MiB; signers cut what is too long; a month has a pattern.
    decided = {f"predictionlog.{name}" for name in ("defaulted", "inputs", "prediction", "slices")}
    # What the monitor alone writes, as sums.
    decided |= {"experiment.ended_by"}  # cut by the trigger that signs it
    decided |= {"drifthour.sums", "rollout.reason", "rollout.started_by", "rolloutevent.actor", "spooloffset.owner"}
    assert {row["name"] for row in unbounded} == decided | {"logarchive.partition_name"}


async def test_a_policys_author_is_cut_and_a_path_of_kilobytes_is_refused(database, session):
    version = await database.fetchval(ADD_VERSION, "1")
    engineer = await session(ENGINEER)
    # The owner's session, as one with the role understudy_trusted, says for whom it acts.
    await database.execute("SELECT set_config('understudy.actor', repeat('x', 5000000), FALSE)")

    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", version)
    first = await database.fetchval("SELECT length(updated_by) FROM ServingPolicy")
    await database.execute("UPDATE ServingPolicy SET salt = 'another'")
    async with refused("a row of modelversion is too large: artifact_path has at most 4096 bytes"):
        await engineer.execute(ADD_VERSION.replace("'file:///m'", "repeat('x', 5000)"), "2")

    assert (first, await database.fetchval("SELECT length(updated_by) FROM ServingPolicy")) == (255, 255)


async def test_a_readers_lock_holds_up_no_archive_run(database_url, session):
    reader, retention = await session(READER), await session(RETENTION)
    await reader.execute("SELECT pg_advisory_lock(hashtextextended('understudy.archive', 0))")
    async with refused("permission denied", asyncpg.InsufficientPrivilegeError), reader.transaction():
        await reader.execute("LOCK TABLE ArchiveStatus IN SHARE UPDATE EXCLUSIVE MODE")
    login = await retention.fetchval("SELECT current_user")
    url = f"postgresql://{login}:secret@{database_url.rpartition('@')[2]}"

    async with open_ledger(url, timeout_seconds=10) as ledger, ledger.alone():
        await ledger.succeeded()

    assert await reader.fetchval("SELECT count(*) FROM ArchiveStatus") == 1
