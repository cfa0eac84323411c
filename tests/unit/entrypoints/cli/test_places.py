"""Where commands find the proxy, and where the demo puts it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from understudy.entrypoints.cli.demo.commands import wanted_port
from understudy.entrypoints.cli.predict import proxy_to_call
from understudy.entrypoints.cli.shared.contexts.chosen_proxy import Place
from understudy.entrypoints.demo.state import StateFolder
from understudy.settings import Settings


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """The folder of a demo that asks for a key."""
    folder = StateFolder(tmp_path)
    folder.hold()
    folder.announce({"proxy": "http://127.0.0.1:40001", "credential": "demo.secret"})
    yield tmp_path
    folder.release()


def test_a_proxy_that_is_named_is_called_whatever_runs_here(running: Path):
    settings = Settings(proxy_url="https://predict.internal", credential=SecretStr("own.secret"), state_dir=running)

    assert proxy_to_call(settings) == Place("https://predict.internal", "own.secret")


def test_the_demos_proxy_is_called_with_the_demos_key_unless_there_is_an_own_one(running: Path):
    assert proxy_to_call(Settings(state_dir=running)) == Place("http://127.0.0.1:40001", "demo.secret")
    assert proxy_to_call(Settings(state_dir=running, credential=SecretStr("own.secret"))).credential == "own.secret"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8081"),
        ("0.0.0.0", "http://127.0.0.1:8081"),
        ("::1", "http://[::1]:8081"),
        ("::", "http://127.0.0.1:8081"),
    ],
)
def test_without_either_it_is_the_proxy_of_this_environment(tmp_path: Path, host: str, url: str):
    assert proxy_to_call(Settings(state_dir=tmp_path, host=host, port=8081)) == Place(url, None)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://predict", "http://dana:secret@predict", "http://predict/v1"])
def test_what_is_no_address_of_a_proxy_is_refused(url: str):
    with pytest.raises(ValueError, match="proxy_url"):
        Settings(proxy_url=url)


def test_the_demo_takes_the_port_that_was_asked_for_the_option_first():
    assert wanted_port(8090, Settings(port=8081)) == 8090
    assert wanted_port(None, Settings(port=8081)) == 8081
    assert wanted_port(None, Settings()) is None
