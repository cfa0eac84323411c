"""Whom a proxy in front of the console names, and whose headers are as if they were not there."""

import pytest
from starlette.datastructures import Headers

from understudy.entrypoints.console.access.identity import Identity, Named, identity_of
from understudy.settings import Settings

SECRET = "a secret that the proxy and the console share"
GIVEN = {
    "console_identity_header": "X-Forwarded-Email",
    "console_groups_header": "X-Forwarded-Groups",
    "console_trusted_proxies": "10.1.0.0/16, ::1",
    "console_proxy_secret": SECRET,
    "console_roles": "ml-oncall=operate,churn-team=operate:churn,churn-team=read:churn",
}
PROXY = "10.1.2.3"


@pytest.fixture
def identity() -> Identity:
    found = identity_of(Settings(**GIVEN))
    assert found is not None
    return found


def sent(*more: tuple[str, str], secret: str | None = SECRET, name: str | None = "kim@shop.example") -> Headers:
    pairs = [*more]
    pairs += [] if secret is None else [("x-understudy-proxy-secret", secret)]
    pairs += [] if name is None else [("x-forwarded-email", name)]
    return Headers(raw=[(one.lower().encode(), value.encode("latin-1")) for one, value in pairs])


def test_a_person_has_the_scopes_of_all_her_groups(identity):
    found = identity.of(PROXY, sent(("x-forwarded-groups", "other, churn-team,ml-oncall")))

    assert found == Named("proxy:kim@shop.example", frozenset({"operate", "operate:churn", "read:churn"}))


def test_the_group_of_everyone_needs_no_header(identity):
    everyone = identity_of(Settings(**{**GIVEN, "console_roles": "everyone=read"}))

    assert everyone is not None
    assert everyone.of(PROXY, sent()) == Named("proxy:kim@shop.example", frozenset({"read"}))
    assert identity.of(PROXY, sent()) == ("proxy:kim@shop.example", frozenset())


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.2.0.1", sent()),
        ("testclient", sent()),
        (PROXY, sent(secret=None)),
        (PROXY, sent(secret=SECRET[:-1])),
        (PROXY, sent(("x-understudy-proxy-secret", SECRET))),
        (PROXY, sent(name=None)),
        (PROXY, sent(name=" ")),
        (PROXY, sent(name="k" * 201)),
        (PROXY, sent(name="kim\x1b[2J")),
        (PROXY, sent(("x-forwarded-email", "root@shop.example"))),
        (PROXY, sent(("x-forwarded-groups", "ml-oncall"), ("x-forwarded-groups", "staff"))),
    ],
    ids=[
        "network",
        "no address",
        "no secret",
        "secret",
        "two secrets",
        "none",
        "empty",
        "long",
        "control",
        "two names",
        "two lists of groups",
    ],
)
def test_headers_of_another_sender_are_as_if_they_were_not_there(identity, address, headers):
    assert identity.of(address, headers) is None


def test_a_name_in_utf_8_is_taken_as_it_is_written(identity):
    found = identity.of(PROXY, sent(name="Ærø Ñandú".encode().decode("latin-1")))

    assert found is not None
    assert found.name == "proxy:Ærø Ñandú"
    assert identity.of(PROXY, sent(name="K\xe4the")) == ("proxy:Käthe", frozenset())  # as it was in HTTP's early days


def test_an_address_of_version_4_within_version_6_is_the_same_address(identity):
    assert identity.of(f"::ffff:{PROXY}", sent()) is not None


@pytest.mark.parametrize(
    "given",
    [
        {"console_proxy_secret": None},
        {"console_trusted_proxies": None},
        {"console_trusted_proxies": "10.1.0.0/99"},
        {"console_proxy_secret": "short"},
        {"console_roles": "ml-oncall"},
        {"console_roles": "ml-oncall=root"},
        {"console_roles": "=read"},
        {"console_identity_header": "X Forwarded"},
    ],
)
def test_settings_that_would_believe_anyone_are_refused(given):
    with pytest.raises(ValueError, match="console_"):
        Settings(**{**GIVEN, **given})


def test_without_its_header_no_proxy_is_asked():
    assert identity_of(Settings()) is None
