"""A shell completes the names of models."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import CommandLine
from e2e.stack import register

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.entrypoints.cli.shared.completion import model_names


async def make(database_url: str) -> None:
    for name in ("visits", "digits"):
        await register(database_url, 1, [1], name)


def test_names_of_models_are_completed_by_what_was_typed(understudy: CommandLine, database_url: str, monkeypatch):
    asyncio.run(make(database_url))
    monkeypatch.setenv("DATABASE_URL", database_url)

    assert model_names("") == ["digits", "visits"]
    assert model_names("vi") == ["visits"]
    assert model_names("x") == []


def test_without_a_registry_nothing_is_completed_and_nothing_said(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    for url in (f"postgresql://me@127.0.0.1:{free_port()}/nothing", "no url"):
        monkeypatch.setenv("DATABASE_URL", url)
        assert model_names("v") == []
    monkeypatch.delenv("DATABASE_URL")
    assert model_names("v") == []

    assert capfd.readouterr() == ("", "")


ASKED = """
source <(understudy --show-completion bash)
COMP_WORDS=(%s) COMP_CWORD=%d
_understudy_completion understudy
printf '%%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("understudy model show v", ["visits"]),
        ("understudy rollb", ["rollback"]),
        ("understudy log tail d", ["digits"]),
    ],
)
def test_bash_completes_what_was_typed(words, completed, database_url):
    asyncio.run(make(database_url))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-c", ASKED % (words, len(words.split()) - 1)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "DATABASE_URL": database_url, "PATH": path},
    )  # fmt: skip

    assert done.stdout.split() == completed, done
