import stat
from pathlib import Path
from typing import NoReturn

import pytest

from understudy.entrypoints.cli.shared.contexts.context_file import (
    Context,
    Contexts,
    checked_url,
    default_path,
    is_for_others,
    read_contexts,
    write_contexts,
)
from understudy.entrypoints.cli.shared.errors import CommandRefused

PROD = Context("https://predict.internal", key_env="CI_KEY")


def test_contexts_are_kept_in_a_file_that_its_owner_alone_may_read(tmp_path: Path):
    path = tmp_path / "home" / "contexts.json"
    contexts = Contexts().with_context("prod", PROD).with_context("test", Context("http://127.0.0.1:8080"))

    write_contexts(path, contexts)

    assert read_contexts(path) == contexts
    assert contexts.current == "prod"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["contexts.json"]


def test_a_context_that_is_removed_is_in_use_no_more():
    contexts = Contexts().with_context("prod", PROD)

    assert contexts.without("prod") == Contexts({}, None)
    with pytest.raises(CommandRefused, match="no context 'test'"):
        contexts.named("test")


@pytest.mark.parametrize(
    "content", ["", "[]", '{"contexts": {"a": {}}, "current": null}', '{"contexts": {"a": {"url": "http://u:p@h"}}}']
)
def test_what_is_no_file_of_contexts_is_refused_and_not_repeated(tmp_path: Path, content: str):
    path = tmp_path / "contexts.json"
    path.write_text(content)

    with pytest.raises(CommandRefused, match="is no file of contexts"):
        read_contexts(path)


def test_a_key_is_read_where_the_context_says_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "key"
    file.write_text(" id.secret\n")
    monkeypatch.setenv("CI_KEY", "of.ci")

    assert Context("http://a", key_file=str(file)).credential() == "id.secret"
    assert PROD.credential() == "of.ci"
    assert Context("http://a").credential() is None
    assert PROD.where_the_key_is() == "variable CI_KEY"


def test_a_key_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CI_KEY", raising=False)
    (tmp_path / "key").write_bytes(b"\xff")

    with pytest.raises(CommandRefused, match="CI_KEY holds no key"):
        PROD.credential()
    with pytest.raises(CommandRefused, match="holds no key"):
        Context("http://a", key_file=str(tmp_path / "key")).credential()
    with pytest.raises(CommandRefused, match="cannot be read"):
        Context("http://a", key_file=str(tmp_path / "none")).credential()


@pytest.mark.parametrize(
    "key", ["id.canary\nsecond", "id.canaryé", "id.canary canary", "id.canary\t.", "c" * 5_000, " "]
)
def test_what_no_header_holds_is_no_key_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str):
    (tmp_path / "key").write_text(key)
    monkeypatch.setenv("CI_KEY", key)

    for context in (PROD, Context("http://a", key_file=str(tmp_path / "key"))):
        with pytest.raises(CommandRefused, match="holds no key") as refused:
            context.credential()
        assert "canary" not in refused.value.detail + refused.value.next_step


def no_such_user(number: int) -> NoReturn:
    raise KeyError(number)


def test_a_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch):
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_such_user)

    assert default_path() is None
    assert read_contexts(default_path()) == Contexts()


def test_a_file_that_others_may_read_is_noticed(tmp_path: Path):
    file = tmp_path / "key"
    file.touch(mode=0o600)
    assert not is_for_others(file)
    assert not is_for_others(tmp_path / "none")

    file.chmod(0o644)

    assert is_for_others(file)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "predict.internal",
        "ftp://a",
        "http://dana:secret@a",
        "http://:secret@a",
        "http://a?x=1",
        "http://a#x",
        "http://a:99999",
    ],
)
def test_what_is_no_address_of_a_proxy_is_refused_and_not_repeated(url: str):
    with pytest.raises(CommandRefused) as refused:
        checked_url(url)

    assert "secret" not in refused.value.detail


@pytest.mark.parametrize("url", ["https://predict.internal/v1", "https://predict.internal/v1/"])
def test_a_url_that_ends_in_the_path_of_the_routes_is_refused_with_what_to_leave_out(url):
    with pytest.raises(CommandRefused, match="it ends in /v1") as refused:
        checked_url(url)

    assert refused.value.next_step == "Leave /v1 out."
    assert checked_url("https://internal/predict") == "https://internal/predict"
