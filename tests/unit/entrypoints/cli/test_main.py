"""The table of nouns: everything is in the help, and nothing heavy is loaded for it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from understudy import __version__
from understudy.entrypoints.cli.main import run
from understudy.entrypoints.cli.shared.startup.noun_group import load
from understudy.entrypoints.cli.shared.startup.nouns import GROUPS, NOUNS

HEAVY = {
    "typer",
    "rich",
    "pydantic",
    "orjson",
    "scipy",
    "numpy",
    "grpc",
    "sqlalchemy",
    "fastapi",
    "asyncpg",
    "alembic",
    "uvicorn",
    "redis",
    "onnxruntime",
}
ARCHIVING = {"duckdb", "obstore", "pyarrow"}


def verbs_of(noun: str) -> list[str]:
    command = load(noun)
    return sorted(command.commands) if isinstance(command, TyperGroup) else []


def pages(command: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield a command and those below it, each with what a person types for it."""
    yield pytest.param(command, path, id=" ".join(path))
    for verb, below in getattr(command, "commands", {}).items():
        yield from pages(below, (*path, verb))


def test_the_help_names_every_noun_within_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    code = run(["--help"])

    said = capsys.readouterr().out
    assert code == 0
    assert all(f"\n  {noun} " in said for noun in NOUNS)
    assert [line for line in said.splitlines() if line in GROUPS] == list(GROUPS)
    assert max(map(len, said.splitlines())) <= 80


def test_the_help_loads_nothing_heavy():
    program = (
        "import sys; from understudy.entrypoints.cli.main import run; run(['--help']); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert "Usage" in done.stdout
    assert set(done.stderr.split()) & (HEAVY | ARCHIVING) == set()


@pytest.mark.deep
@pytest.mark.parametrize("module", ["entrypoints.proxy.api.app", "entrypoints.monitor", "entrypoints.cli.db.commands"])
def test_who_archives_nothing_loads_no_library_that_archives(module):
    program = (
        f"import sys; import understudy.{module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    assert set(done.stdout.split()) & ARCHIVING == set()


@pytest.mark.deep
def test_who_asks_about_versions_and_calls_no_model_server_loads_nothing_that_calls_one():
    program = "import sys; import understudy.entrypoints.cli.version.commands; print('grpc' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    "path", [[noun, *verb] for noun in NOUNS for verb in ([[v] for v in verbs_of(noun)] or [[]])], ids=" ".join
)
def test_every_command_explains_itself(path, capsys):
    code = run([*path, "--help"])

    assert code == 0
    assert f"understudy {' '.join(path)}" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "path"), [page for noun in NOUNS for page in pages(load(noun), (noun,))])
def test_the_help_of_a_command_has_each_option_whole_within_80_columns(command, path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    run([*path, "--help"])

    said = capsys.readouterr().out
    options = {name for parameter in command.params for name in parameter.opts if name.startswith("-")}
    assert max(map(len, said.splitlines())) <= 80
    assert options - set(re.findall(r"(?<![\w-])--?\w[\w-]*", said)) == set()


@pytest.mark.parametrize("path", [["model", "list"], ["version", "show"], ["audit", "list"], ["doctor"], ["demo"]])
def test_commands_that_answer_do_it_in_json_too(path, capsys):
    run([*path, "--help"])

    assert "--json" in capsys.readouterr().out


def test_the_version_is_printed(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"understudy {__version__}\n"


def test_an_unknown_noun_is_wrong_usage_and_names_the_nearest(capsys):
    assert run(["verion"]) == 2
    assert "version" in capsys.readouterr().err


def test_an_error_code_is_explained(capsys):
    assert run(["explain", "e203"]) == 0
    assert "E203 The database refused the change" in capsys.readouterr().out


def test_an_unknown_error_code_is_not_found(capsys):
    assert run(["explain", "E999"]) == 4
    assert "E203" in capsys.readouterr().err


INTERRUPTED_AT = """
import sys
from importlib.abc import MetaPathFinder
from understudy.entrypoints.cli.main import main

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            raise KeyboardInterrupt

MODULE = sys.argv[1]
sys.meta_path.insert(0, Interrupting())
sys.argv = ["understudy", "model", "list"]
main()
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    "module",
    ["typer", "understudy.errors", "understudy.entrypoints.cli.model.commands", "understudy.settings", "asyncpg"],
)
def test_ctrl_c_ends_a_command_without_a_traceback_whatever_it_is_loading(module, tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "DATABASE_URL": "postgresql://me@127.0.0.1:1/nothing"}

    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, module], capture_output=True, text=True, timeout=60, check=False,
        env=environment, cwd=tmp_path,
    )  # fmt: skip

    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr


@pytest.mark.parametrize(
    "words", [["version", "show", "visits"], ["predict", "visits", "--entity"], ["explain", "visits"]]
)
def test_an_argument_that_is_no_text_is_refused_before_anything_is_asked(capsys, words):
    code = run([*words, "bad\udcffname"])

    said = capsys.readouterr().err
    assert code == 2
    assert f"argument {len(words) + 1} is not text in UTF-8: 'bad\\udcffname'" in said


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        (["model", "list", "--nonsense"], "No such option"),
        (["ab", "report", "visits"], "Missing option"),
        (["audit", "list", "--limit", "0"], "Invalid value for '--limit'"),
        (["model", "shwo"], "No such command"),
    ],
)
def test_a_wrong_option_beside_json_is_told_as_every_other_problem_and_not_in_a_box(capsys, words, detail):
    code = run([*words, "--json"])

    said = capsys.readouterr()
    error = json.loads(said.err)["error"]
    assert (code, error["exit_code"], error["code"], said.out) == (2, 2, None, "")
    assert detail in error["detail"]
    assert error["next"].startswith("understudy ")


SIGNALLED_AT = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from understudy.entrypoints.cli.start import main

class Signalling(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Signalling())
MODULE = sys.argv[1]
sys.argv = ["understudy", "model", "list", MODULE]
main()
"""
NOT_IGNORED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""What a shell starts in the background, tests as well, ignores the signal."""
IN_ORJSON = "json.decoder"
"""A module that orjson imports while it starts: an exception there crashes the process."""


@pytest.mark.parametrize("module", ["typer", "orjson.orjson", IN_ORJSON, "understudy.entrypoints.cli.model.commands"])
def test_the_signal_itself_ends_a_command_that_is_loading_with_130_and_without_a_word(module, tmp_path):
    program = f"{NOT_IGNORED}\n{SIGNALLED_AT}"
    done = subprocess.run(
        [sys.executable, "-c", program, module], capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.deep
def test_a_process_that_was_started_with_the_signal_ignored_goes_on_ignoring_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", f"import signal; signal.signal(2, signal.SIG_IGN)\n{SIGNALLED_AT}", "typer"],
        capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 2, "the module's name, which is no argument of the command, is what ends it"
    assert "unexpected extra argument" in done.stderr


def test_output_that_has_no_reader_any_more_ends_a_command_without_a_traceback(tmp_path):
    program = (
        "from understudy.entrypoints.cli.main import main; import sys; sys.argv = ['understudy', '--help']; main()"
    )
    reading, writing = os.pipe()
    os.close(reading)

    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-u", "-c", program],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stderr) == (1, "")
