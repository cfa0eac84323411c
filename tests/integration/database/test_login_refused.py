"""A server that was reached and refuses the login is told so, with who and where, and never with the password."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest
from command import CommandLine
from loopback.server_folder import server_folder
from traffic.clusters import put_new_cluster

from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.postgres.connections.connection import connect
from understudy.adapters.redis.checkup import examine_redis
from understudy.errors import LoginNotAllowed

TIMEOUT_SECONDS = 20.0
LOGIN, PASSWORD, WRONG = "guarded", "the-right-one", "not-the-right-one"
HBA = f"host all {LOGIN} 127.0.0.1/32 scram-sha-256\nhost all understudy 127.0.0.1/32 trust\n"


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """``host:port/database`` of a server that asks ``guarded`` for a password, and lets its owner in besides."""
    with server_folder() as folder:
        rules = folder / "hba.conf"
        rules.write_text(HBA)
        put_new_cluster(folder / "pg")
        with EmbeddedPostgres(folder / "pg", parameters={"fsync": "off", "hba_file": str(rules)}) as server:
            asyncio.run(make_login(server.url))
            yield server.url.rpartition("@")[2]


async def make_login(url: str) -> None:
    connection = await asyncpg.connect(url, timeout=10)
    await connection.execute(f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{PASSWORD}'")
    await connection.close(timeout=5)


async def test_a_wrong_password_is_a_refused_login_and_the_right_one_is_let_in(place):
    for wrong in (f"{LOGIN}:{WRONG}", LOGIN):
        with pytest.raises(LoginNotAllowed) as refused:
            await connect(f"postgresql://{wrong}@{place}", timeout_seconds=TIMEOUT_SECONDS, application_name="test")

        said = f"Postgres at {place.partition('/')[0]} was reached, and refused the login {LOGIN}: "
        assert refused.value.detail.startswith(said)
        assert "password authentication failed" in refused.value.detail
        assert "password in DATABASE_URL" in refused.value.next_step
        assert WRONG not in refused.value.detail + refused.value.next_step

    let_in = await connect(
        f"postgresql://{LOGIN}:{PASSWORD}@{place}", timeout_seconds=TIMEOUT_SECONDS, application_name="test"
    )
    await let_in.close(timeout=5)


async def test_a_login_that_the_server_has_no_entry_for_is_told_what_the_server_lacks(place):
    with pytest.raises(LoginNotAllowed, match=r"refused the login nobody: no pg_hba\.conf entry") as refused:
        await connect(f"postgresql://nobody@{place}", timeout_seconds=TIMEOUT_SECONDS, application_name="test")

    assert "pg_hba.conf" in refused.value.next_step
    assert "password" not in refused.value.next_step


@pytest.mark.parametrize(
    "command",
    [
        ("version", "list"),
        ("rollout", "list"),
        ("db", "upgrade"),
        ("db", "check"),
        ("db", "partitions"),
        ("log", "query", "SELECT 1"),
    ],
    ids=" ".join,
)
async def test_every_command_says_who_was_refused_where_and_what_to_do(place, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    refused = await CommandLine(f"postgresql://{LOGIN}:{WRONG}@{place}").beside(*command)

    assert (refused.code, refused.err.startswith("✖ E514")) == (7, True), refused
    assert f"Postgres at {place.partition('/')[0]} was reached, and refused the login {LOGIN}" in refused.said
    assert "Correct the user or the password in DATABASE_URL" in refused.said
    assert "cannot be reached" not in refused.said
    assert WRONG not in refused.out + refused.err


async def test_the_doctor_says_so_of_postgres_and_goes_on(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = await CommandLine(f"postgresql://{LOGIN}:{WRONG}@{place}").beside("doctor", "--json")

    (problem,) = [finding for finding in done.document["findings"] if finding["state"] == "problem"]
    assert (done.code, problem["name"]) == (1, "postgres")
    assert f"was reached, and refused the login {LOGIN}" in problem["what"]
    assert "Correct the user or the password" in problem["next_step"]
    assert WRONG not in done.out + done.err


async def test_the_doctor_says_so_of_redis_too(valkey_url: str, understudy: CommandLine):
    server = urlsplit(valkey_url).netloc.rpartition("@")[2]
    refused_url = f"redis://{LOGIN}:{WRONG}@{server}/0"

    found = await examine_redis(refused_url)
    done = await understudy.beside("doctor", "--json", REDIS_URL=refused_url)

    assert found.is_refusal
    assert found.problem.startswith(f"{server} as {LOGIN} was reached, and refused the login: ")
    (warning,) = [finding for finding in done.document["findings"] if finding["name"] == "redis"]
    assert (warning["state"], warning["what"]) == ("warning", found.problem)
    assert "correct the user and password in REDIS_URL" in warning["next_step"]
    assert WRONG not in done.out + done.err
