"""``psql``, the machine's own or the one that comes with the embedded Postgres, told where the registry is."""

import subprocess
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from understudy.core.connection_urls import without_password
from understudy.entrypoints.cli.shared.errors import ExitCode

_LOST_CONNECTION = 2


class PromptCall(NamedTuple):
    """How ``psql`` is started: its arguments, and what it finds in its environment beside ours."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


def prompt_call(psql: str, database_url: str, arguments: Sequence[str]) -> PromptCall:
    """Return the call; a password goes into the environment: every user can read a process's arguments."""
    scheme, _, rest = without_password(database_url).partition("://")
    shown = f"{scheme.partition('+')[0]}://{rest}"  # psql does not know SQLAlchemy's postgresql+asyncpg://
    password = _password_of(database_url)
    # What goes wrong in the first statement of several ends the prompt, with an exit code that says so.
    return PromptCall(
        (psql, "--set=ON_ERROR_STOP=1", f"--dbname={shown}", *arguments),
        {"PGPASSWORD": password} if password else {},
    )


def _password_of(database_url: str) -> str:
    """Return the password that the product's own connections have: a parameter's counts where the account has none."""
    parts = urlsplit(database_url)
    account = parts.netloc.rpartition("@")[0]
    return unquote(account.partition(":")[2]) or parse_qs(parts.query).get("password", [""])[-1]


def run_prompt(call: PromptCall, environment: dict[str, str]) -> ExitCode:
    """Run ``psql`` on this terminal until it ends, and say how that was."""
    status = subprocess.run(call.arguments, env={**environment, **call.environment}, check=False).returncode
    if status == 0:
        return ExitCode.DONE
    return ExitCode.UNREACHABLE if status == _LOST_CONNECTION else ExitCode.PROBLEM
