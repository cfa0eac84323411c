"""How ``psql`` is told where the registry is."""

import os
import random
import string
import sys
from urllib.parse import quote

import pytest

from understudy.entrypoints.cli.db.sql_prompt import PromptCall, prompt_call, run_prompt
from understudy.entrypoints.cli.shared.errors import ExitCode


def test_a_password_is_in_no_argument():
    call = prompt_call("psql", "postgresql://dana:s%40fe@db:5432/understudy?sslmode=require", ("-c", "SELECT 1"))

    assert "s%40fe" not in " ".join(call.arguments)
    assert "--dbname=postgresql://dana@db:5432/understudy?sslmode=require" in call.arguments
    assert call.arguments[-2:] == ("-c", "SELECT 1")
    assert call.environment == {"PGPASSWORD": "s@fe"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://dana@db/x?password={}&sslmode=require", "postgresql://dana@db/x?sslmode=require"),
        ("postgresql:///x?host=/run/pg&password={}", "postgresql:///x?host=/run/pg"),
        ("postgresql://dana:{}@db/x?password=another", "postgresql://dana@db/x"),
        ("postgresql+asyncpg://dana:{}@db/x", "postgresql://dana@db/x"),
    ],
)
def test_a_password_in_either_place_is_handed_over_in_the_environment(url, shown):
    chance = random.Random(17)
    for _ in range(100):
        password = "".join(chance.choices(string.ascii_letters + string.digits + string.punctuation + "ä ", k=24))

        call = prompt_call("psql", url.format(quote(password, safe="")), ())

        assert call.arguments[-1] == f"--dbname={shown}"
        assert call.environment == {"PGPASSWORD": password}


def test_an_address_of_a_socket_stays_as_it_is():
    call = prompt_call("psql", "postgresql:///understudy?host=/run/postgresql", ())

    assert "--dbname=postgresql:///understudy?host=/run/postgresql" in call.arguments


def test_an_address_without_a_password_stays_as_it_is():
    call = prompt_call("psql", "postgresql://understudy@127.0.0.1:40001/understudy", ())

    assert "--dbname=postgresql://understudy@127.0.0.1:40001/understudy" in call.arguments
    assert call.environment == {}


@pytest.mark.parametrize(
    ("status", "code"), [(0, ExitCode.DONE), (1, ExitCode.PROBLEM), (2, ExitCode.UNREACHABLE), (3, ExitCode.PROBLEM)]
)
def test_the_prompts_own_exit_code_becomes_one_of_ours(status, code):
    call = PromptCall((sys.executable, "-c", f"raise SystemExit({status})"), {})

    assert run_prompt(call, dict(os.environ)) is code
