"""Functions that act as the owner of the tables read no table of their caller's, whatever name it has."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest
from worlds.archive import month_ago

STEAL = """
    CREATE FUNCTION pg_temp.steal() RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        CREATE TABLE public.stolen AS SELECT secret FROM public.cachesecret;
        RETURN 1;
    END $$;
    CREATE TEMP VIEW {name} AS
    SELECT pg_temp.steal() AS id, 1 AS model_version_id, 1 AS latency_ms, 1.0::float8 AS score,
           NULL::uuid AS prediction_id, 'x' AS entity_id, now() AS predicted_at
"""
BEGIN = """
    INSERT INTO LogArchive (partition_name, month_start, month_end, location)
    VALUES ($1, $2, $3, 'file:///nowhere') RETURNING id
"""
VERIFIED = "UPDATE LogArchive SET state = 'verified', row_count = 0, fingerprint = '0:0:0:0:0:0:0:0:0' WHERE id = $1"
MONTH = month_ago(300)  # no table of the log has its name


@pytest.fixture
async def thief(database: asyncpg.Connection, database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A stolen login of the archive job."""
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_retention")
    session = await asyncpg.connect(f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}", timeout=10)
    yield session
    await session.close(timeout=5)
    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.parametrize("function", ["understudy_archive_fingerprint", "understudy_detach_archived"])
async def test_a_view_of_the_callers_with_a_months_name_runs_nothing_as_the_owner(database, thief, function):
    archive = await thief.fetchval(BEGIN, MONTH.partition, MONTH.start, MONTH.end)
    await thief.execute(VERIFIED, archive)
    await thief.execute(STEAL.format(name=MONTH.partition))

    with pytest.raises(asyncpg.CheckViolationError, match="no table of the log"):
        await thief.fetchval(f"SELECT {function}($1)", archive)

    assert await database.fetchval("SELECT to_regclass('public.stolen')") is None


async def test_a_table_that_another_login_owns_is_no_month_of_the_log(database, thief):
    archive = await thief.fetchval(BEGIN, MONTH.partition, MONTH.start, MONTH.end)
    owner = await thief.fetchval("SELECT current_user")
    await database.execute(f"CREATE TABLE {MONTH.partition} (LIKE PredictionLog)")
    ours = await thief.fetchval("SELECT understudy_archive_fingerprint($1)", archive)
    await database.execute(f"ALTER TABLE {MONTH.partition} OWNER TO {owner}")

    with pytest.raises(asyncpg.CheckViolationError, match="no table of the log"):
        await thief.fetchval("SELECT understudy_archive_fingerprint($1)", archive)

    assert ours == "0:0:0:0:0:0:0:0:0"


async def test_a_table_of_the_callers_with_a_months_name_keeps_no_month_from_being_made(database, database_url):
    month = month_ago(-2, datetime.now(UTC))
    await database.execute(f"DROP TABLE {month.partition}")
    await database.execute(f"CREATE TEMP TABLE {month.partition} (a INT)")

    made = await database.fetchval("SELECT understudy_ensure_partitions(2)")

    assert made == 1
    assert await database.fetchval("SELECT to_regclass($1) IS NOT NULL", f"public.{month.partition}")


async def test_every_name_that_such_a_function_puts_together_has_its_schema(database):
    sources = await database.fetch(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef"
        " AND prosrc ~ 'EXECUTE format'"
    )

    # %I alone may stand for a name only where it comes behind a schema's, or behind RENAME TO, which takes no schema.
    bare = [row["proname"] for row in sources if "%I" in row["prosrc"].replace("%I.%I", "").replace("RENAME TO %I", "")]
    assert bare == []
    assert len(sources) >= 4
