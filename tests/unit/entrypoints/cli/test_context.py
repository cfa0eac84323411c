"""``understudy context``: what is kept of a context, and where commands go."""

from pathlib import Path

import pytest
from command import CommandLine


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("UNDERSTUDY_CONTEXTS", str(tmp_path / "contexts.json"))
    return CommandLine(None)


def test_a_context_keeps_its_key_until_it_is_told_otherwise(ask):
    first = ask("context", "set", "prod", "--url", "https://a", "--key-env", "CI_KEY")
    moved = ask("context", "set", "prod", "--url", "https://b", "--json")
    said = ask("context", "set", "prod", "--url", "https://b")
    file = ask("context", "set", "prod", "--url", "https://b", "--key-file", "key", "--json")
    without = ask("context", "set", "prod", "--url", "https://b", "--no-key")
    both = ask("context", "set", "prod", "--url", "https://b", "--no-key", "--key-env", "CI_KEY")

    assert "context prod is set with the key of variable CI_KEY, and in use" in first.said
    assert (moved.document["context"]["url"], moved.document["context"]["key_env"]) == ("https://b", "CI_KEY")
    assert "with the key of variable CI_KEY" in said.said
    assert (file.document["context"]["key_env"], file.document["context"]["key_file"][-4:]) == (None, "/key")
    assert "context prod is set without a key, and in use" in without.said
    assert both.code == 2


def test_a_context_whose_key_cannot_be_read_is_shown_with_its_url_and_why(ask):
    ask("context", "set", "prod", "--url", "https://a", "--key-env", "CI_KEY")

    shown = ask("context", "show", CI_KEY="")
    document = ask("context", "show", "--json", CI_KEY="").document

    assert shown.code == 2
    assert "https://a" in shown.said
    assert "commands go to nowhere: CI_KEY holds no key" in shown.said
    assert (document["commands_go_to"], document["problem"]) == (None, "CI_KEY holds no key")
    assert "https://a, by context prod" in ask("context", "show", CI_KEY="id.secret").said


def test_a_key_without_a_place_is_told_of_the_proxy_and_not_of_the_database(ask):
    nowhere = {"PGHOST": "127.0.0.1", "PGPORT": "1"}

    with_key = ask("model", "list", UNDERSTUDY_CREDENTIAL="id.secret", UNDERSTUDY_PROXY_URI="http://a", **nowhere)
    without = ask("model", "list", **nowhere)
    named = ask("model", "list", DATABASE_URL="postgresql://dana@127.0.0.1:1/understudy")

    assert (with_key.code, without.code, named.code) == (69, 69, 69), (with_key, without, named)
    assert "UNDERSTUDY_PROXY_URI is no setting: did you mean UNDERSTUDY_PROXY_URL?" in with_key.said
    assert "UNDERSTUDY_CREDENTIAL is a key for a proxy, and none is named: set UNDERSTUDY_PROXY_URL" in with_key.said
    assert "understudy context set NAME --url URL" in without.said
    assert "Check DATABASE_URL and the server" in named.said
