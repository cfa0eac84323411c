"""The URL of Postgres as the library of Iceberg gets it."""

import pytest
from sqlalchemy import make_url

from understudy.adapters.lake.iceberg_table import driver_url
from understudy.errors import LakeUnavailable


def read(url: str) -> dict[str, object]:
    """The parameters that libpq gets."""
    found = make_url(driver_url(url, 5.0))
    named = {"user": found.username, "password": found.password, "dbname": found.database, **found.query}
    return {name: value for name, value in named.items() if value is not None}


def test_several_hosts_a_socket_and_a_password_with_odd_letters_are_understood():
    several = read("postgresql+asyncpg://u:a%40b%2Fc@one:1,two:2/db?target_session_attrs=read-write")
    socket = read("postgresql://u@/db?host=/run/postgres")

    assert several == {
        "user": "u", "password": "a@b/c", "dbname": "db", "host": "one,two", "port": "1,2",
        "target_session_attrs": "read-write", "application_name": "understudy-lake", "connect_timeout": "5",
        "options": "-c statement_timeout=5000",
    }  # fmt: skip
    assert (socket["host"], socket["dbname"]) == ("/run/postgres", "db")


def test_what_libpq_does_not_know_is_a_setting_of_the_session_beside_the_time_out():
    read_options = read("postgresql://u:p@h/db?search_path=a, b&sslmode=require&options=-c%20work_mem%3D1MB")

    assert read_options["sslmode"] == "require"
    assert read_options["options"] == r"-c work_mem=1MB -c statement_timeout=5000 -c search_path=a,\ b"


def test_a_url_that_cannot_be_read_is_not_repeated():
    with pytest.raises(LakeUnavailable) as told:
        driver_url("postgresql://u:secret%zz@h/db", 5.0)

    assert "secret" not in f"{told.value} {told.value.__cause__} {told.value.hint}"
    assert told.value.__suppress_context__
