"""What is said of a server that refuses a login."""

import asyncpg
import pytest

from understudy.adapters.postgres.connections.connection import refused_login, said_by


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "postgresql://dana:p%40ss@db.example.org:6432/registry",
            "at db.example.org:6432 was reached, and refused the login dana",
        ),
        ("postgresql+asyncpg://dana:s3cret@db/registry", "at db:5432 was reached, and refused the login dana"),
        ("postgresql://d%40na:s3cret@[::1]/registry", "at [::1]:5432 was reached, and refused the login d@na"),
        ("postgresql://dana@[::1]:6432/registry", "at [::1]:6432 was reached, and refused the login dana"),
        (
            "postgresql://dana:s3cret@one,two:6432/registry",
            "at one:5432 or two:6432 was reached, and refused the login dana",
        ),
        (
            "postgresql:///registry?host=/run/pg&user=dana&password=s3cret",
            "at /run/pg was reached, and refused the login dana",
        ),
        (
            "postgresql:///registry?host=db&port=6432&user=dana&password=s3cret",
            "at db:6432 was reached, and refused the login dana",
        ),
        ("postgresql:///registry", " was reached, and refused the login"),
        ("postgresql://dana:s3@cret@db/registry", "at db:5432 was reached, and refused the login dana"),
    ],
)
def test_a_refusal_names_the_server_and_the_login_and_never_the_password(url, said, monkeypatch):
    for name in ("PGHOST", "PGPORT", "PGUSER"):
        monkeypatch.delenv(name, raising=False)

    words = refused_login(url)

    assert words.removeprefix("Postgres").strip() == said.strip()
    assert not any(secret in words for secret in ("s3cret", "p@ss", "p%40ss", "s3@", "cret"))


def test_what_the_url_leaves_out_comes_from_the_environment_as_the_driver_takes_it(monkeypatch):
    for name, value in {"PGHOST": "db", "PGPORT": "6432", "PGUSER": "dana"}.items():
        monkeypatch.setenv(name, value)

    assert refused_login("postgresql:///registry") == "Postgres at db:6432 was reached, and refused the login dana"


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress"),
            "Postgres has ended the connection",
        ),
        (asyncpg.InternalClientError("unexpected"), "unexpected"),
        (TimeoutError(), "no answer in time"),
        (ConnectionRefusedError(111, "Connect call failed"), "[Errno 111] Connect call failed"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_a_lost_connection_is_told_in_words_and_not_by_the_state_of_its_client(problem, said):
    assert said_by(problem) == said
