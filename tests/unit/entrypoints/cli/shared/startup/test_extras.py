"""A command that lacks a package says which extra brings it."""

import json

import pytest

from understudy.entrypoints.cli.shared.errors import ExitCode
from understudy.entrypoints.cli.shared.startup.extras import EXIT_CODE, missing_extra, report_missing


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("typer", ["model", "list"], "cli"),
        ("sqlalchemy.ext.asyncio", ["db", "upgrade"], "cli"),
        ("grpc", ["version", "check", "visits", "2"], "proxy"),
        ("scipy", ["ab", "report", "visits"], "monitor"),
        ("typer", ["serve", "proxy"], "proxy"),
        ("typer", ["serve", "monitor"], "monitor"),
        ("prometheus_client", ["serve", "monitor"], "monitor"),
        ("grpc", ["modelserver", "--serve", "visits:1"], "modelserver"),
        ("onnxruntime", ["demo"], "demo"),
        ("understudy.nowhere", ["model", "list"], None),
        ("yaml.events", ["apply", "-f", "policy"], "cli"),
        ("duckdb", ["model", "list"], None),
    ],
)
def test_the_extra_is_the_commands_own_or_else_the_packages(package, command, extra):
    assert missing_extra(package, command) == extra


def test_people_read_what_is_missing_and_what_installs_it(capsys):
    report_missing("sqlalchemy.exc", "cli", ["db", "upgrade"])

    said = capsys.readouterr().err
    assert said == (
        "✖ this command needs sqlalchemy, which is not installed\n  → pip install 'understudy-serving[cli]'\n"
    )


def test_programs_read_it_as_every_other_problem(capsys):
    report_missing("typer", "cli", ["model", "list", "--json"])

    document = json.loads(capsys.readouterr().err)
    assert document["schema"] == "understudy/v1"
    assert document["error"]["next"] == "pip install 'understudy-serving[cli]'"
    assert document["error"]["exit_code"] == ExitCode.USAGE == EXIT_CODE
