"""How ``psql`` is told where the registry is."""

import os
import sys

import pytest

from understudy.entrypoints.cli.db.sql_prompt import PromptCall, prompt_call, run_prompt
from understudy.entrypoints.cli.shared.errors import ExitCode


def test_a_password_is_in_no_argument():
    call = prompt_call("psql", "postgresql://dana:s%40fe@db:5432/understudy?sslmode=require", ("-c", "SELECT 1"))

    assert "s%40fe" not in " ".join(call.arguments)
    assert "--dbname=postgresql://dana@db:5432/understudy?sslmode=require" in call.arguments
    assert call.arguments[-2:] == ("-c", "SELECT 1")
    assert call.environment == {"PGPASSWORD": "s@fe"}


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
