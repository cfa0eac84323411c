"""Which proxy commands go to, and when they go to the database."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from understudy.entrypoints.cli.shared.contexts.chosen_proxy import chosen_proxy
from understudy.entrypoints.cli.shared.contexts.context_file import Context, Contexts, write_contexts
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.errors import DatabaseNeeded
from understudy.settings import Settings

DATABASE = SecretStr("postgresql://dana@db/understudy")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "contexts.json"
    contexts = Contexts().with_context("prod", Context("https://prod")).with_context("test", Context("https://test"))
    write_contexts(path, contexts)
    return path


def url_of(settings: Settings) -> str | None:
    chosen = chosen_proxy(settings)
    return None if chosen is None else chosen.place.url


def test_a_context_that_the_environment_names_comes_before_the_database_and_that_before_the_one_in_use(file: Path):
    folder = file.parent / "state"

    assert url_of(Settings(contexts=file, state_dir=folder)) == "https://prod"
    assert url_of(Settings(contexts=file, state_dir=folder, database_url=DATABASE)) is None
    assert url_of(Settings(contexts=file, state_dir=folder, database_url=DATABASE, context="test")) == "https://test"
    assert url_of(Settings(contexts=file, state_dir=folder, proxy_url="http://a")) == "http://a"
    assert url_of(Settings(contexts=file, state_dir=folder, proxy_url="http://a", database_url=DATABASE)) is None
    assert url_of(Settings(contexts=file.with_name("none"), state_dir=folder)) is None


def test_a_context_that_is_not_there_is_refused(file: Path):
    with pytest.raises(CommandRefused, match="no context 'stage'"):
        chosen_proxy(Settings(contexts=file, context="stage"))


def test_a_command_that_needs_the_database_says_so_where_a_context_is_in_use(file: Path, monkeypatch, tmp_path):
    monkeypatch.setenv("UNDERSTUDY_CONTEXTS", str(file))
    monkeypatch.setenv("UNDERSTUDY_CONTEXT", "prod")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DatabaseNeeded, match="works on the database, and context prod names a proxy"):
        settings_with_demo()


@pytest.mark.parametrize(
    ("url", "is_said"),
    [("http://prod", True), ("https://prod", False), ("http://127.0.0.1:8080", False), ("http://[::1]:8080", False)],
)
def test_a_key_that_the_network_can_read_is_said(tmp_path, url, is_said):
    found = chosen_proxy(Settings(state_dir=tmp_path, proxy_url=url, credential=SecretStr("id.secret")))

    assert found is not None
    assert ("not encrypted" in found.words()) == is_said
    assert "secret" not in found.words()
    without = chosen_proxy(Settings(state_dir=tmp_path, proxy_url=url))
    assert without is not None
    assert "not encrypted" not in without.words()


def test_a_variable_that_holds_no_key_is_refused_and_not_repeated(tmp_path: Path):
    with pytest.raises(CommandRefused, match="UNDERSTUDY_CREDENTIAL holds no key"):
        chosen_proxy(Settings(state_dir=tmp_path, proxy_url="http://a", credential=SecretStr("id.a\nb")))
    with pytest.raises(CommandRefused, match="UNDERSTUDY_PROXY_URL"):
        chosen_proxy(Settings(state_dir=tmp_path, proxy_url="http://a:99999"))
