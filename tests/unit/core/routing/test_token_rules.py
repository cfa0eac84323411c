"""Whose a token has to be, and for how long it is believed."""

from typing import Any

import pytest

from understudy.core.routing.token_grants import parse_grants
from understudy.core.routing.token_rules import TokenRules
from understudy.errors import Unauthenticated

NOW = 1_795_000_000.0
RULES = TokenRules("https://issuer", "proxy", parse_grants('{"groups": {"oncall": ["read", "operate:fraud"]}}'))


def claims(**other: Any) -> dict[str, Any]:
    said = {"iss": "https://issuer", "aud": ["shop", "proxy"], "sub": "dana", "exp": NOW + 600, "iat": NOW, **other}
    return {name: value for name, value in said.items() if value is not None}


def test_a_good_token_is_a_key_with_the_scopes_of_its_claims_until_it_ends():
    caller = RULES.caller_of(claims(groups=["oncall"]), NOW)

    assert (caller.id, set(caller.scopes)) == ("oidc:dana", {"read", "operate:fraud"})
    assert caller.expires_at == NOW + 600 + RULES.leeway_seconds
    assert RULES.caller_of(claims(aud="proxy"), NOW).scopes == frozenset()


def test_the_actor_may_be_another_claim():
    rules = RULES._replace(actor_claim="email")

    assert rules.caller_of(claims(email="dana@example.com"), NOW).id == "oidc:dana@example.com"


@pytest.mark.parametrize("early", [{"nbf": NOW + 60}, {"iat": NOW + 60}, {"exp": NOW - 59}])
def test_the_issuers_clock_may_be_a_little_off(early):
    assert RULES.caller_of(claims(**early), NOW).id == "oidc:dana"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"iss": "https://issuer/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "shop"}, "another audience"),
        ({"aud": ["proxy2", 7]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"exp": None}, "no end"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": "never"}, "claim exp is no time"),
        ({"exp": True}, "claim exp is no time"),
        ({"exp": float("inf")}, "claim exp is no time"),
        ({"exp": 10**400}, "claim exp is no time"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"iat": NOW + 61}, "issued in the future"),
        ({"exp": NOW + 86_401}, "valid for more than 86400 s"),
        ({"exp": NOW + 86_401, "iat": None}, "valid for more than 86400 s"),
        ({"exp": NOW + 10, "iat": NOW - 86_400}, "valid for more than 86400 s"),
        ({"sub": None}, "claim sub names no actor"),
        ({"sub": ""}, "claim sub names no actor"),
        ({"sub": "d\x00na"}, "claim sub names no actor"),
        ({"sub": "d" * 201}, "claim sub names no actor"),
        ({"sub": ["dana"]}, "claim sub names no actor"),
    ],
)
def test_any_other_is_refused_with_its_own_words(other, words):
    with pytest.raises(Unauthenticated, match=words):
        RULES.caller_of(claims(**other), NOW)
