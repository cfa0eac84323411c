"""Where the proxy is, and what each attempt tells it."""

import pytest

from understudy.client import AsyncClient, Client
from understudy.client.connection import Connection, request_headers


def test_the_environment_names_the_proxy_and_the_key_where_the_caller_does_not(monkeypatch):
    monkeypatch.setenv("UNDERSTUDY_PROXY_URL", "http://proxy:8080/")
    monkeypatch.setenv("UNDERSTUDY_CREDENTIAL", "shop.secret")

    assert Connection.of(None, None) == Connection("http://proxy:8080", "shop.secret")
    assert Connection.of("https://other", "own.key") == Connection("https://other", "own.key")


@pytest.mark.parametrize(
    "url", [None, "127.0.0.1:8080", "ftp://proxy", "http://me:pw@proxy", "http://proxy?x=1", "http://"]
)
def test_what_is_no_address_of_a_proxy_is_refused_without_being_repeated(url, monkeypatch):
    monkeypatch.delenv("UNDERSTUDY_PROXY_URL", raising=False)

    with pytest.raises(ValueError, match="expected") as refused:
        Connection.of(url, None)

    assert "me:pw" not in str(refused.value)


def test_the_key_is_in_no_text():
    for client in (Client("http://proxy", "shop.secret"), AsyncClient("http://proxy", "shop.secret")):
        assert "secret" not in repr(client)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(10.0, "9900"), (1.0, "950"), (0.1, "95"), (0.0001, "1"), (9_999.0, "3600000")]
)
def test_the_proxy_has_the_time_that_is_left_less_the_way_back(seconds, milliseconds):
    assert request_headers(seconds, has_body=False) == {"x-request-timeout-ms": milliseconds}


def test_a_body_is_json():
    assert request_headers(1.0, has_body=True)["content-type"] == "application/json"


@pytest.mark.parametrize("key", ["id.canary\n", "id.canaryé", "id canary"])
def test_a_key_that_no_header_holds_is_refused_and_not_repeated(key):
    with pytest.raises(ValueError, match="the key has characters") as refused:
        Connection.of("http://proxy", key)

    assert "canary" not in str(refused.value)
