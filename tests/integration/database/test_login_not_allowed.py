"""A login that lacks a right is told so, and not that Postgres is away: another person has to mend it."""

import json
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest
from command import CommandLine
from e2e.stack import register
from traffic.spooled_rows import a_row

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.connections.connection import connect
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.errors import LoginNotAllowed
from understudy.ports.prediction_log.prediction_log import SpooledBatch

TIMEOUT_SECONDS = 20.0


@pytest.fixture
async def stranger_url(database: asyncpg.Connection, database_url: str) -> AsyncIterator[str]:
    """The URL of a login that may connect, and has no role."""
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    yield f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
    await database.execute(f"DROP ROLE {name}")


@pytest.fixture
async def closed_to_others(database: asyncpg.Connection) -> None:
    await database.execute(
        "DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()); END $$"
    )


async def test_a_command_leaves_with_7_and_says_which_right_is_missing(stranger_url, understudy: CommandLine):
    for command in ("model list", "rollout list", "audit list"):
        refused = await understudy.beside(*command.split(), DATABASE_URL=stranger_url)

        assert refused.code == 7, refused.err
        assert refused.err.startswith("✖ E514 The database login may not do this")
        assert "permission denied for " in refused.said
        assert "Grant the login the role" in refused.said
        assert "cannot be reached" not in refused.said


async def test_a_missing_right_a_rule_and_an_outage_are_told_apart_by_exit_code_and_code(
    stranger_url, database_url, understudy: CommandLine
):
    await register(database_url, 1, [])
    away = f"postgresql://me@127.0.0.1:{free_port()}/understudy"

    told = []
    for url in (stranger_url, database_url, away):
        done = await understudy.beside("rollback", "visits", "--yes", "--json", DATABASE_URL=url)
        told.append((done.code, json.loads(done.err)["error"]["code"]))

    assert told == [(7, "E514"), (7, "E203"), (69, "E510")]


async def test_a_program_gets_the_code_too(stranger_url, understudy: CommandLine):
    refused = await understudy.beside("model", "list", "--json", DATABASE_URL=stranger_url)

    assert '"code":"E514"' in refused.err
    assert '"exit_code":7' in refused.err


async def test_a_login_that_may_not_connect_is_told_so(stranger_url, closed_to_others, understudy: CommandLine):
    with pytest.raises(LoginNotAllowed, match="may not connect: permission denied for database"):
        await connect(stranger_url, timeout_seconds=TIMEOUT_SECONDS, application_name="test")
    refused = await understudy.beside("model", "list", DATABASE_URL=stranger_url)

    assert (refused.code, refused.err[:6]) == (7, "✖ E514")


async def test_the_doctor_names_the_right_as_well(stranger_url, understudy: CommandLine):
    done = await understudy.beside("doctor", "--json", DATABASE_URL=stranger_url)

    (problem,) = [finding for finding in done.document["findings"] if finding["state"] == "problem"]
    assert done.code == 1
    assert "permission denied for table" in problem["what"]
    assert "Grant the login the role" in problem["next_step"]


async def test_an_import_of_outcomes_says_first_what_to_grant(stranger_url, understudy: CommandLine, tmp_path):
    (tmp_path / "o.csv").write_text(
        "event_id,model,entity_id,name,value,occurred_at\no-1,visits,u,bought,1,2026-11-20T13:02:11Z\n"
    )

    refused = await understudy.beside("ab", "outcomes", "import", "o.csv", DATABASE_URL=stranger_url)

    assert (refused.code, refused.err[:6]) == (7, "✖ E514")
    assert "Grant the login the role" in refused.said
    assert "Import the file again" in refused.said


async def test_the_log_is_refused_by_right_and_not_by_schema(stranger_url):
    store = PostgresPredictionStore(stranger_url, timeout_seconds=TIMEOUT_SECONDS)
    encoded = encode_line(a_row(1, version_id=1))
    with pytest.raises(LoginNotAllowed, match="permission denied"):
        await store.write(SpooledBatch(str(uuid4()), 1, 0, 10_000, [encoded]))
    await store.close()


async def test_what_a_role_may_not_is_refused_through_the_registry_too(database, stranger_url):
    registry = PostgresRegistry(stranger_url, timeout_seconds=TIMEOUT_SECONDS)
    with pytest.raises(LoginNotAllowed):
        await registry.list_keys()
    await registry.close()
