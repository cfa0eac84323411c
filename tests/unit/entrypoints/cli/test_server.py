"""What ``server list`` says of a model server."""

import pytest

from understudy.entrypoints.cli.server import state_words
from understudy.ports.loading.loading_registry import ServerRecord

FINE = ServerRecord("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "", 1.0, wanted=2, available=2, failed=0)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (FINE, "ok"),
        (FINE._replace(problem="E215 the model server's control"), "E215 the model server's control"),
        (FINE._replace(problem="E215 x", seen_seconds=90.0), "agent silent for 1 m 30 s"),
    ],
)
def test_a_silent_agent_is_said_before_anything_that_it_said(server, words):
    assert state_words(server) == words
