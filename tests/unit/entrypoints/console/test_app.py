"""Which hosts the console answers, and that every route asks who comes."""

from inspect import getsource

import pytest
from pydantic import SecretStr

from understudy.entrypoints.console.app import ROUTES, host_rules
from understudy.settings import Settings


@pytest.mark.parametrize(
    ("given", "host", "is_answered"),
    [
        ({}, b"127.0.0.1:8090", True),
        ({}, b"localhost:8090", True),
        ({}, b"evil.example", False),
        ({"console_host_names": "console.shop.example"}, b"console.shop.example", True),
        ({"console_host": "0.0.0.0"}, b"anything.example", True),
        ({"console_host": "0.0.0.0", "console_host_names": "console.shop.example"}, b"anything.example", False),
    ],
)
def test_the_console_is_called_by_its_names(given, host, is_answered):
    rules = host_rules(Settings(**given))

    assert (rules.problem_of_plain(b"GET", {b"host": host}) is None) == is_answered


def test_only_the_login_and_the_sign_out_are_reached_without_a_visitor():
    open_routes = {
        (method, path)
        for method, path, handler in ROUTES
        if not any(word in getsource(handler) for word in ("visitor_of(", "reader_of(", "confirmed_of("))
    }

    assert open_routes == {("GET", "/login"), ("POST", "/login"), ("POST", "/logout")}


@pytest.mark.parametrize(
    ("given", "is_https"),
    [({}, False), ({"console_host": "0.0.0.0"}, True), ({"console_https": True}, True)],
)
def test_the_cookie_is_for_https_alone_wherever_others_than_this_machine_come(given, is_https):
    assert Settings(**given).console_is_https is is_https


def test_a_short_secret_is_refused():
    with pytest.raises(ValueError, match="at least 32"):
        Settings(console_secret=SecretStr("short"))
