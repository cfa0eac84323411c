"""What settings say of a proxy that names people."""

import pytest

from understudy.core.routing.proxy_identity import parse_networks, parse_roles


def test_a_group_has_all_scopes_that_are_named_for_it():
    assert parse_roles(" ml-oncall=operate, churn=read:churn,churn=operate:churn ,") == {
        "ml-oncall": {"operate"},
        "churn": {"read:churn", "operate:churn"},
    }
    assert parse_roles("") == {}


@pytest.mark.parametrize("text", ["read", "=read", "ops=", "ops=root", "ops=read:"])
def test_an_entry_that_gives_nothing_is_refused(text):
    with pytest.raises(ValueError, match="GROUP=SCOPE"):
        parse_roles(text)


def test_an_address_is_a_network_of_one():
    assert [str(one) for one in parse_networks("10.0.0.7, fd00::/8")] == ["10.0.0.7/32", "fd00::/8"]


@pytest.mark.parametrize("text", ["10.0.0.0/33", "proxy.internal", "10.0.0.7/8"])
def test_what_is_no_network_is_refused(text):
    with pytest.raises(ValueError, match=r"address|network|host bits"):
        parse_networks(text)
