from dataclasses import replace

import pytest

from understudy.core.routing.delegation import excess_of, may_revoke
from understudy.core.routing.policy import ApiKey
from understudy.core.routing.rate_limits import Allowance

SHOP = ApiKey("k1", b"", frozenset({"keys", "read", "predict:visits"}), "shop", Allowance(10.0, None), expires_at=100.0)
CHILD = replace(SHOP, id="k2", scopes=frozenset({"read:visits", "predict:visits"}))


def test_a_key_makes_what_it_is_itself_or_less():
    less = replace(CHILD, allowance=Allowance(5.0, 1e6), expires_at=99.0)
    of_no_limits = ApiKey("k0", b"", SHOP.scopes)

    assert [excess_of(SHOP, CHILD), excess_of(SHOP, less), excess_of(of_no_limits, CHILD)] == [None] * 3


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"scopes": frozenset({"predict"})}, "no scope that it has not"),
        ({"scopes": frozenset({"operate:visits"})}, "no scope that it has not"),
        ({"expires_at": 100.1}, "outlasts it"),
        ({"expires_at": float("inf")}, "outlasts it"),
        ({"tenant": None}, "of that tenant"),
        ({"tenant": "bank"}, "of that tenant"),
        ({"allowance": Allowance(10.1, None)}, "use more than itself: calls_per_second"),
        ({"allowance": Allowance(None, None)}, "use more than itself: calls_per_second"),
    ],
)
def test_a_key_makes_none_that_is_more_than_itself(wanted, words):
    assert words in (excess_of(SHOP, replace(CHILD, **wanted)) or "")


def test_a_key_revokes_itself_and_those_that_may_do_no_more():
    assert may_revoke(SHOP, SHOP)
    assert may_revoke(SHOP, replace(CHILD, expires_at=1e9))
    assert not may_revoke(SHOP, replace(CHILD, tenant="bank"))
    assert not may_revoke(SHOP, replace(CHILD, scopes=frozenset({"operate"})))
