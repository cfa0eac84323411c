"""A URL is either refused without a word of it, or its client reads exactly what was meant."""

import random
import string
from typing import Any
from urllib.parse import quote, unquote

import pytest
from asyncpg import connect_utils
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import parse_url

from understudy.core.connection_urls import (
    http_problem,
    postgres_problem,
    postgres_user,
    redis_problem,
    without_password,
)

SIGNS = string.ascii_letters + string.digits + string.punctuation


def passwords(count: int = 500) -> list[str]:
    """Return passwords as generators make them: any signs, base64, digits first, signs of other alphabets."""
    chance = random.Random(16)
    alphabets = (
        SIGNS,
        string.ascii_letters + string.digits + "+/=",
        string.digits + "/?#@",
        SIGNS + "ä€℀\uff0f\uff20é ",
    )
    return ["".join(chance.choices(alphabets[n % 4], k=12 + n % 21)) for n in range(count)]


def as_asyncpg_reads(url: str) -> tuple[object, str | None, str | None, str | None]:
    """Return the addresses, the user, the password and the database."""
    nothing = dict.fromkeys(
        ("host", "port", "user", "password", "passfile", "database", "ssl", "service", "servicefile", "direct_tls",
         "server_settings", "krbsrvname", "target_session_attrs", "gsslib")
    )  # fmt: skip
    read: Any = vars(connect_utils)["_parse_connect_dsn_and_args"]  # the oracle has no public name
    addresses, parameters = read(dsn=url, **nothing)
    return addresses, parameters.user, parameters.password, parameters.database


def test_a_postgres_url_that_is_not_refused_is_read_by_the_client_as_it_was_meant():
    refused = 0
    for password in passwords():
        url = f"postgresql://proxy:{password}@db.internal:5433/understudy"
        problem = postgres_problem(url)
        if problem is None:
            expected = ([("db.internal", 5433)], "proxy", unquote(password), "understudy")
            assert as_asyncpg_reads(url) == expected, url
        refused += problem is not None

    assert 150 < refused < 500


def test_a_redis_url_that_is_not_refused_is_read_by_the_client_as_it_was_meant():
    refused = 0
    for password in passwords():
        url = f"rediss://proxy:{password}@cache.internal:6380/2"
        problem = redis_problem(url)
        if problem is None:
            read = ConnectionPool.from_url(url).connection_kwargs
            expected = {"host": "cache.internal", "port": 6380, "username": "proxy", "password": unquote(password)}
            assert read.items() >= {**expected, "db": 2}.items(), url
        refused += problem is not None

    assert 150 < refused < 500


@pytest.mark.deep
def test_a_password_among_the_parameters_that_is_not_refused_is_read_by_the_client_as_it_was_meant():
    refused = 0
    for password in passwords():
        for base, problem in (("postgresql://proxy@db", postgres_problem), ("redis://cache", redis_problem)):
            url = f"{base}/0?password={password}"
            found = problem(url)
            if found is None:
                read = as_asyncpg_reads(url)[2] if problem is postgres_problem else parse_url(url)["password"]
                assert read == unquote(password), url
            refused += found is not None

    assert 300 < refused < 1_000


@pytest.mark.deep
def test_a_password_that_is_encoded_as_the_error_says_is_taken_and_read_back():
    for password in passwords():
        encoded = quote(password, safe="")
        for scheme, problem in (("postgresql", postgres_problem), ("redis", redis_problem), ("https", http_problem)):
            assert problem(f"{scheme}://proxy:{encoded}@db.internal:5433/0") is None

        assert as_asyncpg_reads(f"postgresql://proxy:{encoded}@db/x")[2] == password


@pytest.mark.deep
def test_without_its_password_a_postgres_url_is_otherwise_read_by_the_client_as_before():
    secrets = [quote(password, safe="") for password in passwords(200)]
    for first, second in zip(secrets, reversed(secrets), strict=True):
        for url in (
            f"postgresql://proxy:{first}@db.internal:5433/understudy?sslmode=disable&password={second}",
            f"postgresql://:{first}@one:5432,two:5433/understudy?user=proxy",
            f"postgresql://proxy@[::1]/understudy?password={first}&sslpassword={second}",
            f"postgresql:///understudy?host=/run/postgresql&password={first}&user=proxy",
        ):
            shown = without_password(url)

            addresses, user, _, database = as_asyncpg_reads(url)
            assert (first not in shown, second not in shown) == (True, True), url
            assert as_asyncpg_reads(shown) == (addresses, user, None, database), url


def test_without_its_password_a_redis_url_is_otherwise_read_by_the_client_as_before():
    secrets = [quote(password, safe="") for password in passwords(200)]
    for first, second in zip(secrets, reversed(secrets), strict=True):
        for url in (
            f"rediss://proxy:{first}@cache.internal:6380/2?password={second}&socket_timeout=0.5",
            f"redis://:{first}@[::1]:6380",
            f"unix:///run/valkey.sock?username=proxy&password={first}&ssl_password={second}&db=1",
        ):
            shown = without_password(url)

            left = {name: value for name, value in parse_url(url).items() if name not in ("password", "ssl_password")}
            assert (first not in shown, second not in shown) == (True, True), url
            assert parse_url(shown) == left, url


def test_a_url_without_a_password_is_shown_as_it_is_written():
    for url in (
        "postgresql:///understudy?host=/run/postgresql",
        "postgresql+asyncpg://d%40na@one:5432,two/understudy?sslmode=require&passfile=/a%20b",
        "unix:///run/valkey.sock?db=1",
        "postgresql://db/understudy?host=one&host=two",
        "redis://127.0.0.1:6379/0",
    ):
        assert without_password(url) == url


def test_a_url_whose_password_cannot_be_told_from_the_rest_shows_its_scheme_alone():
    for password in passwords():
        for url in (
            f"postgresql://proxy:x{password}@db/understudy",
            f"redis://cache:6379/0?password=x{password}",
            f"redis://cache:6379/0?p%61ssword=x{password}",
        ):
            shown = without_password(url)

            assert f"x{password[:8]}" not in shown, url
            assert shown.startswith(url.partition("://")[0]), url
    assert without_password("postgresql://proxy:p/w@db/x") == "postgresql://…"
    assert without_password("secret") == "…"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:5432/understudy",
        "postgres://proxy@db/understudy",
        "postgresql+asyncpg://proxy:pa ss@db/understudy",
        "postgresql:///understudy",
        "postgresql://proxy:secret@/understudy?host=/run/postgresql",
        "postgresql://proxy@%2Frun%2Fpostgresql/understudy",
        "postgresql://one:5432,two:5433,[::1]:5434/understudy?target_session_attrs=read-write",
        "postgresql://[fe80::1]/understudy",
        "postgresql://db/understudy?user=proxy&password=s%26cret&sslmode=verify-full&sslrootcert=/ca.pem",
        "postgresql://db/understudy?search_path=app&my.setting=1",
        "postgresql://db/understudy?host=one,two&port=5432,5433",
    ],
)
def test_every_form_that_the_client_of_postgres_reads_is_taken(url):
    assert postgres_problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://:secret@cache",
        "redis://:pass@word@cache:6379",
        "rediss://cache:6379/1?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required",
        "unix:///run/valkey.sock?db=1",
        "redis://[::1]:6379?socket_timeout=0.5",
    ],
)
def test_every_form_that_the_client_of_redis_reads_is_taken(url):
    assert redis_problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/services/T0/B0/token",
        "https://outlook.example/webhook/0a1b@2c3d/IncomingWebhook/4e5f",
        "HTTPS://ada:secret@hooks.example:8443/a?b=c#d",
        "http://[::1]:9000/hook",
    ],
)
def test_every_form_of_a_receivers_address_is_taken(url):
    assert http_problem(url) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://u:p/w@db/x", "has a meaning in URLs"),
        ("postgresql://u:1234/w@db/x", "has a meaning in URLs"),
        ("postgresql://u:1234?w=1@db/x", "has a meaning in URLs"),
        ("postgresql://u:p#w@db/x", "has a meaning in URLs"),
        ("postgresql://u:p@w@db/x", "has a meaning in URLs"),
        ("postgresql://u:p[w@db/x", "has a meaning in URLs"),
        ("postgresql://u:p\tw@db/x", "has a meaning in URLs"),
        ("postgresql://u:p℀w@db/x", "has a meaning in URLs"),
        ("postgresql://user:secret/x", "a port is a number up to 65535"),
        ("postgresql://db:70000/x", "a port is a number up to 65535"),
        ("postgresql://db,,other/x", "a host or a port cannot be read"),
        ("postgresql://db[0]/x", "a host or a port cannot be read"),
        ("postgresql://[::1]x/y", "a host or a port cannot be read"),
        ("postgresql://[1.2.3.4]/y", "a host or a port cannot be read"),
        ("postgresql://db/x?secret", "no list of name=value"),
        ("postgresql://db/x?password=a&cret=1", "beside the password is none that is known"),
        ("postgresql://db/x?password=a+b", "a + of the password is read as a space"),
        ("postgresql://db/x?port=one", "the parameter port is no number"),
        ("postgresql://db/x?host=db:one", "the parameter host cannot be read"),
        ("mysql://db/x", "expected postgresql://user:password@host:port/name"),
        ("", "expected postgresql://user:password@host:port/name"),
    ],
)
def test_what_a_client_of_postgres_would_misread_is_refused_with_what_to_do(url, why):
    assert why in (postgres_problem(url) or "")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://:12/34@cache", "has a meaning in URLs"),
        ("redis://:12?x@cache", "has a meaning in URLs"),
        ("redis://cache/0#secret", "has a meaning in URLs"),
        ("redis://cache:secret/0", "a port is a number"),
        ("redis://cache?cret=1", "is none of Redis' client"),
        ("redis://cache?db=one", "must be a number"),
        ("redis://cache?password=a+b", "a + of the password is read as a space"),
        ("http://cache", "expected redis://"),
    ],
)
def test_what_a_client_of_redis_would_misread_is_refused_with_what_to_do(url, why):
    assert why in (redis_problem(url) or "")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://u:p/w@hooks.example/x", "has a meaning in URLs"),
        ("https://u:443/w@hooks.example/x", "has a meaning in URLs"),
        ("https://u:p@w/x@hooks.example/x", "has a meaning in URLs"),
        ("https://u:secret", "a port is a number"),
        ("https:///x", "cannot be read"),
        ("ftp://hooks.example", "expected https://host/path"),
    ],
)
def test_what_a_client_of_a_receiver_would_misread_is_refused_with_what_to_do(url, why):
    assert why in (http_problem(url) or "")


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("postgresql://dana@db/understudy", "dana"),
        ("postgresql://dana%40shop:secret@db/understudy", "dana@shop"),
        ("postgresql:///understudy?host=/run&user=kim", "kim"),
        ("postgresql://db:5432/understudy", None),
        ("no url", None),
    ],
)
def test_the_login_of_a_url_is_named_without_its_password(url, login):
    assert postgres_user(url) == login
