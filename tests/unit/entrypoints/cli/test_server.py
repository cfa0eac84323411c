"""What ``server list`` says of a model server."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from understudy.entrypoints.cli.server import SERVER_COLUMNS, server_row
from understudy.entrypoints.cli.shared.rendering import a_table
from understudy.ports.loading.loading_registry import ServerRecord
from understudy.registry.findings.loading import server_trouble, server_trouble_line

FINE = ServerRecord("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "", 1.0, wanted=4, available=4, failed=0)
AWAY = FINE._replace(
    problem="E215 the model server's control at 127.0.0.1:8601: failed to connect to all addresses; last error:"
    " UNKNOWN: ipv4:127.0.0.1:8601: Failed to connect to remote host: connect: Connection refused (111)"
)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (FINE, ""),
        (AWAY, "control refused (E215)"),
        (AWAY._replace(seen_seconds=90.0), "agent silent for 1 m 30 s"),
    ],
)
def test_a_silent_agent_is_said_before_anything_that_it_said(server, words):
    assert server_trouble(server) == words


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("server", [AWAY, AWAY._replace(seen_seconds=90.0)])
def test_the_state_of_a_server_is_shown_when_it_is_bad_and_what_it_has_does_not_look_healthy(server, width):
    console = Console(file=io.StringIO(), width=width)

    console.print(a_table(SERVER_COLUMNS, [server_row(server)], width))

    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert server_trouble(server) in text
    assert "was 4" in text
    assert width == 80 or "10.0.0.7:8500" in text


def test_a_healthy_server_is_shown_as_it_was():
    assert server_row(FINE)[-3:] == ("4", "0", "ok")


def test_a_server_that_ends_is_not_shown_as_one_that_only_has_less():
    assert server_row(FINE._replace(is_draining=True, available=0))[-3:] == ("0", "0", "draining")


def test_the_whole_words_of_a_server_are_told_below_the_table():
    assert server_trouble_line(AWAY) == f"onnx-0 did not answer its agent 1 s ago: {AWAY.problem}"
    assert "silent for 1 m 30 s; it last said: E215" in server_trouble_line(AWAY._replace(seen_seconds=90.0))
    assert isinstance(server_row(AWAY)[-1], Text)
